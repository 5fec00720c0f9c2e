"""Virtual hosts in a cluster: a fail-over, a broker that joins, a copy of everything, what is put aside."""

from __future__ import annotations

import io
import random
from typing import Any

import pytest
from pamqp.commands import Confirm, Exchange, Queue

from ha.model.salvaged import Grade, Header, Record
from ha.qpid_ha.archive import Copy
from ha.salvage.copies import _Index, key_to_json, keys_from_json
from ha.salvage.lines import SalvageError, decode_header, decode_record, encode_header, encode_record
from qpidd_py.amqp.fields import encode_table
from qpidd_py.errors import LinkError
from qpidd_py.management.model import Management
from qpidd_py.store.archive import ArchiveError, encode_message, encode_object
from qpidd_py.store.archive import Header as ArchiveHeader
from qpidd_py.store.archive import decode_header as archive_header
from qpidd_py.store.archive import encode_header as encode_archive
from tests.support.slow import few
from tests.unit.broker.peer import Peer
from tests.unit.ha.broker_world import BrokerHost, BrokerWorld
from tests.unit.ha.test_archive_round_trip import Site

HOSTS = ("/", "x", "ä")


def ask(world: BrokerWorld, host: BrokerHost, method: str, **arguments: Any) -> Any:
    answers: list[Any] = []
    for _ in Management(host.broker).work(method, arguments, answers.append, None):
        pass
    world.until(lambda: bool(answers))
    assert answers[0]["ok"], answers
    return answers[0]["result"]


def contents(host: BrokerHost) -> dict[str, list[bytes]]:
    """What is in the queue `q` of each virtual host."""
    queues = {vhost.name: vhost.queues.get("q") for vhost in host.broker.vhosts}
    return {
        name: [bytes(message[5]) for message in queue.core.peek(1 << 20)]
        for name, queue in queues.items()
        if queue is not None
    }


@pytest.fixture
def world() -> BrokerWorld:
    """Each virtual host has a queue of the same name."""
    world = BrokerWorld("abc", heartbeat=1.0, slice_size=2000)
    world.cluster()
    for name in HOSTS[1:]:
        ask(world, world["a"], "vhost.add", name=name)
    for name in HOSTS:
        client = world["a"].client(name)
        client.do(Queue.Declare(queue="q"), Exchange.Declare(exchange="e"), Queue.Bind(queue="q", exchange="e"))
        client.do(Confirm.Select())
        for number in range(20):
            client.publish(f"{name}{number}".encode(), "", "e")
        world.until(lambda client=client: client.connection.channels[1].core.confirmed == 20)  # type: ignore[misc]
    return world


DEAD: Any = {"x-dead-letter-exchange": "amq.fanout"}
EXPECTED = {name: [f"{name}{number}".encode() for number in range(20)] for name in HOSTS}


def test_a_new_primary_serves_each_of_them(world: BrokerWorld) -> None:
    world["a"].kill()
    world.promote("b")
    world.agree()
    assert contents(world["b"]) == contents(world["c"]) == EXPECTED
    for name in HOSTS:
        (ok,) = world["b"].client(name).do(Queue.Declare(queue="q", passive=True))
        assert ok.message_count == 20
    stranger = Peer(world["b"].broker, opened=False, vhost="z")
    assert stranger.handshake()[-1].reply_code == 530


def test_a_broker_that_joins_gets_each_of_them(world: BrokerWorld) -> None:
    world["c"].kill()
    ask(world, world["a"], "vhost.delete", name="x")
    ask(world, world["a"], "vhost.add", name="z")
    world["a"].client("z").do(Queue.Declare(queue="q"))
    world["c"].boot()
    world.agree()
    assert contents(world["c"]) == {"/": EXPECTED["/"], "ä": EXPECTED["ä"], "z": []}


def test_one_that_was_away_gives_up_what_is_gone(world: BrokerWorld) -> None:
    """Deleted and made again: another one, with the same names in it."""
    world.cut("c", "a", "b")
    world.run(3.0)
    ask(world, world["a"], "vhost.delete", name="x")
    ask(world, world["a"], "vhost.add", name="x")
    world["a"].client("x").do(Queue.Declare(queue="q"))
    world.heal()
    world.agree()
    assert contents(world["c"])["x"] == []


def everything(host: BrokerHost) -> dict[tuple[str, str], list[bytes]]:
    queues = [queue for vhost in host.broker.vhosts for queue in vhost.queues.values()]
    return {(queue.host, queue.name): [bytes(each[5]) for each in queue.core.peek(1 << 20)] for queue in queues}


@pytest.mark.parametrize("seed", range(few(30)))
def test_histories_with_fail_overs(seed: int) -> None:
    """Virtual hosts come and go, brokers too; those that live are equal at the end, and nothing is half there."""
    rng = random.Random(seed)
    world = BrokerWorld("abc", heartbeat=1.0, slice_size=2000)
    world.cluster()
    primary = "a"
    for number in range(40):
        host = world[primary]
        names = host.broker.vhosts.names
        match rng.choice("aaddqqqqppppppkb"):
            case "a":
                name = rng.choice("xyz")
                if not host.broker.vhosts.is_deleted(name):
                    ask(world, host, "vhost.add", name=name)
            case "d" if len(names) > 1:
                host.broker.vhosts.delete(rng.choice(names[1:]))  # goes on with ticks
            case "q":
                name, arguments = rng.choice(names), rng.choice((DEAD, {}))
                found = host.broker.vhosts.get(name)
                assert found is not None
                if (queue := rng.choice("qr")) not in found.queues:
                    host.client(name).do(Queue.Declare(queue=queue, arguments=arguments))
                    host.client(name).do(Queue.Bind(queue=queue, exchange="amq.fanout"))
            case "p":
                client = host.client(rng.choice(names))
                client.publish(b"%d" % number, rng.choice("qr"), rng.choice(("", "amq.fanout")))
            case "k":
                world.all_ready()
                world[primary].kill()
                heir = rng.choice([name for name in "abc" if name != primary])
                world.promote(heir)
                world[primary].boot()
                primary = heir
                world.all_ready()
            case "b":
                backup = rng.choice([name for name in "abc" if name != primary])
                world.all_ready()
                world[backup].kill()
                world.run(0.3)
                world[backup].boot()
        world.run(rng.random() * 0.3)
    world.run(5.0)
    world.agree()
    expected = everything(world[primary])
    for name in "abc":
        assert everything(world[name]) == expected
        vhosts = world[name].broker.vhosts
        assert vhosts.names == [vhost.name for vhost in vhosts] == world[primary].broker.vhosts.names
        assert {key.host for key in world[name].broker.settings} <= {"", *vhosts.names}
        assert len(world[name].broker.engine.queues) == len(expected)


# ---- an archive


def site() -> Site:
    found = Site()
    for name in "xy":
        found.broker.vhosts.add(name)
    for vhost in found.broker.vhosts:
        queue = vhost.declare_queue(None, "q", True, False, False, {"x-max-length": 5})[0]
        vhost.declare_exchange("e", "fanout", True, False, False, {})
        vhost.bindings.bind("e", queue, b"", {})
        for number in range(3):
            found.publish(queue.core, f"{vhost.name}{number}".encode())
    return found


def lines_of(source: Site) -> list[str]:
    copy = Copy(source.backup, io.BytesIO(), True)  # type: ignore[arg-type]
    assert copy.hosts is (len(source.broker.vhosts) > 1)
    return [encode_object(payload).decode() for payload in copy.objects] + [
        encode_message(message).decode() for message in copy.messages()
    ]


def in_all(found: Site) -> dict[str, list[bytes]]:
    return {vhost.name: [each[5] for each in vhost.queues["q"].core.peek(99)] for vhost in found.broker.vhosts}


def test_a_copy_has_each_of_them() -> None:
    source, fresh = site(), Site()
    lines = lines_of(source)
    id = fresh.restore("begin")["id"]
    fresh.restore("lines", id=id, text="".join(lines))
    objects = sum('"object"' in line for line in lines)
    assert fresh.restore("end", id=id, objects=objects, messages=9)["messages"] == 9
    assert in_all(fresh) == in_all(source) == {name: [f"{name}{n}".encode() for n in range(3)] for name in "/xy"}
    again = fresh.broker.vhosts.get("x")
    assert again is not None and again.queues["q"].core.max_count == 5 and again.exchanges["e"].size == 1


def test_an_interrupted_restore_is_cleared_in_each_of_them() -> None:
    fresh = Site()
    id = fresh.restore("begin")["id"]
    fresh.restore("lines", id=id, text="".join(lines_of(site())))
    assert len(fresh.broker.vhosts) == 3
    assert fresh.restore("abandon")["again"]
    assert len(fresh.broker.vhosts) == 1 and not fresh.broker.engine.queues and not len(fresh.broker.settings)


def test_an_archive_that_lacks_a_virtual_host_is_refused() -> None:
    lines = [line for line in lines_of(site()) if '"kind":"vhost"' not in line or '"host":"x"' not in line]
    fresh = Site()
    id = fresh.restore("begin")["id"]
    with pytest.raises(LinkError, match="virtual host 'x' is not in the archive"):
        fresh.restore("lines", id=id, text="".join(lines))


def test_a_setting_that_backups_would_not_follow_is_refused() -> None:
    setting = {"op": "setting.put", "kind": "vhost", "host": "x" * 200, "name": "", "value": {}}
    fresh = Site()
    id = fresh.restore("begin")["id"]
    with pytest.raises(LinkError, match="expected 1 to 128 octets"):
        fresh.restore("lines", id=id, text=encode_object(encode_table(setting)).decode())
    assert len(fresh.broker.vhosts) == 1


def test_a_cluster_with_a_virtual_host_is_not_empty() -> None:
    fresh = Site()
    fresh.broker.vhosts.add("x")
    with pytest.raises(LinkError, match="not empty: it has vhost 'x'"):
        fresh.restore("begin")


def test_one_that_is_made_while_a_copy_is_made() -> None:
    source = Site()
    source.publish(source.queue("q"), b"m")
    id = source.backup("begin", messages=True)["id"]
    source.broker.vhosts.add("x")
    with pytest.raises(LinkError, match="a virtual host was made while this was copied"):
        for _ in range(9):
            source.backup("next", id=id)


def test_an_older_version_refuses_an_archive_with_other_virtual_hosts() -> None:
    header = ArchiveHeader("t", "b", "1.2", True)
    assert b'"archive":1' in encode_archive(header) and archive_header(encode_archive(header)) == header
    with_hosts = ArchiveHeader("t", "b", "1.2", True, hosts=True)
    assert b'"archive":2' in encode_archive(with_hosts) and archive_header(encode_archive(with_hosts)) == with_hosts
    with pytest.raises(ArchiveError, match="archive of format 3"):
        archive_header(encode_archive(with_hosts).replace(b":2,", b":3,", 1))


# ---- what is put aside


def record(host: str, id: int) -> Record:
    return Record("a", id, "q", Grade.CONFIRMED, False, 0, b"", b"q", b"h", b"b", host)


def test_a_message_that_is_put_aside_keeps_its_virtual_host() -> None:
    for host in HOSTS:
        assert decode_record(encode_record(record(host, 7))) == record(host, 7)
    assert b"vhost" not in encode_record(record("/", 7))
    header = Header("a", "id", "b", 1, 3, hosts=True)
    assert decode_header(encode_header(header, "now")) == (header, "now")
    assert b'"salvage":2' in encode_header(header, "now")  # an older version refuses it
    with pytest.raises(SalvageError, match="salvage file of format 3"):
        decode_header(encode_header(header, "now").replace(b":2,", b":3,", 1))


def test_messages_of_two_virtual_hosts_are_found_in_one_file() -> None:
    """Each queue is in order, both together are not."""
    records = [record("/", 5), record("/", 9), record("x", 3), record("x", 7)]
    index = _Index(0, enumerate(records, 1))
    keys = keys_from_json([key_to_json(each) for each in records])
    assert list(index.numbers(keys)) == [1, 2, 3, 4]
    assert key_to_json(records[0]) == ["a", "0.5", "q"]  # as of older versions
    assert list(index.numbers(keys_from_json([["a", "0.3", "q"], ["a", "0.5", "q", "x"]]))) == []
