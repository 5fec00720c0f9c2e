"""Parameters: what is a shovel and what is none, how backups follow, and what the reports of `qpid-shovel` change."""

from typing import Any

import pytest

from qpidd_py.broker.parameters import (
    PARAMETERS_MAX,
    PROPERTIES,
    SHOVEL,
    addresses,
    check_component,
    check_parameter,
    local_host,
)
from qpidd_py.broker.settings import Key
from qpidd_py.management.model import Management
from qpidd_py.management.parameters import SILENCE
from tests.unit.broker.test_policies import House

REMOTE = "amqp://anna:secret@node1:5672/v"
VALUE: dict[str, Any] = {"src-uri": "amqp://", "src-queue": "a", "dest-uri": REMOTE, "dest-queue": "b"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"src-uri": None}, "src-uri: expected an address or a list of 1 to 20"),
    ({"src-uri": []}, "src-uri: expected an address"),
    ({"src-uri": [REMOTE, 5]}, "src-uri: address 2 is none of amqp://"),
    ({"src-uri": "http://anna:secret@h"}, "src-uri: address 1 is none of amqp://"),
    ({"src-uri": "amqp://anna:sec ret@h"}, "without blanks"),
    ({"src-uri": "amqp:///orders/a"}, "address 1 names no host; amqp:// and amqp:///VHOST are of this cluster"),
    ({"src-uri": "amqps://"}, "address 1 names no host"),
    ({"src-uri": "amqp://?heartbeat=5"}, "address 1 names no host"),
    ({"src-uri": ["amqp://", REMOTE]}, "is this cluster, and stands alone"),
    ({"src-uri": "amqp://" + "h" * 2001}, "is none of"),
    ({"src-protocol": "amqp10"}, "src-protocol: 'amqp10', expected amqp091"),
    ({"src-address": "a"}, "key 'src-address': it belongs to AMQP 1.0"),
    ({"prefetch-count": 5}, "key 'prefetch-count': its name is src-prefetch-count"),
    ({"colour": 5}, "key 'colour': expected some of src-protocol, src-uri"),
    ({"src-exchange": "x"}, "expected src-queue or src-exchange, and not both"),
    ({"dest-exchange": "x"}, "expected dest-queue or dest-exchange, and not both"),
    ({"src-exchange-key": "k"}, "src-exchange-key is of no use without src-exchange"),
    ({"dest-exchange-key": "k"}, "dest-exchange-key is of no use without dest-exchange"),
    ({"src-queue": ""}, "src-queue: '', expected a name"),
    ({"src-queue": "q" * 256}, "expected a name of 1 to 255 octets"),
    ({"src-queue": "\ud800"}, ""),
    ({"src-queue-args": []}, "src-queue-args: [], expected an object"),
    *(({"src-prefetch-count": count}, "expected a whole number from 1 to 65535") for count in (0, 65536, "5", True)),
    *(({"src-delete-after": after}, "expected never, queue-length or a") for after in (0, -1, "always", 1.5, True)),
    ({"src-delete-after": 5, "ack-mode": "no-ack"}, "cannot be had with ack-mode no-ack"),
    ({"ack-mode": "at-once"}, "ack-mode: 'at-once', expected one of on-confirm, on-publish, no-ack"),
    *(({"reconnect-delay": delay}, "expected seconds") for delay in (0, -1, "1", 1e9, float("nan"), True)),
    ({"dest-add-forward-headers": "yes"}, "dest-add-forward-headers: 'yes', expected true or false"),
    ({"dest-publish-properties": {"headers": {}}}, "property 'headers' is none of content_type"),
    ({"dest-publish-properties": {"delivery_mode": 0}}, "property delivery_mode is no whole number of at most 2"),
    ({"dest-publish-properties": {"app_id": "x" * 256}}, "property app_id is no text of at most 255 octets"),
    *(({"dest-add-trace": tag}, "expected a name of 1 to 64") for tag in ("", "a,b", "a b", "é", "t" * 65, 5)),
    *(({"src-exclude-traces": tags}, "expected a list of 1 to 20 tags") for tags in ("a", [], ["a,b"], ["a"] * 21)),
    ({"src-exclude-traces": ["a"]}, "src-exclude-traces is of no use without src-exchange"),
    ({"src-follow-bindings": 1}, "src-follow-bindings: 1, expected true or false"),
    ({"src-follow-bindings": True}, "src-follow-bindings is of no use without src-exchange"),
    ({"dest-queue-args": {"x": "y" * 9000}}, "octets, at most 8192 are possible"),
    ({"dest-uri": "amqp://", "dest-queue": "a"}, "src-queue and dest-queue are both 'a' of this cluster"),
    ({"dest-uri": "amqp://", "dest-queue": None}, "dest-queue: None, expected a name"),
]


ROUTE: dict[str, Any] = {
    "src-uri": REMOTE,
    "src-exchange": "x",
    "src-exchange-queue": "b",
    "dest-uri": "amqp://",
    "dest-exchange": "x",
    "src-follow-bindings": True,
}


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"dest-uri": REMOTE}, "dest-uri is this cluster, amqp://, and src-uri another one"),
        ({"src-uri": "amqp:///v"}, "dest-uri is this cluster, amqp://, and src-uri another one"),
        ({"dest-exchange": "y"}, "src-exchange and dest-exchange have one name"),
        ({"src-exchange-key": "k"}, "and src-exchange-key exclude each other"),
        ({"dest-exchange-key": "k"}, "and dest-exchange-key exclude each other"),
        ({"dest-queue": "q"}, "expected dest-queue or dest-exchange, and not both"),
    ],
)
def test_what_is_no_route_that_follows_bindings(keys: dict[str, Any], text: str) -> None:
    for host in ("amqp://", "amqp:///v"):
        check_parameter(SHOVEL, {**ROUTE, "dest-uri": host})
    with pytest.raises(ValueError) as found:
        check_parameter(SHOVEL, {**ROUTE, **keys})
    assert text in str(found.value)


def test_a_virtual_host_of_this_cluster() -> None:
    hosts = {"amqp://": "/", "amqp:///": "/", "amqp:///%2f": "/", "amqp:///shop": "shop", "amqp:///a%2Fb": "a/b"}
    assert {each: local_host(each) for each in hosts} == hosts and local_host(["amqp:///shop"]) == "shop"
    assert local_host("amqp:///a/b") is local_host(REMOTE) is local_host(5) is None
    within = {**VALUE, "dest-uri": "amqp:///v", "dest-queue": "a"}
    check_parameter(SHOVEL, within)
    with pytest.raises(ValueError, match="both 'a' of this cluster"):
        check_parameter(SHOVEL, {**within, "src-uri": "amqp:///v"})


@pytest.mark.parametrize(("keys", "text"), WRONG)
def test_what_is_no_shovel_is_refused(keys: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError) as found:
        check_parameter(SHOVEL, {**VALUE, **keys})
    assert text in str(found.value) and "secret" not in str(found.value)


def test_what_is_missing_is_named() -> None:
    for key in VALUE:
        value = {name: each for name, each in VALUE.items() if name != key}
        if key == "dest-queue":
            check_parameter(SHOVEL, value)
            with pytest.raises(ValueError, match="within one cluster a dest-queue or a dest-exchange is wanted"):
                check_parameter(SHOVEL, {**value, "dest-uri": "amqp://"})
            continue
        with pytest.raises(ValueError, match=key):
            check_parameter(SHOVEL, value)


def test_what_is_a_shovel() -> None:
    more = {"src-prefetch-count": 1, "src-delete-after": "queue-length", "reconnect-delay": 0.5, "src-queue-args": {}}
    check_parameter(SHOVEL, {**VALUE, **more, "dest-publish-properties": dict.fromkeys(("priority",), 1)})
    assert "headers" not in PROPERTIES
    for local in ("amqp://", "amqp:///", "amqp:///%2F", ["amqp:///%2f"]):
        check_parameter(SHOVEL, {**VALUE, "src-uri": local})
        assert addresses(local) == []
    assert addresses(REMOTE) == [REMOTE] and addresses([REMOTE, "amqps://b"]) == [REMOTE, "amqps://b"]


@pytest.mark.parametrize("name", ["federation-upstream", "federation-upstream-set", "vhost-limits", "colour", ""])
def test_other_components_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValueError, match=f"component '{name}': ..."):
        check_component(name)


# ---- requests


@pytest.fixture
def house() -> House:
    return House()


def put(house: House, name: str = "s", component: str = SHOVEL, keys: dict[str, Any] | None = None) -> Any:
    return house.ask("parameter.set", component=component, name=name, value={**VALUE, **(keys or {})})


def test_a_parameter_comes_changes_and_goes_and_backups_follow(house: House) -> None:
    assert put(house) == {}
    (first,) = house.ask("parameter.list")
    assert {**first, "uid": 0} == {"component": SHOVEL, "vhost": "/", "name": "s", "value": VALUE, "uid": 0}
    backup = house.broker.backup()
    assert backup.vhost.configuration.settings.get(Key(SHOVEL, "/", "s")) == VALUE
    assert backup.configurations.snapshot() == house.broker.configurations.snapshot()
    replies: list[Any] = []
    for method in ("shovel.list", "shovel.report", "parameter.clear"):
        Management(backup).request(method, {"component": SHOVEL, "name": "s", "shovels": []}, replies.append)
    assert replies[0]["result"][0]["reason"] == "this broker is a backup, and shovels run beside the primary"
    assert [each["code"] for each in replies[1:]] == [320, 320]
    assert put(house) == {} and house.ask("parameter.list") == [first], "the same again is the same"
    put(house, keys={"src-prefetch-count": 5})
    assert "another one now" in house.ask("parameter.clear", component=SHOVEL, name="s", uid=first["uid"])
    (second,) = house.ask("parameter.list")
    assert house.ask("parameter.clear", component=SHOVEL, name="s", uid=second["uid"]) == {}
    assert house.ask("parameter.list") == []
    assert house.broker.backup().vhost.configuration.settings.get(Key(SHOVEL, "/", "s")) is None
    assert house.ask("parameter.clear", component=SHOVEL, name="s") == "no shovel 's'"


def test_requests_that_are_refused(house: House) -> None:
    assert "component 'federation-upstream': federation by" in put(house, component="federation-upstream")
    assert "no virtual host 'v'" in house.ask("parameter.set", component=SHOVEL, name="s", vhost="v", value=VALUE)
    assert "value is 5, wanted an object" in house.ask("parameter.set", component=SHOVEL, name="s", value=5)
    assert "shovel 's': src-queue" in put(house, keys={"src-queue": 5})
    for number in range(PARAMETERS_MAX):
        assert put(house, f"s{number}") == {}
    assert f"{PARAMETERS_MAX} of this component are there" in put(house, "more")
    assert put(house, "s0", keys={"src-queue": "other"}) == {}


def test_the_state_of_a_shovel_is_what_was_reported_lately(house: House) -> None:
    now = [10_000_000]
    house.broker.clocks = lambda: (0, now[0])
    put(house)
    (item,) = house.ask("shovel.list")
    assert item["state"] == "terminated" and "no qpid-shovel has reported" in item["reason"]
    assert [each["name"] for each in house.ask("shovel.report", shovels=[])] == ["s"]
    assert house.ask("shovel.list")[0]["state"] == "starting", "it was told"
    (found,) = house.ask("parameter.list")
    report = {"name": "s", "uid": found["uid"], "state": "running", "source": "h:1", "moved": 5, "pending": 1}
    house.ask("shovel.report", shovels=[report, {**report, "name": "gone"}])
    (told,) = house.ask("shovel.report", shovels=[report])
    assert "value" not in told and told["uid"] == found["uid"], "it has the value"
    house.ask("shovel.report", shovels=[report, {**report, "name": "gone"}])
    known = {"name": "s", "vhost": "/", "state": "running", "reason": "", "source": "h:1", "destination": ""}
    assert house.ask("shovel.list") == [{**known, "moved": 5, "pending": 1}]
    put(house, keys={"src-prefetch-count": 7})
    assert house.ask("shovel.list")[0]["state"] == "starting", "the report was of the former one"
    now[0] += int(SILENCE * 1e6)
    assert "no qpid-shovel has reported" in house.ask("shovel.list")[0]["reason"]


def test_a_restart_is_told_until_it_is_reported(house: House) -> None:
    """So an answer that is lost loses no restart, and one that is told twice makes no two."""
    now = [10_000_000]
    house.broker.clocks = lambda: (0, now[0])
    put(house)
    assert "no qpid-shovel has reported" in house.ask("shovel.restart", name="s")
    (told,) = house.ask("shovel.report", shovels=[])
    report = {"name": "s", "uid": told["uid"], "restarts": told["restarts"], "state": "running"}
    assert told["restarts"] == 0 and "value" not in house.ask("shovel.report", shovels=[report])[0]
    assert house.ask("shovel.restart", name="s") == {}
    for _ in range(2):
        (told,) = house.ask("shovel.report", shovels=[report])
        assert told["restarts"] == 1 and told["value"] == VALUE, "the value is that of another one"
    assert "value" not in house.ask("shovel.report", shovels=[{**report, "restarts": 1}])[0]
    assert house.ask("shovel.restart", name="none") == "no shovel 'none'"
    assert "no virtual host 'v'" in house.ask("shovel.restart", name="s", vhost="v")
    put(house, keys={"src-prefetch-count": 7})
    assert house.ask("shovel.report", shovels=[])[0]["restarts"] == 0, "that is a new one"
    replies: list[Any] = []
    Management(house.broker.backup()).request("shovel.restart", {"name": "s"}, replies.append)
    assert replies[0]["code"] == 320


def test_restarts_are_remembered_of_what_is_there_only(house: House) -> None:
    management = house.management
    house.ask("shovel.report", shovels=[])
    for count in range(1, 20):
        put(house, keys={"src-prefetch-count": count})
        house.ask("shovel.restart", name="s")
    method: Any = management._methods["shovel.restart"]
    assert len(method.__self__._restarts) == 1


@pytest.mark.parametrize(
    "shovels",
    [
        None,
        {},
        [5],
        [{}] * (PARAMETERS_MAX + 1),
        [{"name": "s", "state": "idle"}],
        [{"name": "s", "state": "running", "moved": -1}],
        [{"name": "s", "state": "running", "uid": 1 << 64}],
        [{"name": "s", "state": "running", "restarts": "1"}],
        [{"name": "s", "state": "running", "reason": 5}],
        [{"name": "\n", "state": "running"}],
    ],
)
def test_a_wrong_report_is_refused(house: House, shovels: Any) -> None:
    assert "wanted" in house.ask("shovel.report", shovels=shovels)


def test_a_long_reason_is_cut(house: House) -> None:
    put(house)
    (found,) = house.ask("parameter.list")
    report = {"name": "s", "uid": found["uid"], "state": "terminated", "reason": "r" * 100_000}
    house.ask("shovel.report", shovels=[report])
    assert len(house.ask("shovel.list")[0]["reason"]) == 500
