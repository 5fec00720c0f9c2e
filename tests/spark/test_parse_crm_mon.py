"""crm_mon's XML, of 2.1 and of 2.0."""

from zoneinfo import ZoneInfo

import pytest

from spark_jobs.parse.context import Context, Tally
from spark_jobs.parse.crm_mon import moment_of, parse_file
from spark_jobs.parse.years import zone_named
from tests.spark.parse_lab import almanac_of, us, wrong

NEW = """<?xml version="1.0"?>
<pacemaker-result api-version="2.25" request="crm_mon --output-as=xml">
  <summary>
    <stack type="corosync" pacemakerd-state="running"/>
    <current_dc present="true" version="2.1.5" name="n3" id="3" with_quorum="true"/>
    <last_update time="Sat Nov 21 02:00:00 2026"/>
  </summary>
  <nodes>
    <node name="n1" id="1" online="true" standby="false" unclean="false" pending="false" is_dc="false" type="member"/>
    <node name="n2" id="2" online="false" standby="false" unclean="true" pending="false" is_dc="false" type="member"/>
    <node name="n3" id="3" online="true" standby="true" unclean="false" pending="false" is_dc="true" type="member"/>
  </nodes>
  <resources>
    <clone id="broker-clone" multi_state="true" unique="false">
      <resource id="broker" resource_agent="ocf:qpid:qpidd" role="Promoted" active="true" failed="false">
        <node name="n1" id="1" cached="true"/>
      </resource>
      <resource id="broker" resource_agent="ocf:qpid:qpidd" role="Stopped" active="false" failed="false"/>
    </clone>
  </resources>
  <fence_history status="0">
    <fence_event target="n2" action="reboot" client="pacemaker-controld.51" origin="n3" delegate="n1" status="success" completed="2026-11-21 01:55:06.157 +01:00"/>
    <fence_event target="n2" action="off" client="stonith_admin.1" origin="n1" status="failed" exit-reason="No route" completed="Sat Nov 21 01:58:06 2026"/>
    <fence_event target="n2" action="off" client="stonith_admin.1" origin="n1" status="pending"/>
  </fence_history>
</pacemaker-result>
"""  # noqa: E501
OLD = """<?xml version="1.0"?>
<crm_mon version="2.0.1">
    <summary>
        <current_dc present="true" version="2.0.1" name="a" id="1" with_quorum="true" />
        <last_update time="Fri Mar  2 10:57:27 2019" />
    </summary>
    <nodes>
        <node name="a" id="1" online="true" standby="false" unclean="false" is_dc="true" />
    </nodes>
    <resources>
        <resource id="db" resource_agent="ocf::x:y" role="Master" failed="true" >
            <node name="a" id="1" cached="false"/>
        </resource>
    </resources>
    <fence_history>
        <fence_event target="b" action="reboot" state="success" origin="a" client="crmd.1" delegate="a" completed="Fri Mar  2 10:50:00 2019" />
    </fence_history>
</crm_mon>
"""  # noqa: E501


CUT = NEW[: NEW.index('<node name="n2"') + 20]
"""Broken in line 10."""


def read(text, **options):
    return list(parse_file("crm_mon.xml", text.encode().splitlines(keepends=True), Context(**options)))


def shape(event):
    return event["kind"], event.get("peer"), event.get("new", event.get("result"))


def test_new():
    events = read(NEW, cluster="lab", zone=ZoneInfo("Europe/Berlin"))
    assert [shape(event) for event in events] == [
        ("node", "n1", "online"),
        ("node", "n2", "unclean"),
        ("node", "n3", "standby"),
        ("resource", "n1", "Promoted"),
        ("resource", None, "Stopped"),
        ("fence_op_done", "n2", "OK"),
        ("fence_op_done", "n2", "failed"),
    ]
    assert wrong(events) == []
    assert {event["ts_wall"] for event in events[:5]} == {us("2026-11-21T02:00:00+01:00")}
    assert (events[5]["ts_wall"], events[5]["ts_res"]) == (us("2026-11-21T01:55:06.157+01:00"), 1000)
    assert (events[6]["ts_wall"], events[6]["ts_res"]) == (us("2026-11-21T01:58:06+01:00"), 1_000_000)
    assert events[5]["attrs"] == {"fence": "reboot", "by": "n1", "client": "pacemaker-controld.51", "origin": "n3"}
    assert events[6]["reason"] == "No route"
    assert [event.get("planned") for event in events[:3]] == [None, None, True]
    assert {(event["node"], event["cluster"]) for event in events} == {("n3", "lab")}


def test_provenance():
    lines = NEW.splitlines()
    for event in read(NEW):
        assert event["raw"] == lines[event["line_no"] - 1].strip()
        assert event["raw"].startswith("<" + {"fence_op_done": "fence_event"}.get(event["kind"], event["kind"])) or (
            event["kind"] == "resource" and event["raw"].startswith("<node")
        )


def test_old():
    events = read(OLD)
    assert [shape(event) for event in events] == [
        ("node", "a", "online"),
        ("resource", "a", "Promoted"),
        ("fence_op_done", "b", "OK"),
    ]
    assert events[0]["ts_wall"] == us("2019-03-02T10:57:27+00:00")
    assert events[1]["attrs"]["failed"] == "true"


def test_zone_of_the_node_that_ran_it():
    line = b"2026-11-21T08:10:00+08:00 n3 x[1]: y\n"
    tally = Tally()
    events = read(NEW, almanac=almanac_of({"messages": [line]}), tally=tally)
    assert events[0]["ts_wall"] == us("2026-11-21T02:00:00+08:00")
    assert tally.notes == []
    read(NEW, tally=tally)
    assert [note.text for note in tally.notes] == ["zone of n3 assumed UTC"]


@pytest.mark.parametrize(
    ("text", "line_no"),
    [
        (CUT, 10),
        ("", 1),
        ("no xml\n", 1),
        ("<html>\n</html>\n", 1),
        ('<?xml version="1.0"?>\n<!DOCTYPE x [<!ENTITY a "b">]>\n<crm_mon>&a;</crm_mon>\n', 2),
    ],
)
def test_broken(text, line_no):
    tally = Tally()
    events = read(text, tally=tally)
    assert (events[-1]["kind"], events[-1]["line_no"], tally.faulty, tally.torn) == ("torn", line_no, 1, 1)
    assert "crm_mon's XML" in str(tally.faults[0])
    assert wrong(events) == []


def test_what_was_read_before_the_break_stays():
    assert [event["kind"] for event in read(CUT)] == ["node", "torn"]


@pytest.mark.parametrize(
    ("text", "wanted", "resolution"),
    [
        ("Sat Nov 21 02:00:00 2026", "2026-11-21T02:00:00+01:00", 1_000_000),
        ("Sat Nov  1 02:00:00 2026", "2026-11-01T02:00:00+01:00", 1_000_000),
        ("2026-10-05 12:02:42.088147Z", "2026-10-05T12:02:42.088147+00:00", 1),
        ("2026-11-21 02:00:00 -05:30", "2026-11-21T02:00:00-05:30", 1_000_000),
        ("2026-11-21T02:00:00.5+0100", "2026-11-21T02:00:00.5+01:00", 100_000),
        ("2026-07-21 02:00:00", "2026-07-21T02:00:00+02:00", 1_000_000),
        ("2026-02-30 02:00:00", None, 1_000_000),
        ("Sat Foo 21 02:00:00 2026", None, 1_000_000),
        ("yesterday", None, 1_000_000),
    ],
)
def test_times(text, wanted, resolution):
    assert moment_of(text, zone_named("Europe/Berlin")) == (us(wanted) if wanted else None, resolution)
