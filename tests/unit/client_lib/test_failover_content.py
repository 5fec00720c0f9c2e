"""Messages in pika's own form."""

import copy
import pickle
import threading
from types import SimpleNamespace
from typing import Any

import pika
import pytest

from client_lib.core.publishing import Publishing
from client_lib.errors import Returned
from client_lib.events import EventLog
from client_lib.failover.content import Incoming, Outgoing, UnreadProperties, publish_entry
from client_lib.monitor import ThreadMonitor


def decoded(payload: bytes) -> pika.BasicProperties:
    properties = pika.BasicProperties()
    properties.decode(payload)
    return properties


def test_an_object_of_the_program_is_never_changed() -> None:
    given = pika.BasicProperties(headers={"a": 1}, app_id="billing", type="invoice", expiration="soon")
    before = dict(vars(given)), dict(given.headers)
    message = Outgoing("e", "k", "text \u00e4", given, mandatory=True)
    first, again = decoded(message.encode("id-1")), decoded(message.encode("id-1", True, "k", None))
    assert (first.message_id, first.headers, first.app_id, first.type) == ("id-1", {"a": 1}, "billing", "invoice")
    assert again.headers == {"a": 1, "x-resent": True}
    assert (dict(vars(given)), given.headers) == before
    assert message.body == "text \u00e4".encode()


def test_no_properties_are_no_properties() -> None:
    message = Outgoing("", "k", b"", None, mandatory=False)
    assert message.id is None
    assert {key: value for key, value in vars(decoded(message.encode("id-1"))).items() if value is not None} == {
        "message_id": "id-1"
    }


def test_the_id_of_the_program_stays() -> None:
    assert Outgoing("", "k", b"", pika.BasicProperties(message_id="mine"), mandatory=False).id == "mine"


def test_a_return_as_pika_shows_it() -> None:
    message = Outgoing("e", "k", b"body", pika.BasicProperties(type="t"), mandatory=True)
    worker = SimpleNamespace(publishing=Publishing("p", ThreadMonitor(), EventLog("c"), None))
    publish_entry(SimpleNamespace(_worker=worker), message, "id-1")  # type: ignore[arg-type]
    back = message.returned(Returned(312, "NO_ROUTE", message))
    method = back.method
    assert (method.NAME, method.reply_code, method.reply_text) == ("Basic.Return", 312, "NO_ROUTE")
    assert (method.exchange, method.routing_key, back.body) == ("e", "k", b"body")
    assert (back.properties.type, back.properties.message_id) == ("t", "id-1")


def test_a_delivery_gets_our_tag() -> None:
    method = pika.spec.Basic.Deliver("ctag", 1, True, "e", "k")
    properties = pika.BasicProperties(message_id="id-1", content_type="amqp/map")
    message = Incoming(method, properties, b"not a map")
    assert (message.id, message.redelivered, message.exchange, message.routing_key) == ("id-1", True, "e", "k")
    shown = message.numbered(70)
    assert shown == (method, properties, b"not a map")
    assert shown[0].delivery_tag == 70


def test_a_delivery_says_that_it_may_be_a_second_copy() -> None:
    method = pika.spec.Basic.Deliver("ctag", 1, False, "e", "k")
    assert Incoming(method, pika.BasicProperties(headers={"x-resent": True}), b"").resent
    assert not Incoming(method, pika.BasicProperties(), b"").resent


WHOLE = pika.BasicProperties("t", "e", {"h": [1]}, 2, 3, "c", "r", "5", "m", 99, "y", "u", "a", "l")
THROUGH = [copy.copy, copy.deepcopy, lambda given: pickle.loads(pickle.dumps(given))]


def unread(wanted: Any = WHOLE) -> Any:
    message = Incoming.unread("tag", False, "", "q", b"".join(wanted.encode()), b"")
    return message.numbered(1)[1]


def test_unread_properties_are_pikas() -> None:
    assert isinstance(unread(), pika.BasicProperties)
    assert unread() == WHOLE and unread() == WHOLE and unread() == unread()
    assert (repr(unread()), vars(unread()), unread().encode()) == (repr(WHOLE), vars(WHOLE), WHOLE.encode())


@pytest.mark.parametrize("name", sorted(vars(WHOLE)))
def test_each_is_read_when_it_is_asked_for_first(name: str) -> None:
    assert getattr(unread(), name) == getattr(WHOLE, name)
    assert getattr(unread(pika.BasicProperties()), name) is None


def test_what_is_set_before_reading_stays() -> None:
    given = unread()
    given.headers = {"mine": 1}
    assert (given.headers, given.message_id) == ({"mine": 1}, "m")


@pytest.mark.parametrize("through", THROUGH)
def test_unread_properties_can_be_copied(through: Any) -> None:
    assert through(unread()) == WHOLE and through(unread()).message_id == "m"


def test_unread_properties_are_sent_again() -> None:
    assert decoded(Outgoing("", "k", b"", unread(), False).encode("m")) == WHOLE


def test_a_wrong_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="colour"):
        unread().colour
    assert UnreadProperties(message_id="k").message_id == "k"


def test_threads_that_read_at_once() -> None:
    """Two workers with one message: each has it whole."""
    for _ in range(200):
        given, found = unread(), []
        threads = [threading.Thread(target=lambda: found.append(given.headers)) for _ in range(2)]  # noqa: B023
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [{"h": [1]}] * 2


@pytest.mark.parametrize("octets", [b"", b"\x80", b"\xff\xff", b"\x20\x00" + b"\xff" * 40])
def test_properties_that_cannot_be_read_are_none(octets: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """As `client_lib.message`: ending the connection would only cause a redelivery."""
    given = Incoming.unread("tag", False, "", "q", octets, b"").numbered(1)[1]
    assert given.message_id is None and given == pika.BasicProperties()
    assert caplog.text.count("properties that cannot be read") == 1
