"""What happens to the clients' connections.  A scenario ends when its fault is over and everybody has been served.

A broker that it leaves dead is brought back by `Scene.whole`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.faults.load import Load
from tests.faults.scene import Scene
from tests.support.fault_proxy import Entrance, Way
from tests.support.wait import wait_for

Scenario = Callable[[Scene, Load], None]


def kill(scene: Scene, load: Load) -> None:
    """kill -9 of the broker that serves."""
    old = scene.active()
    scene.kill(old)
    scene.relocated(old)
    load.run_on()


def pause(scene: Scene, load: Load) -> None:
    """SIGSTOP: the kernel goes on to take what clients send.  The broker wakes when another one serves."""
    old = scene.active()
    scene.pause(old)
    scene.relocated(old)
    load.run_on()
    scene.resume(old)
    load.run_on()


def stall(scene: Scene, load: Load) -> None:
    """SIGSTOP until every client has given the broker up; then it wakes, and no other broker has replaced it."""
    old, losses = scene.active(), load.losses()
    clients = min(len(load.clients), scene.proxies[old].connections)  # one whose connecting was slow may be elsewhere
    scene.pause(old)
    _beyond(load.losses, losses + clients - 1, "losses that were noticed")
    scene.resume(old)
    load.run_on()


def cut(scene: Scene, load: Load) -> None:
    """Resets, orderly ends, and resets in quick succession."""
    proxy = scene.proxies[scene.active()]
    for reset in (True, False):
        proxy.cut(reset)
        load.run_on(30)
    for _ in range(10):
        before = proxy.accepted  # of before the cut: all may be back when it returns
        proxy.cut()
        _beyond(lambda: proxy.accepted, before, "connections")
    load.run_on(30)


def _beyond(count: Callable[[], int], before: int, what: str) -> None:
    wait_for(lambda: count() > before, 60, f"more than {before} {what}")


def _shut(entrance: Entrance) -> Scenario:
    def shut(scene: Scene, load: Load) -> None:
        proxy = scene.proxies[scene.active()]
        enough = load.attempts() + 2 * len(load.clients)
        proxy.let(entrance)
        proxy.cut()
        _beyond(load.attempts, enough, "attempts to connect")
        proxy.let(Entrance.OPEN)
        load.run_on()

    shut.__doc__ = f"No client gets in for a while where all were: {entrance.value}."
    return shut


def _vanish(way: Way) -> Scenario:
    def vanish(scene: Scene, load: Load) -> None:
        scene.proxies[scene.active()].vanish(way)
        load.run_on()

    vanish.__doc__ = f"Packets vanish, no process is told: {way.name}."
    return vanish


def hold(scene: Scene, load: Load) -> None:
    """A second without packets each way, within what a heartbeat allows: nothing may be lost or sent again."""
    proxy = scene.proxies[scene.active()]
    losses = load.losses()
    proxy.hold()
    wait_for(lambda: all(sender.publisher.unsettled() > 20 for sender in load.senders), 60, "a window that fills")
    proxy.release()
    load.run_on()
    assert load.losses() == losses


def slow(scene: Scene, load: Load) -> None:
    """A line of 300 KB/s a connection and 20 ms each way."""
    proxy = scene.proxies[scene.active()]
    proxy.slow(rate=300_000, delay=0.02)
    load.run_on(50)
    proxy.slow()
    load.run_on(30)


def snap_to_server(scene: Scene, load: Load) -> None:
    """The connection ends inside a method, a header and a body on their way to the broker."""
    _snap(scene, load, Way.TO_SERVER, ((1, 3, False), (2, 9, False), (3, 100, False), (1, 8, True), (3, 10, True)))


def snap_to_client(scene: Scene, load: Load) -> None:
    """The connection ends inside confirms and deliveries."""
    _snap(scene, load, Way.TO_CLIENT, ((1, 3, False), (2, 9, False), (3, 12, False), (1, 8, True), (4, 1, True)))


def _snap(scene: Scene, load: Load, way: Way, cuts: tuple[tuple[int, int, bool], ...]) -> None:
    proxy = scene.proxies[scene.active()]
    for frame, octets, reset in cuts:
        ended = load.ended()  # it may hit one that is on its way back and not connected yet
        snap = proxy.snap(way, frame, octets, reset)
        assert snap.done.wait(30)
        _beyond(load.ended, ended, "losses and failed attempts that were noticed")
        load.run_on(20)


def snap_handshake(scene: Scene, load: Load) -> None:
    """The first to come back is cut off inside start, tune, open-ok, channel.open-ok, confirm.select-ok."""
    proxy = scene.proxies[scene.active()]
    for frame in range(1, 6):
        proxy.cut()
        snap = proxy.snap(Way.TO_CLIENT, frame, 5)
        assert snap.done.wait(30)
        load.run_on(20)


def kill_on_a_bad_line(scene: Scene, load: Load) -> None:
    """kill -9 while everything is slow and the next one to serve is hard to reach."""
    old = scene.active()
    for name, proxy in scene.proxies.items():
        proxy.slow(delay=0.03)
        if name != old:
            proxy.let(Entrance.DROP)
    scene.kill(old)
    scene.relocated(old)
    for proxy in scene.proxies.values():
        proxy.let(Entrance.OPEN)
    load.run_on(50)
    for proxy in scene.proxies.values():
        proxy.slow()
    load.run_on(30)


EVERYWHERE: Final[Mapping[str, Scenario]] = {
    "kill": kill,
    "pause": pause,
    "cut": cut,
    "refuse": _shut(Entrance.REFUSE),
    "hang": _shut(Entrance.HANG),
    "drop": _shut(Entrance.DROP),
    "vanish": _vanish(Way.BOTH),
    "vanish-to-server": _vanish(Way.TO_SERVER),
    "vanish-to-client": _vanish(Way.TO_CLIENT),
    "hold": hold,
    "slow": slow,
    "snap-to-server": snap_to_server,
    "snap-to-client": snap_to_client,
    "snap-handshake": snap_handshake,
    "kill-on-a-bad-line": kill_on_a_bad_line,
}
"""Scenarios that need nothing but a scene."""
