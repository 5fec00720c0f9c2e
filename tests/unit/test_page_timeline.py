"""The timeline of the page: `timeline.js` in Node, with a document that only takes what is text."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from qpidd_py.http import page
from tests.support.system import needs

pytestmark = needs("node")
SCRIPT = Path(page.__file__).with_name("timeline.js")
DOCUMENT = """
class Element {
  constructor(kind) { this.kind = kind; this.children = []; this.attributes = {}; this.textContent = ""; }
  setAttribute(name, value) { this.attributes[name] = String(value); }
  append(...found) { this.children.push(...found); }
  replaceChildren(...found) { this.children = found; }
  set innerHTML(_) { throw new Error("innerHTML"); }
}
const places = new Map();
const at = id => {
  if (!places.has(id)) places.set(id, Object.assign(new Element(id), { namespaceURI: "svg" }));
  return places.get(id);
};
const document = { createElement: kind => new Element(kind), createElementNS: (_, kind) => new Element(kind) };
"""
SECOND = 1_000_000
Event = dict[str, Any]


def run(script: str, **values: Any) -> Any:
    """What the expression is, with these constants."""
    known = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    text = f"{DOCUMENT}\n{SCRIPT.read_text()}\n{known}\nconsole.log(JSON.stringify({script}));"
    done = subprocess.run(["node", "-"], input=text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def event(second: float, name: str, **fields: Any) -> Event:
    return {"number": 1, "time": int(second * SECOND), "event": f"ha.{name}", **fields}


def state(second: float, old: str, new: str) -> Event:
    return event(second, "state", old=old, new=new, reason=f"to {new}")


def lanes(*events: Event, stalls: tuple[Any, ...] = ()) -> dict[str, Any]:
    found = run("lanesOf(events, 'a', stalls)", events=events, stalls=stalls)
    shown = {}
    for lane in found["lanes"]:
        ends = [(each["from"] / SECOND, each["to"] and each["to"] / SECOND) for each in lane["spans"]]
        shown[lane["name"]] = [(each["state"], *end) for each, end in zip(lane["spans"], ends, strict=True)]
    return shown


PROMOTION = (state(0, "standalone", "joining"), state(5, "joining", "recovering"), state(6, "recovering", "active"))


def test_a_primary_with_a_backup_that_comes_goes_and_is_late() -> None:
    found = lanes(
        *PROMOTION,
        event(7, "backup_connected", peer="b", old="joining"),
        event(8, "catchup_begin", peer="b"),
        event(9, "membership", peer="b", result="ready"),
        event(10, "backup_late", peer="b", result="begun", reason="slow"),
        event(11, "backup_late", peer="b", result="ended"),
        event(12, "backup_lost", peer="b", reason="closed by peer"),
    )
    assert found["a"] == [("joining", 0, 5), ("recovering", 5, 6), ("active", 6, None)]
    came = [("joining", 7, 8), ("catchup", 8, 9), ("ready", 9, 10), ("late", 10, 11), ("ready", 11, 12)]
    assert found["b"] == [*came, ("lost", 12, None)]


def test_a_deposed_primary_knows_nothing_of_the_others_any_more() -> None:
    found = lanes(
        *PROMOTION,
        event(7, "membership", peer="b", result="ready"),
        event(8, "isolated", result="begun", reason="no quorum"),
        state(9, "active", "joining"),
        event(10, "catchup_begin", peer="b"),
        state(10, "joining", "catchup"),
    )
    assert found["b"] == [("ready", 7, 9)] and found["a"][-2:] == [("joining", 9, 10), ("catchup", 10, None)]
    assert found["Confirms wait"] == [("stalled", 8, 9)]


def test_stalls_that_the_page_has_seen() -> None:
    stall = {"from": 2 * SECOND, "to": None, "why": "b does not answer"}
    assert lanes(*PROMOTION, stalls=(stall,))["Confirms wait"] == [("stalled", 2, None)]
    calls = "t.stalled({seconds: 3, why: 'b'}, 10e6); t.stalled({seconds: 4, why: 'b'}, 11e6); t.stalled(null, 12e6);"
    assert run(f"(() => {{ const t = new Timeline(); {calls} return t.stalls; }})()") == [
        {"from": 7e6, "to": 12e6, "why": "b"}
    ]


def test_what_was_forgotten_begins_with_what_the_first_event_says() -> None:
    assert lanes(event(1, "promoted"), state(5, "ready", "recovering"))["a"] == [
        ("ready", 1, 5),
        ("recovering", 5, None),
    ]


def test_a_clock_that_was_set_back() -> None:
    assert lanes(state(9, "x", "joining"), state(5, "joining", "active"))["a"] == [
        ("joining", 9, 9),
        ("active", 9, None),
    ]


def test_what_is_drawn() -> None:
    spans = [{"state": "ready", "from": 0, "to": 50}, {"state": "active", "from": 150, "to": None}]
    lane = {"name": "a", "spans": spans, "marks": [{"at": 99, "text": "x"}, {"at": 175, "text": "y"}]}
    found = run("drawn(lane, 100, 200)", lane=lane)
    assert [(each["x"], each["width"]) for each in found["spans"]] == [(500, 500)]
    assert [(each["x"], each["text"]) for each in found["marks"]] == [(750, "y")]
    assert [each["width"] for each in run("drawn(lane, 0, 1e12)", lane=lane)["spans"]] == [2, 1000], "none vanishes"


HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</title><script>alert(1)</script>",
    "__proto__",
    "constructor",
    "\u202egnp.exe\u0000\u200b",
    "x" * 100_000,
    '" onload="alert(1)',
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text(name: str) -> None:
    events = [
        *PROMOTION,
        event(7, "membership", peer=name, result="ready"),
        state(8, "active", name),
        event(8, "relocate", peer=name, reason=name, **{name: name}),
        event(9, name, reason={"toString": 1}),
    ]
    answer = {"history": name, "next": 5, "missed": 7, "events": events}
    script = """(() => {
      const t = new Timeline();
      t.take(answer);
      t.show(name, 0, 20e6);
      return [at('lanes'), at('happened'), at('range').textContent, t.query];
    })()"""
    shown, listed, said, query = run(script, answer=answer, name=name)
    found = list(elements(shown))
    kinds = {each["kind"] for each in found}
    assert kinds == {"lanes", "tr", "th", "td", "svg", "rect", "title"} and "7 events were missed" in said
    names = {value for each in found for value in each["attributes"].items()}
    assert all(value.startswith(("is-", "mark")) for key, value in names if key == "class")
    assert {key for key, _ in names} <= {"viewBox", "preserveAspectRatio", "role", "x", "y", "width", "height", "class"}
    assert all(len(each["textContent"]) < 400 and "\u202e" not in each["textContent"] for each in found)
    assert len(listed["children"]) == 7 and all(len(each["textContent"]) < 400 for each in listed["children"])
    assert not set("<>\"' \u202e") & set(query)


def elements(found: Any) -> Any:
    yield found
    for each in found["children"]:
        yield from elements(each)


def test_very_many_members_are_bounded() -> None:
    events = [*PROMOTION, *(event(7, "membership", peer=f"m{number}", result="ready") for number in range(500))]
    assert len(lanes(*events)) == 20
    script = "(() => { const t = new Timeline(); for (const _ of Array(5)) t.take(answer); return t.events.length; })()"
    assert run(script, answer={"history": "h", "next": 5, "missed": 0, "events": events}) == 1000


def test_a_broker_that_has_begun_anew_begins_a_new_timeline() -> None:
    first = {"history": "h", "next": 3, "missed": 0, "events": list(PROMOTION)}
    script = """(() => {
      const t = new Timeline(), begun = t.query;
      t.take(first);
      const next = t.query;
      t.take(second);
      return [begun, next, t.events.length];
    })()"""
    queries = run(script, first=first, second={**first, "history": "other", "events": [PROMOTION[0]]})
    path = "ha/events?type=ha.*&limit=1000"
    assert queries == [path, f"{path}&since=3&history=h", 1]
