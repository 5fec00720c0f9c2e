"""Local time texts to UTC: years, zones, the hour that comes twice, and what is said about assumptions."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.lines import parse_file
from spark_jobs.parse.survey import rotation, stem, survey
from spark_jobs.parse.years import LineClock, ZoneError, zone_named
from tests.spark.parse_lab import almanac_of, one, parsed, us

HOUR = 3_600_000_000
BERLIN = ZoneInfo("Europe/Berlin")


def line(moment: datetime, zone=UTC, node="n1", body="Shutdown complete", daemon="pacemakerd") -> bytes:
    """A line of pacemaker.log, as a node in that zone writes it at a moment."""
    local = moment.astimezone(zone)
    clock = f"{local:%b} {local.day:2d} {local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return f"{clock} {node} {daemon} [7] (f) \tnotice: {body}\n".encode()


def graph(moment: datetime, zone=UTC, node="n1", delay: float = 0.2, number: int = 1) -> bytes:
    """The line of a transition whose reference was made `delay` seconds before."""
    epoch = int(moment.timestamp() - delay)
    body = f"Processing graph {number} (ref=pe_calc-pacemaker-controld-{epoch}-{number}) derived from /x"
    return line(moment, zone, node, body, "pacemaker-controld")


def change(moment: datetime, zone=UTC, node="n1", age: float = 0.2) -> bytes:
    """A change of the CIB that another node made `age` seconds before."""
    body = f'++ /cib/status: <lrm_rsc_op last-rc-change="{int(moment.timestamp() - age)}"/>'
    return line(moment, zone, node, body, "pacemaker-based")


def failure(moment: datetime) -> bytes:
    """A line whose text has a year."""
    body = f"Unexpected result (error) was recorded for monitor of x on n2 at {moment:%b %e %H:%M:%S %Y} | rc=1"
    return line(moment, body=body, daemon="pacemaker-schedulerd")


def every(begin: datetime, step: timedelta, count: int) -> list[datetime]:
    return [begin + step * number for number in range(count)]


def micros(moment: datetime) -> int:
    return round(moment.timestamp() * 1_000_000)


def times(files, **options):
    return [event["ts_wall"] for event in parsed(files, **options) if event["kind"] in ("stopped", "graph")]


def test_new_year_in_one_file():
    moments = every(datetime(2026, 12, 31, 23, 59, 57, tzinfo=UTC), timedelta(seconds=1), 6)
    files = {"p.log": [line(moment) for moment in moments]}
    assert times(files, modified={"p.log": micros(moments[-1])}) == list(map(micros, moments))


@pytest.mark.parametrize("told", [graph, change, lambda moment: failure(moment)])
def test_new_year_before_the_reference(told):
    """The year is the reference's; the lines before New Year are of the year before."""
    moments = [datetime(2026, 12, 31, 23, 59, tzinfo=UTC), datetime(2027, 1, 1, 0, 5, tzinfo=UTC)]
    found = parsed({"p.log": [line(moments[0]), told(moments[1]), line(moments[1])]}, zones={"*": "UTC"})
    assert [event["ts_wall"] for event in found if event["kind"] == "stopped"] == list(map(micros, moments))


def test_a_late_line_of_december_belongs_to_the_old_year():
    moments = [
        datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(2027, 1, 1, 0, 0, 0, 4000, tzinfo=UTC),
        datetime(2026, 12, 31, 23, 59, 59, 990000, tzinfo=UTC),
        datetime(2027, 1, 1, 0, 0, 1, tzinfo=UTC),
    ]
    files = {"p.log": list(map(line, moments))}
    assert times(files, modified={"p.log": micros(moments[-1])}) == list(map(micros, moments))


def test_a_clock_that_steps_back_is_no_new_year():
    moments = [datetime(2026, 3, 5, 12, tzinfo=UTC), datetime(2026, 3, 2, 12, tzinfo=UTC)]
    files = {"p.log": list(map(line, moments))}
    assert times(files, modified={"p.log": micros(moments[0])}) == list(map(micros, moments))


def test_three_years_in_one_file():
    moments = every(datetime(2024, 2, 29, 12, tzinfo=UTC), timedelta(days=61), 17)
    files = {"p.log": list(map(line, moments))}
    assert times(files, modified={"p.log": micros(moments[-1])}) == list(map(micros, moments))
    assert moments[-1].year - moments[0].year == 2


@pytest.mark.parametrize(
    ("lines", "options", "year", "certainty"),
    [
        ([graph(datetime(2026, 5, 5, tzinfo=UTC))], {}, 2026, None),
        ([change(datetime(2026, 5, 5, tzinfo=UTC))], {}, 2026, "likely"),
        ([failure(datetime(2026, 5, 5, tzinfo=UTC))], {}, 2026, "likely"),
        ([], {"modified": {"p.log": us("2026-05-05T12:00+00:00")}}, 2026, "likely"),
        ([], {"modified": {"p.log": us("2027-02-05T12:00+00:00")}}, 2026, "assumed"),
        ([], {"now": us("2026-05-06T00:00+00:00")}, 2026, "assumed"),
        ([], {"now": us("2026-04-06T00:00+00:00")}, 2025, "assumed"),
        ([], {}, None, "assumed"),
    ],
)  # fmt: skip
def test_where_the_year_comes_from(lines, options, year, certainty):
    files = {"p.log": [*lines, line(datetime(2026, 5, 5, 0, 0, 1, tzinfo=UTC))]}
    tally = Tally()
    last = parsed(files, tally, **options)[-1]
    said = last.get("ts_wall")
    assert (said and datetime.fromtimestamp(said / 1e6, UTC).year) == year
    assert tally.undated == (year is None)
    assert [note.certainty for note in tally.notes if "year" in note.text] == ([certainty] if certainty else [])


def test_old_files_take_the_year_of_the_others():
    """A modification time that a copy has changed is worth less than another log of the same days."""
    files = {
        "a/p.log": [graph(datetime(2024, 1, 2, 3, tzinfo=UTC))],
        "b/p.log": [line(datetime(2023, 12, 30, 3, tzinfo=UTC), node="n2")],
    }
    found = parsed(files, modified={"b/p.log": us("2026-11-21T00:00+00:00")})
    assert found[1]["ts_wall"] == us("2023-12-30T03:00+00:00")


@pytest.mark.parametrize("zone", ["+08:00", "-03:30", "+05:45", "+00:00", "+14:00", "-11:00"])
@pytest.mark.parametrize("delay", [0.0, 0.9, 5.0, 60.0])
def test_zone_from_references(zone, delay):
    """The scheduler may think for a minute: zones are quarters of an hour apart."""
    there = datetime.fromisoformat(f"2026-05-05T01:02:03{zone}").tzinfo
    moment = datetime(2026, 1, 1, 0, 30, tzinfo=UTC)
    files = {"p.log": [graph(moment, there, delay=delay), line(moment, there)]}
    assert set(times(files)) == {micros(moment)}
    (note,) = [note for note in almanac_of(files).notes if "zone" in note.text]
    assert (note.certainty, zone.replace("-", "") in note.text.replace("-", "")) == ("exact", True)


def test_zone_from_changes_of_the_cib():
    """Most changes are fresh; replays of old ones (a start reads them all) vote for any zone."""
    zone = ZoneInfo("Asia/Shanghai")
    moments = every(datetime(2026, 5, 5, tzinfo=UTC), timedelta(seconds=7), 20)
    old = [change(moments[0], zone, age=age) for age in (901, 40_003, 7201, 86_400 * 3)]
    files = {"p.log": [*old, *(change(moment, zone) for moment in moments), line(moments[-1], zone)]}
    assert times(files) == [micros(moments[-1])]
    (note,) = [note for note in almanac_of(files).notes if "zone" in note.text]
    assert note.certainty == "likely"


def test_changes_from_a_clock_that_is_ahead():
    moments = every(datetime(2026, 5, 5, tzinfo=UTC), timedelta(seconds=7), 9)
    files = {"p.log": [*(change(moment, BERLIN, age=-5) for moment in moments), line(moments[-1], BERLIN)]}
    assert times(files) == [micros(moments[-1])]


@pytest.mark.parametrize(
    ("ages", "certainty"),
    [([0.2] * 6 + [3600] * 4, "likely"), ([0.2] * 5 + [3600] * 5, "assumed"), ([300] * 10, "assumed")],
)
def test_changes_that_disagree_or_are_stale_prove_nothing(ages, certainty):
    moments = every(datetime(2026, 5, 5, tzinfo=UTC), timedelta(seconds=7), len(ages))
    files = {"p.log": [change(moment, age=age) for moment, age in zip(moments, ages, strict=True)]}
    (note,) = [note for note in almanac_of(files, now=micros(moments[-1])).notes if "zone" in note.text]
    assert note.certainty == certainty


def test_zone_of_a_silent_node():
    shanghai = ZoneInfo("Asia/Shanghai")
    moment = datetime(2026, 5, 5, tzinfo=UTC)
    files = {"1.log": [graph(moment, shanghai)], "2.log": [line(moment, shanghai, "node2")]}
    assert set(times(files)) == {micros(moment)}
    (note,) = [note for note in almanac_of(files).notes if note.about == "node2"]
    assert (note.text, note.certainty) == ("zone of node2 assumed UTC+08:00, as the other nodes'", "assumed")
    alone = almanac_of({"2.log": files["2.log"]}, now=micros(moment))
    (note,) = [note for note in alone.notes if note.about == "node2"]
    assert (note.text, note.certainty) == ("zone of node2 assumed UTC, nothing says otherwise", "assumed")


def test_zones_differ_from_node_to_node():
    moment = datetime(2026, 5, 5, tzinfo=UTC)
    files = {"1.log": [graph(moment, BERLIN)], "2.log": [graph(moment, UTC, "n2")], "3.log": [line(moment, node="n3")]}
    assert set(times(files)) == {micros(moment)}, "n3: the others disagree, so UTC"


def test_the_users_zone_wins_and_a_doubt_is_said():
    moment = datetime(2026, 5, 5, tzinfo=UTC)
    files = {"p.log": [graph(moment, BERLIN)]}
    assert times(files, zones={"n1": "Asia/Shanghai"}) == [micros(moment) - 6 * HOUR]
    (note,) = almanac_of(files, zones={"n1": "Asia/Shanghai"}).notes
    assert note.text == "zone of n1 Asia/Shanghai, given; its own references say UTC+02:00"
    assert times(files, zones={"*": "Europe/Berlin"}) == [micros(moment)]


def test_unknown_zone_names_what_is_wanted():
    with pytest.raises(ZoneError, match=r"zone 'Mars/Olympus': wanted a name such as Europe/Berlin, or an offset"):
        almanac_of({"p.log": [line(datetime(2026, 5, 5, tzinfo=UTC))]}, zones={"n1": "Mars/Olympus"})


@pytest.mark.parametrize("hours", [8, -3.5, 0])
def test_zones_as_offsets(hours):
    moment = datetime(2026, 5, 5, tzinfo=UTC)
    there = timezone(timedelta(hours=hours))
    lines = [line(moment, there)]
    assert times({"p.log": lines}, zones={"n1": f"{moment.astimezone(there):%z}"}, now=micros(moment)) == [
        micros(moment)
    ]
    (event,) = parse_file("p.log", lines, Context(mtime=micros(moment), zone=there))
    assert event["ts_wall"] == micros(moment)


def test_context_of_one_file():
    moment = datetime(2026, 5, 5, tzinfo=UTC)
    context = Context(mtime=micros(moment), zone=BERLIN)
    (event,) = parse_file("p.log", [line(moment, BERLIN)], context)
    assert event["ts_wall"] == micros(moment)
    assert [note.text for note in context.tally.notes] == [
        "year of n1's first line 2026, from the file's modification time",
        "zone of n1 Europe/Berlin, given",
    ]


AUTUMN = every(datetime(2026, 10, 25, 0, 30, 3, tzinfo=UTC), timedelta(minutes=1), 90)
SPRING = every(datetime(2026, 3, 29, 0, 30, 3, tzinfo=UTC), timedelta(minutes=1), 90)


@pytest.mark.parametrize("moments", [AUTUMN, SPRING], ids=["autumn", "spring"])
def test_daylight_saving_with_a_given_zone(moments):
    files = {"p.log": [line(moment, BERLIN) for moment in moments]}
    options = {"zones": {"n1": "Europe/Berlin"}, "modified": {"p.log": micros(moments[-1])}}
    assert times(files, **options) == list(map(micros, moments))


@pytest.mark.parametrize("moments", [AUTUMN, SPRING], ids=["autumn", "spring"])
def test_daylight_saving_from_references(moments):
    lines = [line(moment, BERLIN) for moment in moments]
    files = {"p.log": [graph(moments[0], BERLIN), *lines, graph(moments[-1], BERLIN)]}
    assert times(files) == [micros(moments[0]), *map(micros, moments), micros(moments[-1])]


@pytest.mark.parametrize("quiet", [0, 60, 100])
@pytest.mark.parametrize("day", [datetime(2026, 10, 24, tzinfo=UTC), datetime(2026, 3, 28, tzinfo=UTC)])
def test_daylight_saving_next_to_a_quiet_half_hour(day, quiet):
    """Any long gap has room for a change of the zone; the one where it changed has least."""
    moments = every(day.replace(hour=20, second=3), timedelta(minutes=1), 480)
    kept = [moment for at, moment in enumerate(moments) if not quiet <= at < quiet + 90]
    files = {"p.log": [graph(kept[0], BERLIN), *(line(moment, BERLIN) for moment in kept), graph(kept[-1], BERLIN)]}
    assert times(files) == [micros(kept[0]), *map(micros, kept), micros(kept[-1])]


@pytest.mark.parametrize("cut", [1, 15, 29, 30, 31, 45, 60, 89])
@pytest.mark.parametrize("given", [True, False])
def test_rotation_inside_the_hour_that_comes_twice(cut, given):
    lines = [graph(AUTUMN[0], BERLIN), *(line(moment, BERLIN) for moment in AUTUMN[1:-1]), graph(AUTUMN[-1], BERLIN)]
    files = {"p.log.1": lines[:cut], "p.log": lines[cut:]}
    assert times(files, zones={"n1": "Europe/Berlin"} if given else {}) == list(map(micros, AUTUMN))


def test_a_log_that_begins_in_the_second_pass():
    """Nothing went back in it: only its reference can tell."""
    moments = AUTUMN[40:70]
    lines = [line(moments[0], BERLIN), graph(moments[1], BERLIN), *(line(moment, BERLIN) for moment in moments[2:])]
    assert times({"p.log": lines}, zones={"n1": "Europe/Berlin"}) == list(map(micros, moments))


@pytest.mark.parametrize(("one", "two"), [(45, 52), (30, 40), (10, 30), (10, 20), (35, 40)])
def test_three_parts_inside_the_hour_that_comes_twice(one, two):
    lines = [line(moment, BERLIN) for moment in AUTUMN]
    files = {"p.log.2": lines[:one], "p.log.1": lines[one:two], "p.log": lines[two:70]}
    options = {"zones": {"n1": "Europe/Berlin"}, "modified": {"p.log": micros(AUTUMN[70])}}
    assert times(files, **options) == list(map(micros, AUTUMN[:70]))


def test_a_line_with_its_own_offset_sets_the_clock():
    files = {
        "messages": [
            b"2026-10-25T02:40:00+02:00 n1 pacemakerd[1]: notice: Shutdown complete\n",
            b"2026-10-25T02:10:00+01:00 n1 pacemakerd[1]: notice: Shutdown complete\n",
            b"Oct 25 02:20:00 n1 pacemakerd[1]: notice: Shutdown complete\n",
        ]
    }
    wanted = [us(f"2026-10-25T{clock}:00+00:00") for clock in ("00:40", "01:10", "01:20")]
    assert times(files, zones={"n1": "Europe/Berlin"}) == wanted


def test_syslog_calibrates_pacemaker_log():
    files = {
        "messages": [b"2026-05-05T08:10:00+08:00 n1 x[1]: y\n"],
        "p.log": [line(datetime(2026, 5, 5, tzinfo=UTC), ZoneInfo("Asia/Shanghai"))],
    }
    assert times(files) == [us("2026-05-05T00:00:00+00:00")]


def test_clock_is_monotone_over_a_leap_day():
    clock = LineClock(zone_named("UTC"), 2024)
    day = 24 * HOUR
    readings = [clock.utc(number * day) or 0 for number in (57, 58, 59, 60)]
    assert all(after - before == day for before, after in pairwise(readings))
    assert LineClock(zone_named("UTC"), 2026).utc(59 * day) is None, "29 February 2026"


@pytest.mark.parametrize(
    ("steps", "resolution"), [([4, 8, 40], 4000), ([10, 20], 10_000), ([1, 3, 4], 1000), ([4] * 30 + [5], 4000)]
)
def test_coarse_clocks_are_found(steps, resolution):
    moment, lines = datetime(2026, 5, 5, tzinfo=UTC), []
    for number in range(62):
        moment += timedelta(milliseconds=steps[number % len(steps)])
        lines.append(line(moment))
    found = parsed({"p.log": lines}, now=micros(moment))
    assert {event["ts_res"] for event in found} == {resolution}


def test_few_lines_say_nothing_about_the_clock():
    moments = every(datetime(2026, 5, 5, tzinfo=UTC), timedelta(milliseconds=4), 10)
    assert {event["ts_res"] for event in parsed({"p.log": list(map(line, moments))}, now=micros(moments[0]))} == {1000}


def test_running_transition_is_carried_over_a_rotation():
    moments = every(datetime(2026, 5, 5, tzinfo=UTC), timedelta(seconds=1), 4)
    ask = "Initiating promote operation d1_promote_0 on n2 | action 7"
    plan = "Actions: Promote d1:0 ( Unpromoted -> Promoted n1 )"
    lines = [
        line(moments[0], body=plan, daemon="pacemaker-schedulerd"),
        line(moments[1], body="Calculated transition 5, saving inputs in /x", daemon="pacemaker-schedulerd"),
        graph(moments[2], number=5),
        line(moments[3], body=ask, daemon="pacemaker-controld"),
    ]
    for cut in range(5):
        events = parsed({"p.log.1": lines[:cut], "p.log": lines[cut:]})
        assert [event["attrs"]["trans"] for event in events] == ["5"] * 4


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("n1/pacemaker.log-20261121.gz", "n1/pacemaker.log"),
        ("pacemaker.log.2.gz", "pacemaker.log"),
        ("pacemaker.log", "pacemaker.log"),
        ("messages-20261121-1.xz", "messages"),
    ],
)
def test_parts_of_one_log(name, log):
    assert stem(name) == log


def test_parts_are_sorted_by_age():
    names = ["a.log-20261120.gz", "a.log-20261121", "a.log-20261121-1", "a.log.10.gz", "a.log.2", "a.log.1", "a.log"]
    dates, numbers = [*names[:3], names[-1]], names[3:]
    assert sorted(set(dates), key=rotation) == dates
    assert sorted(set(numbers), key=rotation) == numbers


def test_survey_leaves_a_torn_line_out():
    """Half an epoch would be another year."""
    whole = graph(datetime(2026, 5, 5, tzinfo=UTC))
    cut = whole[: whole.index(b"-1)")]
    found = survey("p.log", [whole, cut]).streams["n1"]
    assert (found.lines, sum(span.count for span in found.sure)) == (1, 1)


def test_resolution_of_a_single_line():
    assert one("Nov 21 01:55:06 n1 pacemakerd[1]:  notice: Shutdown complete")["ts_res"] == 1_000_000
