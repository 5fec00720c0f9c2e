"""Fuzzers for the link between brokers: a hostile backup against a primary, and a hostile primary against a backup."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from ha.model.protocol import VERSION, Kind, encode_control, encode_drop, encode_held, encode_merge
from qpidd_py.core import encode_ids, link_frame
from tests.fuzz.frames import Material, hostile_frame, material
from tests.fuzz.hostile import mutated, spoiled, to_json
from tests.fuzz.speech import Peer, serve_handshake, serve_requests
from tests.fuzz.target import Target
from tests.fuzz.watched import USER, Watched
from tests.support.process import HeldPort

ID: Final = "f" * 32
HELLO: Final[dict[str, Any]] = {
    "op": "hello", "id": ID, "name": "x", "address": "@address@", "instance": "run-x", "state": "joining",
    "epoch": 0, "leader": "", "position": 0, "whole": False, "doubt": False, "stood": False, "isolated": False,
    "writer": "", "heard": {},
    "version": VERSION, "replicate": "all",
}  # fmt: skip


class Spoken(NamedTuple):
    """A conversation: frames as (kind, position, body)."""

    frames: list[tuple[int, int, bytes]]
    raw: int
    """Seed for octets that are spoiled on the way; 0: none are."""
    pieces: int
    """Octets of one write; 0: all at once."""

    def octets(self, address: str) -> bytes:
        """`address` is said where a member has to name its own."""
        own = address.encode()
        frames = ((kind, position, body.replace(b"@address@", own)) for kind, position, body in self.frames)
        whole = b"".join(link_frame(*frame) for frame in frames)
        return spoiled(Random(self.raw), whole) if self.raw else whole


def _control(rng: Random, document: dict[str, Any]) -> tuple[int, int, bytes]:
    return Kind.CONTROL, 0, to_json(mutated(rng, document, 2))


def _conversation(rng: Random, frames: list[tuple[int, int, bytes]]) -> Spoken:
    """Some of these frames in this order, some spoiled."""
    found: list[tuple[int, int, bytes]] = []
    for frame in frames:
        if rng.random() < 0.93:
            found.append(hostile_frame(rng, frame) if rng.random() < 0.25 else frame)
        if rng.random() < 0.1:
            found.append(rng.choice(frames))
    if rng.random() < 0.1:
        rng.shuffle(found)
    raw = rng.getrandbits(32) if rng.random() < 0.1 else 0
    return Spoken(found, raw, rng.choice([0, 0, 0, 7, 1000]))


# ---- a hostile backup ------------------------------------------------------------------------------------------------


def _backup(rng: Random) -> Spoken:
    hello = (Kind.CONTROL, 0, to_json(HELLO)) if rng.random() < 0.6 else _control(rng, HELLO)
    ids = encode_ids([(1 << 48 | 1, 1 << 48 | 9)])
    frames = [
        hello,
        (Kind.LACK, 0, encode_held(1, 1 << 48 | 2, ids)),
        (Kind.HELD, 0, encode_held(1, 1 << 48 | 2, ids)),
        _control(rng, {"op": "limited", "reason": "memory"}),
        _control(rng, {"op": "alive", "number": 1}),
        _control(rng, {"op": "still-there", "number": 1}),
        _control(rng, {"op": "held-end"}) if rng.random() < 0.3 else (Kind.CONTROL, 0, encode_control("held-end")),
        *[(Kind.CREDIT, 0, b"")] * rng.randrange(4),
        (Kind.HEARTBEAT, 0, to_json(mutated(rng, {"clock": 1.5}, 1))),
        _control(rng, {"op": "complete"}) if rng.random() < 0.3 else (Kind.CONTROL, 0, encode_control("complete")),
        (Kind.ACK, 1 << 48 | 5, b""),
        _control(rng, {"op": "refused", "reason": "no", "twin": False}),
    ]
    return _conversation(rng, frames)


class Primary:
    """Each input is a link of its own, of a broker whose address is a member's."""

    def __init__(self, watched: Watched, address: str) -> None:
        self._watched, self._address = watched, address

    def check(self, spoken: Spoken) -> None:
        properties = {"qpid.ha-backup": {"id": ID, "instance": "run-x"}}
        octets = spoken.octets(self._address)
        with Peer(self._watched.broker.port, *USER, properties) as peer:
            with contextlib.suppress(OSError):  # it may be closed before all is said
                for at in range(0, len(octets), spoken.pieces or len(octets) or 1):
                    peer.send(octets[at : at + (spoken.pieces or len(octets))])
                peer.socket.shutdown(socket.SHUT_WR)
            peer.drain()
        self._watched.judge()
        self._watched.promote()

    def finish(self) -> None:
        self._watched.judge_all()


@contextlib.contextmanager
def _primary(folder: Path) -> Iterator[Primary]:
    held = HeldPort()
    address = f"127.0.0.1:{held.port}"
    try:
        with Watched(folder, others=address) as watched:
            watched.promote()
            watched.fill()
            yield Primary(watched, address)
    finally:
        held.release()


# ---- a hostile primary -----------------------------------------------------------------------------------------------

VIEW: Final[dict[str, Any]] = {
    "id": ID, "name": "x", "address": "@address@", "state": "active", "epoch": 1, "leader": ID,
    "position": 1 << 48 | 20, "whole": True, "primary": "@address@", "doubt": False, "stood": False,
    "isolated": False, "instance": "run-x",
    "writer": "", "heard": {}, "score": 1, "ports": [5672],
    "in_sync": {"epoch": 1, "leader": ID, "version": 1, "brokers": [],
                "members": [{"id": ID, "name": "x", "address": "@address@", "instance": "run-x"}]},
}  # fmt: skip
WELCOME: Final[dict[str, Any]] = {
    "op": "welcome", "id": ID, "name": "x", "address": "@address@", "instance": "run-x", "epoch": 1, "version": VERSION,
    "lineage": [[1, ID, 0]],
}  # fmt: skip


class Led(NamedTuple):
    """What a hostile primary answers to questions, and says over the link."""

    view: bytes
    spoken: Spoken


def _leader(rng: Random) -> Led:
    found: Material = material()
    view = to_json({"ok": True, "result": mutated(rng, VIEW, 2) if rng.random() < 0.3 else VIEW})
    cut = {"op": "cut", "cut": found.position, "in_sync": VIEW["in_sync"]}
    frames = [
        (Kind.CONTROL, 0, to_json(WELCOME)) if rng.random() < 0.6 else _control(rng, WELCOME),
        (Kind.LACK, 0, encode_held(1, 1 << 48 | 1, b"")) if rng.random() < 0.1 else (Kind.HEARTBEAT, 0, b""),
        (Kind.CONTROL, 0, to_json(cut)) if rng.random() < 0.7 else _control(rng, cut),
        (Kind.SNAPSHOT, found.position, found.snapshot),
        (Kind.DROP, 0, encode_drop(found.queue, encode_ids([(1 << 48 | 1, 1 << 48 | 3)]))),
        *((Kind.SLICE, found.position, records) for records in found.slices),
        (Kind.MERGE, 0, encode_merge(found.queue)),
        *((Kind.BATCH, position, records) for position, records in found.batches),
        _control(rng, {"op": "alive", "number": 1}),
        (Kind.CONTROL, 0, encode_control("caught-up")) if rng.random() < 0.8 else _control(rng, {"op": "caught-up"}),
        *((Kind.BATCH, position, records) for position, records in found.batches[1:]),
        (Kind.HEARTBEAT, found.position, to_json(mutated(rng, {"clock": 1.5}, 1))),
        _control(rng, {"op": "still-there", "number": 1}),
        (Kind.LOGINS, 0, to_json(mutated(rng, {"ha": "00" * 32, "anna": "11" * 32}, 1))),
    ]
    if rng.random() < 0.1:
        frames.append(_control(rng, {"op": "refused", "reason": "no"}))
    return Led(view, _conversation(rng, frames))


class Leader:
    """Listens at a member's address, says what it should, and waits until the backup has heard all of it."""

    def __init__(self, watched: Watched, listener: socket.socket) -> None:
        self._watched, self._listener = watched, listener
        self._address = f"127.0.0.1:{listener.getsockname()[1]}"
        self._led: Led | None = None
        self._heard = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def check(self, led: Led) -> None:
        self._heard.clear()
        self._led = led
        # A backup that does not take this one for a primary opens no link: then the answer is all there is.
        heard = self._heard.wait(0.3 if led.view != to_json({"ok": True, "result": VIEW}) else 1.5)
        self._led = None
        self._watched.judge()
        if not heard:
            self._watched.begin_again()  # it may have granted an epoch, and follows nobody below that

    def finish(self) -> None:
        self._watched.judge()
        state = self._watched.state()
        assert state["status"], state

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:  # closed: the scene has ended
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(20)
        with sock, contextlib.suppress(OSError, AssertionError):
            properties, rest = serve_handshake(sock)
            led = self._led or Led(to_json({"ok": False, "error": "not now"}), Spoken([], 0, 0))
            if "qpid.ha-backup" not in properties:
                serve_requests(sock, rest, led.view.replace(b"@address@", self._address.encode()))
                return
            try:
                self._speak(sock, led.spoken.octets(self._address), led.spoken.pieces)
            finally:
                if led is self._led:
                    self._heard.set()

    @staticmethod
    def _speak(sock: socket.socket, octets: bytes, pieces: int) -> None:
        for at in range(0, len(octets), pieces or len(octets) or 1):
            sock.sendall(octets[at : at + (pieces or len(octets))])
        sock.shutdown(socket.SHUT_WR)
        end = time.monotonic() + 5
        while time.monotonic() < end and sock.recv(1 << 16):
            pass


@contextlib.contextmanager
def _backup_scene(folder: Path) -> Iterator[Leader]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with Watched(folder, others=address) as watched:
            yield Leader(watched, listener)


TARGETS: Final = (
    Target("hostile-backup", _backup, _primary, 20),
    Target("hostile-primary", _leader, _backup_scene, 8),
)
