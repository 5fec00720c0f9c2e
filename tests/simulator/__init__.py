"""Brokers, links, clients, disks and resource managers as pure code under one seeded scheduler.

Real: the core with its compaction, the broker (connections, virtual host, management), the HA node, the state file's
codec; in some scenarios also `ha.shell.asker.Asker` (on the loop of `loop.py`), `ha.registry.file.FileRegistry`, and
the exchanges of `ha.registry.attributes` (with the tools of `tools.py`).
Simulated: time and clocks, the network (`network.py`), processes with their crashes and pauses (`process.py`,
`environment.py`) and disks (`disk.py`), clients that speak AMQP octets (`clients.py`, `producers.py`, `consumers.py`,
`architects.py`), resource managers (`manager.py`, `score_manager.py`; what they may do: `rules.py`), their registry
(`registry.py`; `pacemaker.py` over `corosync.py`) and the faults (`faults.py`).

    seed ──plan.py──▶ Scenario (scenario.py) ──simulation.py──▶ holds, or Violation
                        ▲        │
              scenarios/*.yaml   └──shrink.py──▶ a small one that still fails

What must hold is listed in `history.py` and checked there and in `judge.py`; `mutants.py` breaks the HA core on
purpose, to show that the invariants can fail.  One scenario is one schedule, exactly.  To see it:

    python -m tests.simulator --seed 17 --mode quorum --verbose
    python -m tests.simulator --seeds 0:5000 --jobs 2 --keep-going
    python -m tests.simulator --seed 17 --mode quorum --shrink --save small.yaml
    python -m tests.simulator --replay small.yaml --verbose
    python -m tests.simulator --seeds 0:500 --mode quorum --liveness      faults that never end (`liveness.py`)
    python -m tests.simulator --seeds 0:500 --coverage                    what was reached, what hardly ever; `knobs.py`
    python -m tests.simulator --search 500 --mode quorum                  mutates what has reached something new

To look into a failure: the first line that surprises is mostly a claim, a membership or a `safe`; from there backwards.
A change of `plan.py` makes other scenarios of the same seeds, so a finding is kept as a file, not as a seed.
"""
