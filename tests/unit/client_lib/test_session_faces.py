"""What an application holds: the documented names and nothing else, in both APIs from one source."""

import ast
import inspect
import textwrap

import pytest

import client_lib
from client_lib import aio
from tools import threaded_session

DOCUMENTED = {
    *("sender", "receiver", "queue_sender", "queue_receiver", "next_receiver", "senders", "receivers", "get"),
    *("acknowledge", "reject", "release", "fence", "unsettled", "sync", "close", "check_error"),
    *("transactional", "commit", "rollback", "get_error", "set_async_exception_notify_handler"),
    *("declare_queue", "declare_exchange", "bind_queue", "unbind_queue", "bind_exchange", "unbind_exchange"),
    *("delete_queue", "delete_exchange", "purge_queue", "declare", "manage"),
}


@pytest.mark.parametrize("session", [client_lib.Session, aio.Session])
def test_a_session_has_the_documented_names_only(session: type) -> None:
    assert {name for name in dir(session) if not name.startswith("_")} == DOCUMENTED


@pytest.mark.parametrize("kind", [client_lib.Session, aio.Session, client_lib.FailoverChannel])
def test_made_by_composition(kind: type) -> None:
    assert kind.__bases__ == (object,)


def test_the_threaded_session_is_what_the_tool_writes() -> None:
    source, target = threaded_session.SOURCE.read_text(), threaded_session.TARGET.read_text()
    assert threaded_session.written(source, target) == target, "run: python -m tools.threaded_session"


def test_same_docstrings() -> None:
    for name in DOCUMENTED:
        one, other = (inspect.getdoc(inspect.getattr_static(kind, name)) for kind in (client_lib.Session, aio.Session))
        assert one == other, name


@pytest.mark.parametrize("kind", [aio.Connection, aio.Session, aio.Sender, aio.Receiver])
def test_what_waits_for_nothing_is_no_coroutine(kind: type) -> None:
    """Whoever forgets an `await` would have asked for nothing.  Those of protocols have to be coroutines."""
    idle = []
    for name, function in inspect.getmembers(kind, inspect.iscoroutinefunction):
        nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))))
        if not name.startswith("__") and not any(isinstance(node, ast.Await) for node in nodes):
            idle.append(name)
    assert idle == []


def test_what_the_tool_changes() -> None:
    source = "async def f(self):\n    await self.g()\n    return (await h()).awaited\nasync def __aexit__(self): ..."
    expected = "def f(self):\n    self.g()\n    return (h()).awaited\ndef __exit__(self): ..."
    assert threaded_session.threaded(source) == expected


def test_a_change_of_the_source_is_noticed() -> None:
    source, target = threaded_session.SOURCE.read_text(), threaded_session.TARGET.read_text()
    assert threaded_session.written(source + "\n# more\n", target) != target


def test_the_mark_is_needed() -> None:
    with pytest.raises(ValueError, match="no line"):
        threaded_session.written("class Session: ...", threaded_session.MARK)
