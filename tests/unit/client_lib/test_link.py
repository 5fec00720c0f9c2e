"""Connecting and being lost, over real sockets; brokers misbehave on command."""

import functools
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from client_lib.connecting import lookup
from client_lib.errors import AuthenticationFailure, ConnectError, HeartbeatTimeout
from client_lib.link.link import LinkState
from client_lib.link.watchdog import Watchdog
from client_lib.urls.url import PUBLIC_URL
from tests.support.wait import wait_for
from tests.unit.client_lib.link_lab import CALM, LinkLab, links

__all__ = ["links"]  # a fixture

OVERLAP = 0.15
SOON = 20.0
"""Seconds: much less than `connect_timeout`, on a loaded machine, too."""


class Names:
    """A name server in place of the system's; a name with None is looked up until the end of the test."""

    def __init__(self) -> None:
        self.records: dict[str, list[str] | None] = {}
        self.asked: list[str] = []
        self.end = threading.Event()

    def __call__(self, host: str, *_: Any) -> Sequence[Any]:
        self.asked.append(host)
        ips = self.records.get(host, [])
        if ips is None:
            self.end.wait(30)
        if not ips:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ips]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(lookup, "getaddrinfo", names)
    yield names
    names.end.set()


def outage(lab: LinkLab) -> float:
    """Seconds, of the latest fail-over."""
    wait_for(lambda: lab.times("disconnected") and lab.times("connected")[-1] > lab.times("disconnected")[-1])
    return lab.times("connected")[-1] - lab.times("disconnected")[-1]


# -- several attempts at a time


def test_the_first_attempt_after_a_loss_is_made_without_a_pause(links: LinkLab) -> None:
    brokers = [links.broker() for _ in range(5)]
    links.connected(*brokers, **CALM)
    for broker in brokers[:4]:
        broker.kill()
        outage(links)
    lost, begun = links.times("disconnected"), links.times("connect")
    assert min(next(b - gone for b in begun if b > gone) for gone in lost) < 0.1


def test_one_that_accepts_and_hangs_costs_the_overlap(links: LinkLab) -> None:
    first, hung, good = links.broker(), links.broker("hang"), links.broker()
    links.connected_to(first, hung, good)
    first.kill()
    assert OVERLAP <= outage(links) < SOON
    assert "timeout" not in links.results()


def test_one_whose_syn_is_swallowed_costs_the_overlap(links: LinkLab) -> None:
    first, good = links.broker(), links.broker()
    links.connected_to(first, links.swallower(), good)
    first.kill()
    assert OVERLAP <= outage(links) < SOON


def test_a_single_address_whose_syn_was_swallowed_is_tried_again_soon(links: LinkLab) -> None:
    address = links.swallower()
    links.link(address)
    wait_for(lambda: len(links.times("connect")) == 2)
    links.drain(address)
    listener = links.sockets[0]
    listener.settimeout(30)
    listener.accept()[0].close()


def test_a_single_broker_that_takes_connections_and_hangs_gets_three(links: LinkLab) -> None:
    broker = links.broker("hang")
    links.link(broker, connect_overlap=0.03)
    wait_for(lambda: broker.accepted == 3)
    first = links.times("connect")[0]
    wait_for(lambda: time.monotonic() - first > 0.5)
    assert broker.accepted == 3


def test_the_loser_that_is_nearly_open_is_closed_politely(links: LinkLab) -> None:
    stalls, good = links.broker("stall"), links.broker()
    links.connected(stalls, good)
    peer = stalls.peers[0]
    with links.store.lock:
        stalls.mode = "normal"
        peer._on_connection_open(0, None)
    wait_for(lambda: "Connection.Close" in links.store.methods(stalls.name))


def test_the_loser_that_hangs_is_ended(links: LinkLab) -> None:
    hung, good = links.broker("hang"), links.broker()
    links.connected(hung, good)
    wait_for(lambda: hung.peers and hung.peers[0].gone)


def test_what_an_ended_attempt_still_says_is_ignored(links: LinkLab) -> None:
    hung, good = links.broker("stall"), links.broker()
    link = links.connected(hung, good)
    wait_for(lambda: hung.peers[0].gone)
    assert link.state is LinkState.CONNECTED and str(link.address) == good.url
    assert len(links.times("disconnected")) == 0


def test_an_attempt_in_the_handshake_has_its_timeout(links: LinkLab) -> None:
    links.link(links.broker("stall"), connect_timeout=0.3, connect_overlap=0.3)
    wait_for(lambda: "timeout" in links.results())


def test_refusals_of_the_others_do_not_wait_for_one_that_hangs(links: LinkLab) -> None:
    first, hung, backup = links.broker(), links.broker("hang"), links.broker("refuse")
    link = links.connected_to(first, hung, backup)
    first.kill()
    wait_for(lambda: backup.accepted >= 3)
    backup.mode = "normal"
    wait_for(lambda: link.state is LinkState.CONNECTED)


def test_an_address_that_cannot_be_connected_to_is_a_failed_attempt(links: LinkLab) -> None:
    broker = links.broker()
    link = links.connected("255.255.255.255:1", broker, **CALM)
    assert str(link.address) == broker.url and links.results() == ["unreachable"]


# -- names


def test_each_record_is_an_attempt(links: LinkLab, names: Names) -> None:
    broker = links.broker()
    hung = socket.create_server(("127.0.0.2", broker.port))
    links.sockets.append(hung)
    names.records["cluster"] = ["127.0.0.2", "127.0.0.1"]
    link = links.connected(f"cluster:{broker.port}")
    tried = [event["attrs"]["ip"] for event in links.events if event["kind"] == "connect"]
    assert tried[:2] == ["127.0.0.2", "127.0.0.1"], "more when the second is slow"
    took = links.times("connected")[0] - links.times("connect")[0]
    assert OVERLAP <= took < SOON and link.address and link.address.host == "cluster"


def test_a_name_that_changes_is_followed(links: LinkLab, names: Names) -> None:
    first = links.broker()
    names.records["broker"] = ["127.0.0.1"]
    links.connected(f"broker:{first.port}")
    second = socket.create_server(("127.0.0.3", first.port))
    second.settimeout(30)
    links.sockets.append(second)
    names.records["broker"] = ["127.0.0.3"]
    first.kill()
    second.accept()[0].close()


def test_a_name_server_that_hangs_costs_the_overlap(links: LinkLab, names: Names) -> None:
    broker = links.broker()
    names.records["broker"] = ["127.0.0.1"]
    links.connected(f"broker:{broker.port}")
    names.records["broker"] = None
    broker.drop()
    assert outage(links) < SOON


def test_a_name_that_does_not_exist_is_said(links: LinkLab, names: Names) -> None:
    link = links.link("nowhere", reconnect=False)
    wait_for(lambda: link.state is LinkState.FAILED)
    assert isinstance(link.error, ConnectError) and "Name or service not known" in str(link.error)


# -- what brokers tell


def test_the_list_of_the_broker_is_used_first(links: LinkLab) -> None:
    first, told, given = links.broker(), links.broker(), links.broker()
    first.properties = {PUBLIC_URL: f"amqp:tcp:{told.url},{first.url}"}
    link = links.connected(first, given, **CALM)
    first.kill()
    wait_for(lambda: link.failovers == 1 and link.state is LinkState.CONNECTED)
    assert str(link.address) == told.url


def test_a_backup_that_refuses_tells_as_well(links: LinkLab) -> None:
    backup, told = links.broker("refuse"), links.broker()
    backup.properties = {PUBLIC_URL: f"{told.url}"}
    link = links.connected(backup, reconnect_interval_min=1, reconnect_interval_max=1)
    assert str(link.address) == told.url


def test_a_wrong_login_ends_all_attempts(links: LinkLab) -> None:
    hung, denies = links.broker("hang"), links.broker("deny")
    link = links.link(hung, denies, connect_timeout=0.5)
    wait_for(lambda: link.state is LinkState.FAILED)
    assert isinstance(link.error, AuthenticationFailure) and "403" in str(link.error)
    wait_for(lambda: hung.peers[0].gone)


def test_a_wrong_login_while_reconnecting_is_tried_again(links: LinkLab) -> None:
    first, second = links.broker(), links.broker()
    link = links.connected(first, second, **CALM)
    second.mode = "deny"
    first.kill()
    wait_for(lambda: second.accepted > 3)
    assert link.state is LinkState.CONNECTING
    second.mode = "normal"
    wait_for(lambda: link.state is LinkState.CONNECTED)


def test_a_user_that_the_broker_offers_no_mechanism_for_is_told_so(links: LinkLab) -> None:
    link = links.link(links.broker(), sasl_mechanisms="EXTERNAL")
    wait_for(lambda: link.state is LinkState.FAILED)
    assert isinstance(link.error, AuthenticationFailure) and "EXTERNAL" in str(link.error)


# -- silence


def test_a_broker_that_falls_silent_is_given_up(links: LinkLab) -> None:
    first, second = links.broker(), links.broker()
    links.connected(first, second, **CALM)
    first.stop_answering()
    began = time.monotonic()
    wait_for(lambda: links.times("disconnected"))
    assert 1.0 < links.times("disconnected")[0] - began < SOON
    assert outage(links) < SOON


def test_a_broker_that_fell_silent_comes_last_from_then_on(links: LinkLab) -> None:
    first, second, third = links.broker(), links.broker(), links.broker()
    link = links.connected(first, second, third, **CALM)
    first.stop_answering()
    wait_for(lambda: link.failovers == 1 and link.state is LinkState.CONNECTED)
    second.kill()
    wait_for(lambda: link.failovers == 2 and link.state is LinkState.CONNECTED)
    assert links.peers("connect") == [first.url, second.url, third.url]


@pytest.mark.parametrize(("asked", "offered"), [(2, 1), (2, 60), (2, 0)])
def test_silence_is_judged_by_our_interval(
    links: LinkLab, monkeypatch: pytest.MonkeyPatch, asked: int, offered: int
) -> None:
    intervals: list[float] = []

    class Noted(Watchdog):
        def __init__(self, interval: float, now: float, received: int) -> None:
            intervals.append(interval)
            super().__init__(interval, now, received)

    monkeypatch.setattr("client_lib.link.link.Watchdog", Noted)
    broker = links.broker()
    broker.heartbeat_offered = offered
    links.connected(broker, heartbeat=asked)
    wait_for(lambda: intervals == [asked])


def test_a_broker_that_steps_down_sends_us_to_its_successor(links: LinkLab) -> None:
    first, second, third = links.broker(), links.broker(), links.broker()
    link = links.connected(first, second, third, **CALM)
    first.shut(f"CONNECTION_FORCED - stepping down; the primary is {third.url}")
    wait_for(lambda: link.failovers == 1 and link.state is LinkState.CONNECTED)
    assert links.peers("connect") == [first.url, third.url]


def test_a_broker_without_heartbeats_is_not_judged_by_them(links: LinkLab) -> None:
    broker = links.broker()
    broker.heartbeat_offered, broker.beats = 0, False
    link = links.connected(broker, **CALM)
    peer = broker.peers[0]
    wait_for(lambda: broker.heartbeats >= 5)  # ours; more than two intervals
    assert link.failovers == 0 and not peer.gone


def test_heartbeats_are_sent_as_often_as_the_broker_wants(links: LinkLab) -> None:
    broker = links.broker()
    broker.heartbeat_offered = 1
    links.connected(broker, heartbeat=60)
    wait_for(lambda: broker.heartbeats >= 3)


def test_without_reconnect_silence_is_final(links: LinkLab) -> None:
    broker = links.broker()
    link = links.connected(broker, reconnect=False)
    broker.stop_answering()
    wait_for(lambda: link.state is LinkState.FAILED)
    assert isinstance(link.error, HeartbeatTimeout)


# -- the end


def test_shut_down_twice_tells_both(links: LinkLab) -> None:
    link = links.connected(links.broker())
    told: list[int] = []
    link.post(lambda: link.shut_down([], 1, lambda: told.append(1)))
    link.post(lambda: link.shut_down([], 1, lambda: told.append(2)))
    wait_for(lambda: sorted(told) == [1, 2])
    link.post(lambda: link.shut_down([], 1, link._loop.stop))
    wait_for(lambda: not links.links[0][1].is_alive())


@pytest.mark.parametrize("mode", ["hang", "stall", "refuse"])
def test_shut_down_while_connecting(links: LinkLab, mode: str) -> None:
    broker = links.broker(mode)
    link = links.link(broker)
    wait_for(lambda: broker.accepted >= 1)
    ended = threading.Event()
    link.post(lambda: link.shut_down([], 1, ended.set))
    assert ended.wait(30)
    wait_for(lambda: all(peer.gone for peer in broker.peers))
    assert not link._timers


def test_shut_down_does_not_leave_losers_behind(links: LinkLab) -> None:
    stalls, good = links.broker("stall"), links.broker()
    link = links.connected(stalls, good)
    ended = threading.Event()
    link.post(lambda: link.shut_down([], 0.5, ended.set))
    assert ended.wait(30)
    wait_for(lambda: stalls.peers[0].gone)


def test_nothing_happens_on_a_closed_loop(links: LinkLab) -> None:
    link = links.connected(links.broker())
    links.close()
    link.post(lambda: None)
    links.links.clear()


def test_jobs_posted_by_many_threads_are_all_done(links: LinkLab) -> None:
    link = links.connected(links.broker())
    done: list[int] = []

    def post(start: int) -> None:
        for number in range(start, start + 500):
            link.post(functools.partial(done.append, number))

    threads = [threading.Thread(target=post, args=(n * 500,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    wait_for(lambda: len(done) == 2000)
    assert sorted(done) == list(range(2000))
