"""Short campaigns on real brokers, without any fencing: faults of all kinds, and those of shovels and routes."""

import json

import pytest

from torture.__main__ import main
from torture.network import problem

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


def test_a_directory_that_is_not_ours_is_left_alone(tmp_path, capsys):
    (tmp_path / "precious").write_text("x")
    assert main(["--minutes", "0.1", "--directory", str(tmp_path)]) == 2
    assert (tmp_path / "precious").exists()
    assert "not empty" in capsys.readouterr().err
