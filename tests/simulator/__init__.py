"""Brokers, links, clients and a resource manager as pure code under one seeded scheduler.

Real: the core, the broker (sessions, virtual host), the HA node.  Simulated: time, the network (`network.py`), the
processes with their crashes and pauses (`process.py`), clients that speak AMQP octets (`clients.py`), the resource
manager (`manager.py`) and the faults (`faults.py`).  What must hold is in `history.py`; `simulation.py` puts it
together; `mutants.py` breaks the HA core on purpose, to show that the invariants can fail.

One seed is one schedule, exactly.  To see it:

    python -m tests.simulator --seed 17 --verbose
    python -m tests.simulator --seeds 0:5000
"""
