"""A short campaign on real brokers: five faults without any fencing; and a harness that notices what it should."""

import json

import pytest

from torture.__main__ import main
from torture.network import problem

pytestmark = pytest.mark.skipif(bool(problem()), reason=f"no network namespaces here: {problem()}")


def test_five_faults_without_fencing(tmp_path, capsys):
    words = ["--minutes", "0.2", "--faults", "5", "--seed", "11", "--rate", "150", "--keep", "--json"]
    code = main([*words, "--directory", str(tmp_path / "run")])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    assert 1 <= found["faults"] <= 5
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
