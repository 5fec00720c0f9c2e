"""The agent as Pacemaker calls it: a process with OCF_ variables.  Its modules can be imported, too."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "resource_agents" / "ocf"))

from tests.agents.ocf import Agent  # noqa: E402  (it imports the agent's modules)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """A resource whose broker is ended after the test, whatever state it is in."""
    with Agent(tmp_path) as found:
        yield found


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[Callable[..., Agent]]:
    """`make_agent("name", parameter=value)`: several resources, each with its own directory."""
    made: list[Agent] = []

    def make(name: str, **parameters: str) -> Agent:
        made.append(Agent(tmp_path / name, **parameters))
        return made[-1]

    yield make
    for found in made:
        found.close()
