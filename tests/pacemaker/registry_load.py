"""Runs on a node, as the broker's user, fed to its Python: exchanges with the registry, one after the other.

`python - ID SECONDS TIMEOUT` prints "ready", then one line of JSON for each exchange (`test_registry.Exchange`)
"""

import json
import sys
import time
from typing import Any

from ha.model.membership import HaState, InSync
from ha.registry.pacemaker import PacemakerRegistry
from ha.registry.worker import RegistryError


def exchange(registry: PacemakerRegistry, id: str, number: int, timeout: float) -> dict[str, Any]:
    began = time.monotonic()
    outcome: dict[str, Any] = {"seen": {}, "error": ""}
    try:
        end = registry.exchange(HaState(id, number, id, InSync(number, id, number)), timeout)
        outcome["seen"] = {state.id: state.epoch for state in end.states}
    except RegistryError as error:
        outcome["error"] = str(error)
    return {"wrote": number, "began": began, "ended": time.monotonic(), **outcome}


def main() -> None:
    id, seconds, timeout = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    registry = PacemakerRegistry("load")
    registry.start()
    (last,) = [state.epoch for state in registry.exchange(None, 30.0).states if state.id == id] or [0]
    print("ready", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        last += 1
        print(json.dumps(exchange(registry, id, last, timeout)), flush=True)
    registry.close()


main()
