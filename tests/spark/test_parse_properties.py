"""What holds for any line and any cut: nothing raises, rotation changes nothing, packing changes nothing."""

import gzip
import pickle
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.parse.almanac import almanac
from spark_jobs.parse.collapse import per_node
from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.detect import PARSERS
from spark_jobs.parse.lines import parse_file
from spark_jobs.parse.survey import survey
from tests.spark.parse_lab import almanac_of, lab_almanac, lab_events, lab_files, parsed, wrong
from tests.support.slow import few

SEEDS = [
    line.decode()
    for name, number in (("lab_n3.log", 5), ("lab_n3.log", 732), ("lab_n3.log", 968), ("lab_c1.log", 69))
    for line in lab_files()[name][number : number + 12]
] + [
    "2026-11-21T01:55:06.333123+08:00 n1 pacemakerd[57]:  notice: Shutdown complete\n",
    "Nov 21 01:55:06 n1 rsyslogd: imuxsock lost 123 messages from pid 456 due to rate-limiting\n",
    '{"__REALTIME_TIMESTAMP":"1795226106333001","_HOSTNAME":"n1","SYSLOG_IDENTIFIER":"corosync","MESSAGE":"x"}\n',
    "Nov 21 01:55:06 n1 qpidd[1]: [HA] notice: c0a3b9db(ready) ready -> recovering: promoted\n",
    '<node name="n1" online="true"/>\n',
]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real line, cut, doubled or with something else in the middle."""
    line = draw(st.sampled_from(SEEDS))
    begin = draw(st.integers(0, len(line)))
    end = draw(st.integers(begin, len(line)))
    middle = draw(
        st.one_of(st.text(max_size=20), st.sampled_from(SEEDS), st.sampled_from(["9" * 5000, "\0", "٣٤", "|", "["]))
    )
    return line[:begin] + middle + line[end:]


LINES = st.lists(
    st.one_of(damaged(), st.text(max_size=60), st.binary(max_size=60), st.sampled_from(SEEDS)), max_size=12
)


@pytest.mark.parametrize("parser", ["pacemaker", "corosync", "syslog", "crm_mon"])
@given(lines=LINES)
@settings(max_examples=few(150))
def test_no_line_raises(parser, lines):
    tally = Tally()
    events = list(PARSERS[parser]("x.log", lines, Context(tally=tally, node="n", mtime=1795226106333001)))
    assert wrong(events) == []
    assert tally.events == len(events)
    assert tally.lines == len(lines)
    per_node(events)


@given(line=damaged())
@settings(max_examples=few(400))
def test_every_line_is_counted_once(line):
    tally = Tally()
    events = list(parse_file("x.log", [line.replace("\n", " ").replace("\0", " ") + "\n"], Context(tally=tally)))
    assert len(events) + tally.unknown + tally.continued == 1


@cache
def lab_survey(name):
    return survey(name, lab_files()[name])


def places(events, begins):
    """Events without the names of the files, lines counted over all parts."""
    return [event | {"file": "", "line_no": event["line_no"] + begins[event["file"]]} for event in events]


def halves(name: str, cut: int):
    lines = lab_files()[name]
    return {f"{name}.1": lines[:cut], name: lines[cut:]}, {f"{name}.1": 0, name: cut}


LAB = ["lab_c1.log", "lab_n1.log", "lab_n3.log"]


@given(name=st.sampled_from(LAB), share=st.floats(0, 1))
@settings(max_examples=few(25))
def test_rotation_changes_nothing(name, share):
    cut = int(share * len(lab_files()[name]))
    parts, begins = halves(name, cut)
    whole = [event for event in lab_events() if event["file"] == name]
    surveys = [survey(part, lines) for part, lines in parts.items()]
    found = almanac([*surveys, *(lab_survey(other) for other in lab_files() if other != name)], {}, {}, None)
    context = Context(cluster="lab", almanac=found)
    split = [event for part, lines in parts.items() for event in parse_file(part, lines, context)]
    assert places(split, begins) == places(whole, {name: 0})


def test_rotation_at_every_line_around_a_decision():
    """Where a plan waits for its number, and a request for its transition."""
    name = "lab_n3.log"
    lines = lab_files()[name][1700:1870]
    whole = parsed({name: lines})
    assert {"plan", "calculated", "graph", "fence_request", "initiate"} <= {event["kind"] for event in whole}
    for cut in range(len(lines) + 1):
        parts = {f"{name}.1": lines[:cut], name: lines[cut:]}
        split = parsed(parts)
        for event, other in zip(whole, split, strict=True):
            assert event["attrs"] == other["attrs"], cut
            assert event["ts_wall"] == other["ts_wall"], cut


def test_packed_is_plain():
    name = "lab_n2.log"
    packed = gzip.compress(b"".join(lab_files()[name]))
    lines = gzip.decompress(packed).splitlines(keepends=True)
    plain = [event for event in lab_events() if event["file"] == name]
    assert list(parse_file(name, lines, Context(cluster="lab", almanac=lab_almanac()))) == plain


def test_text_is_bytes_and_line_ends_do_not_matter():
    name = "lab_c2.log"
    found = lab_almanac()
    wanted = [event for event in lab_events() if event["file"] == name]
    for lines in (
        [line.decode() for line in lab_files()[name]],
        [line.replace(b"\n", b"\r\n") for line in lab_files()[name]],
        iter(lab_files()[name]),
    ):
        assert list(parse_file(name, lines, Context(cluster="lab", almanac=found))) == wanted


def test_a_bundles_files_may_come_in_any_order():
    turned = dict(reversed(lab_files().items()))
    assert almanac_of(turned) == lab_almanac()


@given(cut=st.integers(1, 200))
@settings(max_examples=few(30))
def test_a_torn_end_costs_one_line(cut):
    name = "lab_c3.log"
    lines = lab_files()[name]
    torn = [*lines[:-1], lines[-1][:-cut] or b"N"]
    tally = Tally()
    events = list(parse_file(name, torn, Context(almanac=lab_almanac(), cluster="lab", tally=tally)))
    whole = [event for event in lab_events() if event["file"] == name and event["line_no"] < len(lines)]
    assert events[:-1] == whole
    assert (events[-1]["kind"], events[-1]["line_no"], tally.torn) == ("torn", len(lines), 1)


def test_surveys_travel():
    """Spark sends them from the workers, and the almanac to them."""
    found = [survey(name, lines) for name, lines in lab_files().items()]
    assert pickle.loads(pickle.dumps(found)) == found
    assert max(len(pickle.dumps(item)) for item in found) < 4096, "small, whatever the log's size"
    assert pickle.loads(pickle.dumps(lab_almanac())) == lab_almanac()
