"""What judges runs with faults: the history that clients record (`record.py`, `library_events.py`), the verdict over it
by Jepsen's definitions (`judge.py`), and queues from which a confirmed message may lawfully be missing (`queues.py`,
`rules.py`), and the rate of a load (`pace.py`).  The demo, the torture and the tests use it; the product does not."""
