"""A frozen primary in `quorum` is replaced, and wakes: what the brokers write proves that one history was confirmed."""

import json
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

from client_lib import Connection
from tests.support import programs
from tests.support.members import Members
from tests.support.wait import wait_for


def test_the_report_excludes_two_primaries(tmp_path: Path) -> None:
    with closing(Members(tmp_path, "--ha-safety", "quorum", "--link-heartbeat-interval", "1")) as members:
        members.up()
        over, confirmed = threading.Event(), [0]

        def publish() -> None:
            with Connection(members.brokers["a"].address, connect_timeout=5.0) as connection:
                session = connection.session()
                session.declare_queue("q", durable=True)
                sender = session.sender("q")
                while not over.is_set():
                    sender.send("x")
                    confirmed[0] += 1

        thread = threading.Thread(target=lambda: _quietly(publish), daemon=True)
        thread.start()
        wait_for(lambda: confirmed[0] > 200)
        members.brokers["a"].pause()
        new = members.promote_newest("b", "c")
        wait_for(lambda: members.ask(new, "ha.status")["state"] == "active", 60)
        members.brokers["a"].resume()
        over.set()
        members.settled(new)
        # it may hear of its successor before it has noticed that it did not run
        woke = [event["last_pos"] for event in members.brokers["a"].events("resumed")]
        (left,) = members.brokers["a"].events("demote")
        assert {*woke} <= {int(left["attrs"]["confirmed"])}
    row = reported(tmp_path)
    assert (row["old_node"], row["new_node"], row["verdict"]) == ("a", new, "excluded"), row


def _quietly(work: Any) -> None:
    try:
        work()
    except Exception:
        return  # the primary freezes under it


def reported(folder: Path) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "spark_jobs.main",
        "report",
        str(folder),
        "-o",
        str(folder / "out"),
        "--engine",
        "duckdb",
    ]
    done = programs.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done
    rows = json.loads((folder / "out" / "incident-1.json").read_text())["dual"]
    found: dict[str, Any] = rows[-1]
    return found
