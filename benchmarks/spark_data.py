"""A generated fleet with its truth (arrays; no clock, randomness only from the seed).

Each cluster has one incident: producers and consumers at a steady rate, the primary is killed in the middle, another
one is promoted, and waiting messages are sent again.  Half of the clients' hosts and two of the brokers have wrong
clocks.  All moments in here are true time, µs; `Clock` gives the time that a machine writes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from benchmarks import spark_rows
from benchmarks.spark_brokers import ROWS_A_BATCH, Clock, Crash, brokers, clocks
from benchmarks.spark_rows import Column, Rows

T0: Final = 1_790_000_000_000_000
DAY: Final = 86_400_000_000
LENGTH: Final = 600_000_000
"""µs of one cluster's log."""
PRODUCERS: Final = 40
CONSUMERS: Final = 40
QUEUES: Final = 20
HOSTS: Final = 4
SHORTEST: Final = 100_000
"""µs: what waits less is no outage."""
FLUSH: Final = 80_000
"""µs in which all that waited is answered: no second outage."""
NOTICED: Final = 50_000
"""µs until a client notices that its connection is lost."""
LOST, DOUBTFUL, RECOVERED, REDELIVERED, UNMARKED, GHOSTS = 37, 200, 120, 500, 5, 3
Mask = np.ndarray


@dataclass
class Truth:
    """The findings that the jobs must make in one cluster.  `outages`: producer → (first µs, last µs); `offsets`: node
    → µs of its clock before true time in the beginning, `drifts` in ppm; `events`: rows."""

    cluster: str
    begin: int
    counts: dict[str, int] = field(default_factory=dict)
    outages: dict[str, tuple[int, int]] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    drifts: dict[str, float] = field(default_factory=dict)
    events: int = 0


def cluster(number: int, messages: int, batches: int, seed: int = 7) -> tuple[pa.Table, Truth]:
    """`messages`: published, four rows each; `batches`: replicated to two backups, eight rows each."""
    chance = np.random.default_rng([seed, number])
    begin = T0 + number * DAY
    truth, rows = Truth(f"c{number:02d}", begin), Rows(f"c{number:02d}")
    dead = begin + LENGTH // 2
    crash = Crash(dead, dead + int(chance.integers(4_000_000, 15_000_000)))
    machines = clocks(chance, begin, HOSTS)
    truth.offsets = {name: clock.offset for name, clock in machines.items()}
    truth.drifts = {name: clock.drift for name, clock in machines.items()}
    traffic = Traffic(chance, begin, messages, crash)
    traffic.plant(truth)
    _clients(rows, traffic, machines)
    _ends(rows, traffic, machines, chance)
    brokers(rows, chance, machines, LENGTH, batches, crash)
    table = rows.table()
    truth.events = table.num_rows
    return table, truth


def write(folder: Path, clusters: int, messages: int, batches: int, seed: int = 7) -> list[Truth]:
    """One Parquet file for each cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    truths = []
    for number in range(clusters):
        table, truth = cluster(number, messages, batches, seed)
        spark_rows.write(table, folder / f"part-{number:02d}.parquet", seed)
        truths.append(truth)
    return truths


def sizes(events: int, clusters: int) -> tuple[int, int]:
    """Messages and batches of each cluster, so that there are about `events`, a tenth of them of brokers."""
    each = events // clusters
    return each * 10 // 11 // 4, each // 11 // ROWS_A_BATCH


# ---- messages -------------------------------------------------------------------------------------------------------


class Traffic:
    """What became of each message, as arrays: every producer at its own steady rate, with a jitter."""

    def __init__(self, chance: np.random.Generator, begin: int, count: int, crash: Crash) -> None:
        self.chance, self.begin, self.count, self.crash = chance, begin, count, crash
        turn = np.arange(count)
        step = LENGTH // count
        self.producer = turn % PRODUCERS
        self.number = turn // PRODUCERS + 1
        self.sent = begin + turn * step + chance.integers(0, max(1, step), count)
        self.queue = (turn * 7919) % QUEUES
        self.consumer = self.queue + QUEUES * (_rank(self.queue) % (CONSUMERS // QUEUES))
        self.down: Mask = (self.sent >= crash.dead) & (self.sent < crash.alive)
        late = crash.alive + 1000 + chance.integers(0, FLUSH, count)
        self.confirmed = np.where(self.down, late, self.sent + 400 + self._some(1500))
        self.delivered = self.confirmed + self._some(3000)
        self.acked = self.delivered + self._some(2000)
        self._fates()

    def _some(self, mean: int) -> np.ndarray:
        # an answer on its way at the crash arrives before the crash is noticed
        found: np.ndarray = np.minimum(self.chance.exponential(mean, self.count), NOTICED // 5).astype(np.int64)
        return found

    def _pick(self, among: Mask, wanted: int, share: int) -> Mask:
        found = np.zeros(self.count, bool)
        places = np.flatnonzero(among)
        found[self.chance.choice(places, min(wanted, len(places) // share), replace=False)] = True
        return found

    def _fates(self) -> None:
        dead = self.crash.dead
        self.doubtful = self._pick(self.down & ~self._last_down(), DOUBTFUL, 4)
        self.recovered = self._pick(self.doubtful, int(self.doubtful.sum()) * RECOVERED // DOUBTFUL, 1)
        self.lost = self._pick((self.sent > dead - 5_000_000) & (self.sent < dead - 1_000_000), LOST, 2)
        self.again = self._pick(self.down & ~self.doubtful, REDELIVERED, 2)
        self.unmarked = self._pick(~self.down & ~self.lost, UNMARKED, 1)
        self.seen = ~self.lost & (~self.doubtful | self.recovered)

    def _last_down(self) -> Mask:
        """Of each producer: it is answered, which ends what those before it wait for."""
        last = np.zeros(PRODUCERS, np.int64)
        np.maximum.at(last, self.producer[self.down], self.number[self.down])
        found: Mask = self.down & (self.number == last[self.producer])
        return found

    @cached_property
    def end(self) -> int:
        """When all is drained."""
        return int(self.acked.max()) + 100_000

    def plant(self, truth: Truth) -> None:
        again, unmarked = int(self.again.sum()), int(self.unmarked.sum())
        truth.counts = {
            "attempts": self.count, "confirmed": int((~self.doubtful).sum()), "ok": int(self.seen.sum()),
            "lost": int(self.lost.sum()), "unaccounted": 0, "explained": 0, "recovered": int(self.recovered.sum()),
            "unexpected": GHOSTS, "duplicated": again + unmarked, "redelivered": again, "resend": 0,
            "unmarked": unmarked, "unknown": int((self.doubtful & ~self.recovered).sum()), "refused": 0,
            "resends": int(self.down.sum()),
        }  # fmt: skip
        truth.outages = {f"prod-{one}": self._outage(self.producer == one) for one in range(PRODUCERS)}

    def _outage(self, mine: Mask) -> tuple[int, int]:
        """From the first message that waits, or the loss of the connection; to the first answer."""
        dead, alive = self.crash.dead, self.crash.alive
        waiting = self.sent[mine & self.down]
        answered = self.confirmed[mine & ~self.down & (self.sent < dead)]
        first = max(int(waiting.min()), int(answered.max())) if len(waiting) else alive
        long = mine & self.down & (self.confirmed - self.sent >= SHORTEST)
        answers = self.confirmed[mine & (self.sent >= dead) & ~self.doubtful]
        return min(first, dead + NOTICED), int(answers.min()) if long.any() else alive


def _rank(values: np.ndarray) -> np.ndarray:
    """How many equal ones stand before each."""
    found = np.zeros(len(values), np.int64)
    for value in np.unique(values):
        mine = values == value
        found[mine] = np.arange(mine.sum())
    return found


def _clients(rows: Rows, traffic: Traffic, machines: dict[str, Clock]) -> None:
    """Publish, confirm, deliver and ack of each message."""
    everything = np.ones(traffic.count, bool)
    say = _Speaker(rows, traffic, machines)
    say(everything, "publish", traffic.sent, "prod")
    say(traffic.down, "resend", np.full(traffic.count, traffic.crash.alive + 500), "prod", resend=True)
    say(~traffic.doubtful, "confirm", traffic.confirmed, "prod")
    for kind, ts in (("deliver", traffic.delivered), ("ack", traffic.acked)):
        say(traffic.seen, kind, ts, "cons", redelivered=False)
        say(traffic.again, kind, ts + FLUSH // 4, "cons", redelivered=True)
        say(traffic.unmarked, kind, ts + FLUSH // 4, "cons", redelivered=False)


class _Speaker:
    """Rows of clients about messages."""

    def __init__(self, rows: Rows, traffic: Traffic, machines: dict[str, Clock]) -> None:
        self._rows, self._traffic = rows, traffic
        self._clocks = [machines[f"h{host}"] for host in range(HOSTS)]
        self._ids = np.char.add(f"{rows.cluster}-p", traffic.producer.astype(str))
        self._queues = np.char.add("q", traffic.queue.astype(str))

    def __call__(self, chosen: Mask, kind: str, ts: np.ndarray, side: str, **more: Column) -> None:
        traffic, name = self._traffic, self._rows.cluster
        who = (traffic.producer if side == "prod" else traffic.consumer)[chosen]
        wall, mono = self._times(ts[chosen], who % HOSTS)
        client, host = np.char.add(f"{side}-", who.astype(str)), np.char.add("h", (who % HOSTS).astype(str))
        numbers, ids = traffic.number[chosen], self._ids[chosen]
        self._rows.add(
            int(chosen.sum()), source="client", kind=kind, ts_wall=wall, ts_mono=mono, client_id=client,
            proc=np.char.add(np.char.add(f"{name}-", client), "-1"), queue=self._queues[chosen],
            node=host, boot_id=np.char.add(f"{name}-", host), producer=ids, pub_first=numbers, pub_last=numbers,
            msg_id=np.char.add(np.char.add(ids, ":"), numbers.astype(str)), **more,
        )  # fmt: skip

    def _times(self, ts: np.ndarray, host: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        wall, mono = np.empty_like(ts), np.empty_like(ts)
        for index, clock in enumerate(self._clocks):
            mine = host == index
            wall[mine] = clock.wall(ts[mine])
            mono[mine] = clock.mono(ts[mine])
        return wall, mono


def _ends(rows: Rows, traffic: Traffic, machines: dict[str, Clock], chance: np.random.Generator) -> None:
    """Each client's other events, and messages that were never sent."""
    for side, number in [("prod", n) for n in range(PRODUCERS)] + [("cons", n) for n in range(CONSUMERS)]:
        host = f"h{number % HOSTS}"
        client = _Client(rows, f"{side}-{number}", host, machines, chance)
        client.connection(traffic.begin, traffic.crash)
        if side == "cons":
            client.say("drain_end", traffic.end, queue=f"q{number % QUEUES}", result="ok")
        client.say("log_end", traffic.end + 1)
    ghost = _Client(rows, "cons-0", "h0", machines, chance)
    for number in range(1, GHOSTS + 1):
        ids: dict[str, Column] = {
            "producer": f"{rows.cluster}-ghost",
            "pub_first": number,
            "pub_last": number,
            "queue": "q0",
        }
        for index, kind in enumerate(("deliver", "ack")):
            ids["msg_id"] = f"{rows.cluster}-ghost:{number}"
            ghost.say(kind, traffic.begin + 900_000 + index, None, **ids)


@dataclass
class _Client:
    rows: Rows
    client_id: str
    host: str
    machines: dict[str, Clock]
    chance: np.random.Generator

    def say(self, kind: str, ts: int, attrs: dict[str, str] | None = None, **more: Column) -> None:
        clock, name = self.machines[self.host], self.rows.cluster
        self.rows.one(
            attrs, source="client", kind=kind, client_id=self.client_id, proc=f"{name}-{self.client_id}-1",
            node=self.host, boot_id=f"{name}-{self.host}", ts_wall=int(clock.wall(ts)), ts_mono=int(clock.mono(ts)),
            **more,
        )  # fmt: skip

    def connection(self, begin: int, crash: Crash) -> None:
        """To the first primary, and to the second one."""
        self.connected(begin, "n1", 0)
        self.say("disconnected", crash.dead + NOTICED, peer="n1", reason="connection reset")
        self.connected(crash.alive, "n2", 1)

    def connected(self, ts: int, broker: str, number: int) -> None:
        """Each side tells what the other one's clock shows at the least."""
        there, here = self.machines[broker], self.machines[self.host]
        late = 200 + self.chance.exponential(300, 2).astype(np.int64)
        reading = str(there.wall(ts - int(late[0])))
        self.say("connected", ts, {"broker": broker, "peer_wall": reading}, peer=broker, conn_id=str(number))
        self.rows.one(
            {"peer_wall": str(here.wall(ts - 100 - int(late[1]))), "product": "qpidd-client"}, source="broker",
            kind="client_open", node=broker, proc=f"{self.rows.cluster}-{broker}-1", client_id=self.client_id,
            peer=f"{self.host}:{1000 + number}", boot_id=f"{self.rows.cluster}-{broker}", term=number + 1,
            conn_id=str(number), ts_wall=int(there.wall(ts - 100)), ts_mono=int(there.mono(ts - 100)),
        )  # fmt: skip
