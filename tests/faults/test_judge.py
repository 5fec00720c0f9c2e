"""The judge can acquit, and it can find each fault that it is there for."""

from collections.abc import Callable

import pytest

from tests.faults.judge import SLACK, Copy, Evidence, judge, unfold

SECOND = 1_000_000


def app(kind: str, id: str, client: str = "s", t: int = 0, **more: object) -> dict[str, object]:
    return {"kind": kind, "id": id, "client": client, "t": t * SECOND, **more}


def fact(kind: str, msg_id: str | None = None, client: str = "s", t: int = 0, **attrs: str) -> dict[str, object]:
    return {"kind": kind, "client_id": client, "ts_mono": t * SECOND, "msg_id": msg_id, "attrs": attrs}


def run() -> Evidence:
    """Five messages; the connection is lost at 5 s, s:4 and s:5 are sent again, s:4 had been taken before."""
    ids = [f"s:{number}" for number in range(1, 6)]
    found = Evidence(unsettled={"s": 0}, alone={"r"}, closed=[("s", 0.1, 5.0)])
    for id in ids:
        found.application += [app("invoke", id), app("ok", id)]
        found.application += [app("receive", id, "r", 4, redelivered=False), app("ack", id, "r", 4)]
    found.application.append(app("receive", "s:4", "r", 7, redelivered=False, resent=True))
    found.library = [
        fact("publish", "s:1", last="s:5", count="5"),
        fact("confirm", "s:1", last="s:3", count="3"),
        fact("disconnected", t=5),
        fact("resend", "s:4", last="s:5", count="2", t=6),
        fact("confirm", "s:4", last="s:5", count="2", t=6),
    ]
    found.audit = [Copy(id, False) for id in ids[:4]] + [Copy("s:4", True), Copy("s:5", True)]
    return found


def test_acquits() -> None:
    report = judge(run())
    assert report.problems == ()
    assert (report.sent, report.confirmed, report.received, report.resent) == (5, 5, 6, 2)
    assert (report.duplicates, report.twice_taken, report.losses) == (1, 1, 1)
    assert report.line().startswith("sent 5, confirmed 5, received 6, re-sent 2, duplicates 1")


def test_a_redelivery_after_the_receivers_own_loss_is_no_fault() -> None:
    found = run()
    found.library.append(fact("disconnected", client="r", t=5))
    found.application.append(app("receive", "s:1", "r", 6, redelivered=False))
    assert judge(found).problems == ()


def test_the_first_delivery_may_be_noted_behind_the_second_by_a_receiver_that_loses_its_connection() -> None:
    """q got s:9 first.  Its connection was lost; the broker gave s:9 to p before q knew."""

    def problems(lost: bool = True, later: int = 12_000, flag: bool = True, other: str = "p") -> tuple[str, ...]:
        found = run()
        found.application += [app("invoke", "s:9"), app("ok", "s:9")]
        found.audit.append(Copy("s:9", False))
        found.library.append(fact("publish", "s:9", last="s:9", count="1"))
        found.library.append(fact("confirm", "s:9", last="s:9", count="1"))
        at = 20 * SECOND
        found.application.append({**app("receive", "s:9", other, redelivered=flag), "t": at})
        found.application.append({**app("receive", "s:9", "q", redelivered=False), "t": at + later})
        found.application.append(app("ack", "s:9", other, 20))
        if lost:
            found.library.append({**fact("disconnected", client="q"), "ts_mono": at + later + 2500})
        return tuple(problem.partition(":")[0] for problem in judge(found).problems)

    assert problems() == ()
    assert problems(lost=False) == ("again",), "why should the broker have given it to another?"
    assert problems(later=SLACK + 1) == ("again",), "nobody notes so late"
    assert problems(flag=False) == ("again",), "none of the two says that it is the second"
    assert problems(other="q") == ("again",), "one receiver notes in order"


def test_a_copy_that_was_sent_again_is_no_fault_where_queues_are_uneven() -> None:
    """s:4 was sent again and only one queue had refused it; nobody sent s:1 again, and s:5 does not say so."""
    found = run()
    found.audit.remove(Copy("s:4", True))
    assert judge(found).problems == ("again: s:4: 2 times, 1 in the audit (r delivered 4000000, r delivered 7000000)",)
    found.uneven = True
    assert judge(found).problems == ()
    found.application += [app("receive", id, "r", 7, redelivered=False, resent=id == "s:1") for id in ("s:1", "s:5")]
    twice = "2 times, 1 in the audit (r delivered 4000000, r delivered 7000000)"
    assert judge(found).problems == (f"again: s:1: {twice}, s:5: {twice}",)


def test_the_first_of_two_copies_may_come_last_where_queues_are_uneven() -> None:
    """A dead node's copy of s:4 was read behind the one that the library sent again."""
    found = run()
    found.audit.remove(Copy("s:4", True))
    found.uneven, found.alone = True, set()
    receives = [event for event in found.application if event["kind"] == "receive" and event["id"] == "s:4"]
    found.application = [event for event in found.application if event not in receives]
    found.application += [{**receives[0], "resent": True}, {**receives[1], "resent": False}]
    assert judge(found).problems == ()


def test_a_redelivery_out_of_order_is_no_fault() -> None:
    found = run()
    found.application += [app(kind, f"s:{n}") for n in (6, 7) for kind in ("invoke", "ok")]
    found.application += [app(kind, "s:7", "r", 8, redelivered=False) for kind in ("receive", "ack")]
    found.application += [app(kind, "s:6", "r", 9, redelivered=True) for kind in ("receive", "ack")]
    found.audit += [Copy("s:6", False), Copy("s:7", False)]
    assert judge(found).problems == ()


def test_what_is_said_to_be_unsettled_is_no_fault() -> None:
    found = run()
    found.application.append(app("invoke", "s:6"))
    found.unsettled = {"s": 1}
    assert judge(found).problems == ()


def forget(found: Evidence) -> None:
    """The library forgets what was in flight: it is neither confirmed nor unsettled."""
    found.application.append(app("invoke", "s:6"))


def claim(found: Evidence) -> None:
    found.application += [app("invoke", "s:6"), app("ok", "s:6")]


def forge(found: Evidence) -> None:
    found.application.append(app("receive", "x:1", "r"))


def settle_twice(found: Evidence) -> None:
    found.application.append(app("ok", "s:2"))


def repent(found: Evidence) -> None:
    found.library.append(fact("resend", "s:2", t=7))


def repent_in_silence(found: Evidence) -> None:
    found.audit.append(Copy("s:2", True))


def send_again_unmarked(found: Evidence) -> None:
    found.audit[4] = Copy("s:4", False)


def tear(found: Evidence) -> None:
    found.application += [app("invoke", f"t:{n}", tx="T") for n in (1, 2)] + [app("unknown", f"t:{n}") for n in (1, 2)]
    found.audit.append(Copy("t:1", False))


def revive(found: Evidence) -> None:
    found.application += [app("invoke", "t:1", tx="T"), app("abort", "t:1")]
    found.audit.append(Copy("t:1", False))


def turn_round(found: Evidence) -> None:
    found.audit[1], found.audit[2] = found.audit[2], found.audit[1]


def deliver_in_disorder(found: Evidence) -> None:
    found.application += [app(kind, f"s:{n}") for n in (6, 7) for kind in ("invoke", "ok")]
    found.application += [app(kind, f"s:{n}", "r", 8) for n in (7, 6) for kind in ("receive", "ack")]
    found.audit += [Copy("s:6", False), Copy("s:7", False)]


def hand_out_twice(found: Evidence) -> None:
    found.application.append(app("receive", "s:1", "r", 8, redelivered=False))


def filter_nothing(found: Evidence) -> None:
    found.filtered = {"r"}


def filter_nothing_of_what_says_nothing(found: Evidence) -> None:
    """As after a fail-over that forgets what was handed out: the receiver has lost its connection."""
    filter_nothing(found)
    receives = [number for number, event in enumerate(found.application) if event["kind"] == "receive"]
    again = [number for number in receives if found.application[number]["id"] == "s:4"][-1]
    found.application[again] = {**found.application[again], "redelivered": False, "resent": False}


def hang_in_close(found: Evidence) -> None:
    found.closed.append(("r", 9.0, 5.0))


def spoil(found: Evidence) -> None:
    found.application.append(app("receive", "s:1", "r", 8, redelivered=True, changed=True))


@pytest.mark.parametrize(
    ("crime", "charge"),
    [
        (forget, "settled: s: 1 without an answer, unsettled() said 0"),
        (claim, "lost: s:6, s:6 (audit)"),
        (forge, "unexpected: x:1"),
        (settle_twice, "settled: s:2 2 times"),
        (repent, "repentant: s:2"),
        (repent_in_silence, "copies: s:2: 2 for 1"),
        (send_again_unmarked, "unmarked: s:4"),
        (tear, "torn: T: 1 of 2"),
        (revive, "phantom: t:1"),
        (turn_round, "order: s:2 after s:3 (audit)"),
        (deliver_in_disorder, "order: s:6 after s:7 (r)"),
        (hand_out_twice, "again: s:1: 2 times, 1 in the audit (r delivered 4000000, r delivered 8000000)"),
        (filter_nothing, "filtered: s:4 by r"),
        (filter_nothing_of_what_says_nothing, "unmarked: s:4 by r"),
        (hang_in_close, "late: r: 9.0 s, 5.0 s allowed"),
        (spoil, "changed: s:1"),
    ],
)
def test_convicts(crime: Callable[[Evidence], None], charge: str) -> None:
    found = run()
    crime(found)
    assert judge(found).problems == (charge,)


def test_names_only_the_first_offenders() -> None:
    found = run()
    found.application += [app("receive", f"x:{number}", "r") for number in range(9)]
    assert judge(found).problems == ("unexpected: x:0, x:1, x:2, x:3, x:4 and 4 more",)


def test_unfolds_runs() -> None:
    assert list(unfold(fact("confirm", "a:b:9", last="a:b:11"))) == ["a:b:9", "a:b:10", "a:b:11"]
    assert list(unfold(fact("confirm", "no number"))) == ["no number"]
    assert list(unfold(fact("connected"))) == []
