"""A fuzzer for management requests, over the wire, to the primary of a cluster of one."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.fuzz.hostile import mutated, spoiled, to_json
from tests.fuzz.speech import Requests
from tests.fuzz.target import Target, judge_words
from tests.fuzz.watched import KEPT, USER, Watched

MEMBER: Final[dict[str, Any]] = {"id": "id-x", "name": "x", "address": "127.0.0.1:9", "instance": "run-x"}
IN_SYNC: Final[dict[str, Any]] = {"epoch": 0, "leader": "", "version": 0, "members": [MEMBER], "brokers": []}
VALID: Final[list[tuple[str, dict[str, Any]]]] = [
    ("broker.info", {}),
    ("queue.list", {}),
    ("queue.page", {"offset": 0, "limit": 5, "sort": "ready", "reverse": True, "name": "q"}),
    ("queue.info", {"queue": "q"}),
    ("queue.totals", {}),
    ("queue.count", {"vhost": None}),
    ("queue.census", {"vhost": None, "history": "", "after": 0, "known": 0}),
    ("exchange.list", {}),
    ("binding.list", {}),
    ("session.list", {}),
    ("session.page", {"offset": 0, "limit": 5, "name": "g"}),
    ("session.close", {"number": 1 << 40, "reason": "for a test"}),
    ("channel.list", {}),
    ("subscription.list", {}),
    ("queue.peek", {"queue": KEPT, "limit": 10}),
    ("queue.peek", {"queue": KEPT, "limit": 10, "after": 0}),
    ("queue.move", {"source": "other", "target": "another", "limit": 3}),
    ("queue.move", {"source": "other", "exchange": "amq.fanout"}),
    ("queue.purge", {"queue": "other"}),
    ("queue.delete", {"queue": "gone", "if_unused": True, "if_empty": False}),
    ("vhost.list", {}),
    ("vhost.add", {"name": "x"}),
    ("vhost.delete", {"name": "x"}),
    ("queue.list", {"vhost": None}),
    ("queue.delete", {"queue": "gone", "vhost": "x"}),
    ("policy.set", {"name": "p", "vhost": "x", "pattern": "^gone", "definition": {"max-length": 5}}),
    ("ha.status", {}),
    ("ha.query", {}),
    ("ha.ask", {**MEMBER, "epoch": 0, "leader": "", "heard": {"id-y": 0.5}}),
    ("ha.claim", {"epoch": 1, "claimant": MEMBER, "position": 7, "base": IN_SYNC, "force": False, "whole": True}),
    ("ha.replicate", {"queue": "other", "from": "127.0.0.1:9"}),
    ("ha.promote", {"force": False, "behind": False, "takeover": False, "in_sync": IN_SYNC}),
    ("ha.relocate", {"to": "x"}),
    ("ha.member", {"action": "list"}),
    ("ha.member", {"action": "add", "address": "127.0.0.1:9", "timeout": 0.1}),
    ("ha.member", {"action": "remove", "address": "127.0.0.1:9", "force": True}),
    ("ha.dump", {"queue": KEPT, "name": "other"}),
    ("ha.backup", {"action": "begin", "messages": True}),
    ("ha.backup", {"action": "next", "id": 1}),
    ("ha.restore", {"action": "begin"}),
    ("ha.restore", {"action": "lines", "id": 1, "text": '{"object":"queue.declare"}\n'}),
    ("ha.restore", {"action": "end", "id": 1, "objects": 1, "messages": 0}),
    ("ha.restore", {"action": "abandon"}),
    ("ha.salvage", {"action": "list"}),
    ("ha.salvage", {"action": "show", "file": "20261121T070526Z-3.jsonl", "start": 1, "limit": 3}),
    ("ha.salvage", {"action": "restore", "file": "20261121T070526Z-3.jsonl"}),
    ("ha.salvage", {"action": "restored", "messages": [["id-a", 7, "q"]]}),
    ("ha.salvage", {"action": "discard", "file": "20261121T070526Z-3.jsonl"}),
]


def _request(rng: Random) -> tuple[str, bytes]:
    method, arguments = rng.choice(VALID)
    method = spoiled(rng, method.encode(), 1).decode("latin-1")[:200] if rng.random() < 0.03 else method
    if rng.random() < 0.1:
        arguments = {**rng.choice(VALID)[1], **arguments}
    body = to_json(mutated(rng, arguments))
    return method, spoiled(rng, body, 1) if rng.random() < 0.1 else body


def _touches_kept(method: str, body: bytes) -> bool:
    """These do what they are asked, and the queue that is judged would be another one."""
    return method in ("queue.move", "queue.purge", "queue.delete", "ha.restore") and KEPT.encode() in body


class Door:
    """One request after another on one connection, which has to stay open."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._peer = Requests(watched.broker.port, *USER)

    def check(self, input: tuple[str, bytes]) -> None:
        method, body = input
        if _touches_kept(method, body):
            return
        try:
            answer = self._peer.answer(self._peer.send_request(method, body))
        except (AssertionError, OSError) as error:
            self._watched.judge()
            self._peer.close()
            self._peer = Requests(self._watched.broker.port, *USER)
            raise AssertionError(f"no answer: {error}") from error
        judge_words(json.dumps(answer)) if not answer["ok"] else None
        assert answer["ok"] or len(answer["error"]) <= 4096, f"{len(answer['error'])} characters of error"
        self._watched.judge()
        self._settle(method)

    def _settle(self, method: str) -> None:
        if method == "ha.restore":
            self._peer.request("ha.restore", action="abandon")
        end = time.monotonic() + 20
        while (state := self._peer.request("ha.status")["result"]["state"]) != "active":
            assert time.monotonic() < end, f"state {state}\n{self._watched.broker.log[-3000:]}"
            if state == "joining":
                self._peer.request("ha.promote", force=True)

    def finish(self) -> None:
        self._watched.judge_all()

    def close(self) -> None:
        self._peer.close()


@contextlib.contextmanager
def scene(folder: Path) -> Iterator[Door]:
    with Watched(folder) as watched:
        watched.promote()
        watched.fill()
        with contextlib.closing(Door(watched)) as door:
            yield door


TARGETS: Final = (Target("management", _request, scene, 100),)
