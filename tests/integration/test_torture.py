"""Short campaigns on real brokers, without any fencing: faults of all kinds, and those of shovels and routes."""

import json
from collections import Counter
from dataclasses import asdict

import pytest

from testkit.judge import History
from testkit.record import read
from torture.__main__ import main
from torture.network import problem
from torture.report import failures

pytestmark = pytest.mark.skipif(bool(problem()), reason=f"no network namespaces here: {problem()}")


def run(capsys, directory, *words):
    code = main([*words, "--minutes", "0.2", "--rate", "150", "--keep", "--json", "--directory", str(directory)])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    return found


def test_shovel_and_route_lose_nothing(tmp_path, capsys):
    kinds = ("kill far", "cut off far", "kill a shovel", "kill primary")
    found = run(
        capsys, tmp_path / "run", "--faults", "4", "--seed", "3", *(word for kind in kinds for word in ("--kind", kind))
    )
    assert found["faults"] and found["kinds"].keys() <= set(kinds)
    assert found["moved"].keys() == {"shovel", "dynamic route"}
    for counts in found["moved"].values():
        assert 50 < counts["confirmed"] <= counts["arrived"]


def test_five_faults_without_fencing(tmp_path, capsys):
    found = run(capsys, tmp_path / "run", "--faults", "5", "--seed", "11", "--no-routes")
    assert 1 <= found["faults"] <= 5 and found["moved"] == {}
    messages = found["messages"]
    assert messages["confirmed"] > 300
    wrong = ("lost", "unexpected", "torn", "phantom", "returned")
    assert {name: messages[name] for name in wrong} == dict.fromkeys(wrong, 0)
    assert messages["removed"] > 0 and messages["refused"] > 0  # the queues in which the broker decides are at work
    assert found["exits"] == found["contradictions"] == []
    assert complaints(found, tmp_path / "run" / "history") == []
    repeat(tmp_path / "run" / "history" / "plain3.jsonl")
    assert [text.partition(" (")[0] for text in complaints(found, tmp_path / "run" / "history")] == [
        "1 duplicates without a mark",
        "1 came twice from one queue without a mark",
    ]


def complaints(found, histories):
    """What the judge says of these histories."""
    verdict = History().add(read(histories)).verdict()
    return failures({**found, "messages": asdict(verdict)})


def repeat(history):
    """Plants a second delivery of a message that had come once, without a mark, and its acknowledgement."""
    lines = history.read_text().splitlines()
    events = [json.loads(line) for line in lines]
    times = Counter(event["id"] for event in events if event["kind"] == "receive")
    bare = (
        event for event in events if event["kind"] == "receive" and not event["redelivered"] and not event["resent"]
    )
    came = next(event for event in bare if times[event["id"]] == 1)
    again = [json.dumps({**came, "kind": kind}) for kind in ("receive", "ack")]
    history.write_text("\n".join([*lines, *again, ""]))


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path, capsys):
    (tmp_path / "precious").write_text("x")
    assert main(["--minutes", "0.1", "--directory", str(tmp_path)]) == 2
    assert (tmp_path / "precious").exists()
    assert "not empty" in capsys.readouterr().err
