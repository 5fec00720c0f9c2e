"""The life of one message: the lines of every node about it, in corrected order, and where it was replicated (pure).

No log gives the position of a message in the broker's log.  It follows from samples, which say how far a broker had
come at a time:

    later than    the last sample that was certainly taken before the message was sent
    up to         the first sample of the same term that was certainly taken after it was confirmed, or delivered

So a broker that had come to `up to` held it, one that was at `later than` did not, and of others it is not known.
Terms matter, because a new primary gives the numbers again that its predecessor's lost tail had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spark_jobs.cli.output import half, place_of, table, wrapped
from spark_jobs.clocks.segments import Clocks
from spark_jobs.data import table as words_of
from spark_jobs.messages.survivors import Undone, undone
from spark_jobs.report import words
from spark_jobs.report.units import clock
from spark_jobs.schema import Event
from spark_jobs.solve.runs import expand, span
from spark_jobs.solve.signs import place, sequence

SENT: Final = ("publish", "resend")
SEEN: Final = ("confirm", "deliver")
OF_PRIMARY: Final = ("repl_send", "confirm_sent", "demote", "stop")
OF_BACKUP: Final = ("repl_recv", "catchup_end")
SAMPLES: Final = (*OF_PRIMARY, *OF_BACKUP, "backup_lost", "promoted")
"""Kinds of the brokers' rows that say where in its log a broker was."""
_WORDS: Final = words_of(__package__, "life")


@dataclass(frozen=True)
class LifeMoment:
    """us on the common axis; `count`: messages of the row, which may be a run."""

    est: int
    lo: int
    hi: int
    event: Event
    count: int = 1


@dataclass(frozen=True)
class Range:
    """It is behind `after` and up to `upto` in the log of `term`; positions without their term."""

    term: int
    primary: str
    after: int
    upto: int


@dataclass(frozen=True)
class Holding:
    """`held`: None if it is not known; `position`: where the broker was at `at` (us)."""

    node: str
    role: str
    held: bool | None
    position: int
    at: int
    event: Event


def moments(rows: Iterable[Event], clocks: Clocks, number: int) -> list[LifeMoment]:
    """Rows that name the message, in corrected order.

    Inside a process the monotonic clock decides (lines of runs are written when the run ends, so their numbers do not);
    and no row is earlier than the sending, as far as the bounds allow."""
    found = [_moment(row, clocks, number) for row in rows if row.get("ts_wall") is not None]
    found.sort(key=lambda one: (_process(one.event), one.event.get("ts_mono") or one.est))
    last: dict[str, int] = {}
    ordered = []
    for one in found:
        proc = _process(one.event)
        last[proc] = max(one.est, last.get(proc, one.est))
        ordered.append(replace(one, est=last[proc]))
    return sorted(_caused(ordered), key=_order)


def _process(event: Event) -> str:
    return f"{event.get('node')} {event.get('proc')}"


def _caused(found: Sequence[LifeMoment]) -> list[LifeMoment]:
    """The first sending is moved before the others' latest moments, then they behind it, each inside its bounds."""
    sent = min((one for one in found if one.event["kind"] in SENT), key=lambda one: one.est, default=None)
    if sent is None:
        return list(found)
    others = [one for one in found if one is not sent]
    begin = max(sent.lo, min([sent.est, *(one.hi for one in others)]))
    later = [replace(one, est=max(one.est, min(begin, one.hi))) for one in others]
    return [replace(sent, est=begin), *later]


def _order(one: LifeMoment) -> tuple[int, bool, int, tuple[str, int]]:
    return one.est, one.event["kind"] not in SENT, one.event.get("ts_mono") or 0, place(one.event)


def _moment(row: Event, clocks: Clocks, number: int) -> LifeMoment:
    """Of a run only the first and the last message have a time: the others' bounds are wider by its length."""
    _, lo, hi = clocks.correct(row)
    count = (row.get("pub_last") or 0) - (row.get("pub_first") or 0) + 1
    mine = next((one for one in expand(row) if one.get("pub_first") == number), row)
    est = clocks.correct(mine)[0]
    inside = span(row) if count > 1 else 0
    return LifeMoment(est, lo, hi + inside, mine, count)


def of_queue(samples: Sequence[Event], found: Sequence[LifeMoment]) -> list[Event]:
    """Those that count the message's queue, if any do.  Their positions are not those of the whole log, so a promotion
    has none then."""
    queues = {one.event.get("queue") for one in found if one.event.get("queue")}
    own = [row for row in samples if row.get("queue") in queues]
    whole = [row for row in samples if not row.get("queue")]
    promoted = [{**row, "last_pos": None} for row in whole if row["kind"] == "promoted"]
    return own + promoted if own else whole


def position(found: Sequence[LifeMoment], samples: Sequence[Event]) -> Range | None:
    """`samples`: the brokers' rows of SAMPLES with ts_est, ts_lo, ts_hi; None if they do not say, or contradict."""
    sent = min((one.lo for one in found if one.event["kind"] in SENT), default=None)
    seen = min((one for one in found if one.event["kind"] in SEEN), key=lambda one: one.hi, default=None)
    promoted = seen and _primary(seen, samples)
    if sent is None or seen is None or not promoted:
        return None
    before = [sequence(row) or 0 for row in samples if row["kind"] in OF_PRIMARY and row["ts_hi"] < sent]
    behind = [
        sequence(row) or 0
        for row in samples
        if row["kind"] in OF_PRIMARY
        and (row["node"], row.get("term")) == (promoted["node"], promoted["term"])
        and row["ts_lo"] > seen.hi
    ]
    after, upto = max(before, default=0), min(behind, default=0)
    return Range(promoted["term"], promoted["node"], after, upto) if after < upto else None


def _primary(seen: LifeMoment, samples: Sequence[Event]) -> Event | None:
    """The promotion whose log the message was in when it was seen; None where it may be either of two."""
    promotions = sorted((row for row in samples if row["kind"] == "promoted"), key=lambda row: row.get("term") or 0)
    begun = [row for row in promotions if row["ts_lo"] <= seen.hi]
    if not begun or begun[-1]["ts_hi"] >= seen.lo:
        return None
    return begun[-1]


def holdings(where: Range, samples: Sequence[Event]) -> list[Holding]:
    """One row for each backup of its term, and for each broker promoted later."""
    found = []
    backups: dict[str, list[tuple[Event, str]]] = {}
    for row in sorted((row for row in samples if row["last_pos"] is not None), key=lambda row: int(row["ts_est"])):
        if row.get("term") == where.term and row["kind"] in (*OF_BACKUP, "backup_lost"):
            node = str(row.get("peer") if row["kind"] == "backup_lost" else row["node"])
            backups.setdefault(node, []).append((row, "backup"))
        elif row["kind"] == "promoted" and (row.get("term") or 0) > where.term:
            found.append(_holding(where, str(row["node"]), "new primary", [row]))
    backups.pop(where.primary, None)
    return [_holding(where, node, "backup", [row for row, _ in rows]) for node, rows in sorted(backups.items())] + found


def _holding(where: Range, node: str, role: str, rows: Sequence[Event]) -> Holding:
    """The first row that proves that it held the message, else the last one."""
    proof = next((row for row in rows if (sequence(row) or 0) >= where.upto), None)
    row = proof or rows[-1]
    at = sequence(row) or 0
    held = True if proof else False if at <= where.after else None
    return Holding(node, role, held, at, int(row["ts_est"]), row)


@dataclass(frozen=True)
class Gathered:
    """The rows about a message in one cluster, and the brokers' samples.  `verdict`: row of message_verdicts; None:
    nothing is wrong with it, or it was not judged."""

    cluster: str
    number: int
    rows: Sequence[Event]
    samples: Sequence[Event]
    clocks: Clocks
    judged: bool
    verdict: Event | None

    def life(self) -> tuple[list[LifeMoment], Range | None, list[Holding]]:
        """When what was said of it, where it is in the log, who held it."""
        found = moments(self.rows, self.clocks, self.number)
        samples = of_queue(self.samples, found)
        where = position(found, samples)
        return found, where, holdings(where, samples) if where else []


# ---- text ----------------------------------------------------------------------------------------------------------


def told(msg_id: str, about: Gathered) -> list[str]:
    """As text: every row with its line, the brokers that held it, the verdict."""
    found, where, held = about.life()
    gone = undone(row for row in about.samples if row["kind"] == "promoted")
    lines = [f"{msg_id}" + (f" in cluster {about.cluster}" if about.cluster else ""), ""]
    rows = [(clock(one.est), half(one.lo, one.hi), who(one.event), did(one, gone)) for one in found]
    lines += table(("time (UTC)", "+-", "who", "what"), rows, ("+-",))
    lines += ["", "lines:", *(f"  {place_of(one.event)}" for one in found), ""]
    if where is None:
        lines += ["the brokers' logs do not tell where in their log it was", ""]
    else:
        lines.append(f"in the log of {where.primary} (term {where.term}) behind {where.after}, up to {where.upto}:")
        holders = [f"  {held_words(one)}, {clock(one.at)}, {place_of(one.event)}" for one in held]
        lines += [*(holders or ["  no backup wrote how far it was"]), ""]
    return [*lines, *wrapped(_judged(about), 4, "verdict: ")]


def _judged(about: Gathered) -> str:
    if about.verdict is not None:
        return verdict_words(str(about.verdict["verdict"]), str(about.verdict["cause"] or ""))
    return verdict_words("ok", "") if about.judged else "not judged: the report has no table of messages"


def as_json(about: Gathered) -> dict[str, Any]:
    """For programs."""
    found, where, held = about.life()
    return {
        "cluster": about.cluster,
        "moments": [
            {"ts_est": one.est, "ts_lo": one.lo, "ts_hi": one.hi, "count": one.count, "event": one.event}
            for one in found
        ],
        "position": where and {"term": where.term, "node": where.primary, "after": where.after, "upto": where.upto},
        "holdings": [
            {"node": one.node, "role": one.role, "held": one.held, "position": one.position, "ts_est": one.at,
             "place": place_of(one.event)}
            for one in held
        ],
        "verdict": about.verdict or ({"verdict": "ok", "cause": ""} if about.judged else None),
    }  # fmt: skip


def verdict_words(verdict: str, cause: str) -> str:
    because = f": {_WORDS['causes'].get(cause, cause)}" if cause else ""
    return f"{verdict}: {words.VERDICTS.get(verdict, verdict)}{because}"


def did(one: LifeMoment, gone: Iterable[Undone] = ()) -> str:
    """`gets it from orders (redelivered; in a run of 12)`; `gone`: removals that did not survive a fail-over."""
    event = one.event
    text = str(_WORDS["did"].get(event["kind"], event["kind"])).format(queue=event.get("queue") or "a queue")
    marks = [name for name in ("redelivered", "resend") if event.get(name) and event["kind"] != name]
    if event.get("last_pos") is not None:
        marks.append(f"position {sequence(event)}")
    marks += [str(event[name]) for name in ("result", "reason") if event.get(name)]
    marks += [f"in a run of {one.count}"] if one.count > 1 else []
    marks += ["no later primary has heard of it"] if any(each.has(event) for each in gone) else []
    return text + (f" ({'; '.join(marks)})" if marks else "")


def who(event: Event) -> str:
    return str(event.get("client_id") or event.get("node") or event.get("proc") or "an unnamed process")


def held_words(one: Holding) -> str:
    what = {
        True: "held it",
        False: "did not have it" if one.role == "backup" else "began without it",
        None: "may have had it",
    }[one.held]
    return f"{one.role} {one.node} {what}: it was at {one.position}"
