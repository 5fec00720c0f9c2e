"""A broker under attack, and what must be true of it."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import pamqp.commands as commands

from qpidd_py.amqp.codec import encode_method
from tests.fuzz.speech import Peer, Requests
from tests.fuzz.target import judge_words
from tests.support.memory import publish_octets
from tests.support.process import BrokerProcess, HeldPort

KEPT: Final = "kept"
COUNT: Final = 50
"""Messages in the queue KEPT."""
USER: Final = ("ha", "secret")
GROWTH: Final = 150 << 20
"""Octets by which the process may grow during a campaign."""
START_TIME: Final = 20.0


class Watched:
    """The process, its log as far as it was judged, and a queue that nobody may touch."""

    def __init__(self, folder: Path, *options: str, others: str = "") -> None:
        """`others`: addresses of the other members."""
        self._port = HeldPort()
        address = f"127.0.0.1:{self._port.port}"
        named = {
            "cluster": "yes",
            "safety": "availability",
            "replicate": "all",
            "username": USER[0],
            "password": USER[1],
            "brokers-url": ",".join(filter(None, [address, others])),
            "address": address,
        }
        words = [word for name, value in named.items() for word in (f"--ha-{name}", value)]
        words += ["--link-maintenance-interval", "0.02"]
        self.broker = BrokerProcess(folder, *words, *options, port=self._port.port)
        self._judged = 0

    def __enter__(self) -> Self:
        self.broker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.broker.close()
        self._port.release()

    def begin_again(self) -> None:
        """With an empty data directory, at the same address."""
        self.broker.kill()
        shutil.rmtree(self.broker.data_dir)
        self.broker.start()
        self._judged = self.broker.log_file.stat().st_size

    def promote(self) -> None:
        with Requests(self.broker.port, *USER) as peer:
            end = time.monotonic() + START_TIME
            while peer.request("ha.status")["result"]["state"] != "active":
                assert time.monotonic() < end, self.broker.log[-3000:]
                peer.request("ha.promote", force=True)

    def fill(self) -> None:
        """KEPT and some other queues; returns when all of it is confirmed."""
        with Peer(self.broker.port, *USER, {}) as peer:
            peer.send(encode_method(1, commands.Channel.Open()))
            assert isinstance(peer.frame(), commands.Channel.OpenOk)
            for name in (KEPT, "other", "another", "gone"):
                peer.send(encode_method(1, commands.Queue.Declare(queue=name, durable=True)))
                assert isinstance(peer.frame(), commands.Queue.DeclareOk)
            peer.send(encode_method(1, commands.Confirm.Select()))
            assert isinstance(peer.frame(), commands.Confirm.SelectOk)
            for number in range(COUNT):
                peer.send(publish_octets(b"%d" % number, KEPT) + publish_octets(b"x", "other"))
            confirmed = 0
            while confirmed < 2 * COUNT:
                frame = peer.frame()
                assert isinstance(frame, commands.Basic.Ack), frame
                confirmed = frame.delivery_tag
        self._begun_with = self.memory

    @property
    def memory(self) -> int:
        """Resident octets."""
        status = Path(f"/proc/{self.broker.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    def judge(self) -> None:
        """It lives, and nothing new in its log says that something is wrong in it."""
        with open(self.broker.log_file, "rb") as log:
            log.seek(self._judged)
            new = log.read()
        self._judged += len(new)
        judge_words(new.decode(errors="replace"))
        assert self.broker.running, f"it has ended with {self.broker.process and self.broker.process.poll()}"

    def judge_all(self) -> None:
        """And it answers, KEPT is intact, and the process has not grown."""
        self.judge()
        with Requests(self.broker.port, *USER) as peer:
            answer = peer.request("queue.peek", queue=KEPT, limit=1000)
            bodies = [message["body"] for message in answer["result"]]
            assert bodies == [str(number) for number in range(COUNT)], f"{KEPT}: {json.dumps(bodies)[:300]}"
        assert self.memory - self._begun_with < GROWTH, f"{self.memory} octets, {self._begun_with} at the beginning"

    def state(self) -> dict[str, Any]:
        with Requests(self.broker.port, *USER) as peer:
            result: dict[str, Any] = peer.request("ha.query")["result"]
            return result
