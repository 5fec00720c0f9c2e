// The members' states in time, from the events ha.* of this broker.  Nothing of an event is taken for HTML.
"use strict";
const LANES = 20, TEXT = 60, KEPT = 1000, LISTED = 15;
const PRIMARY = ["recovering", "active"], WAITS = "Confirms wait";
const STATES = ["standalone", "joining", "catchup", "ready", "recovering", "active", "lost", "late", "stalled"];

// Signs that turn the direction of a text or cannot be seen are shown as one that can.
const short = text => {
  const plain = typeof text === "object" ? JSON.stringify(text ?? "") : String(text ?? "");
  const signs = [...plain.replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, "\ufffd")];
  return signs.length > TEXT ? signs.slice(0, TEXT).join("") + "…" : signs.join("");
};

// What an event says, for people.
function told(event) {
  const { number, time, event: name, attrs, last_pos, ...fields } = event;
  const words = Object.entries(fields).map(([field, value]) => `${short(field)}: ${short(value)}`);
  return [short(String(name).replace(/^ha\./, "")), ...words].join(", ");
}

class Lanes {
  constructor(self, from) {
    this.self = self;
    this.from = from;
    this.lanes = new Map();
    this.left = 0;
    this.state = "";
    this.lane(self);
  }

  lane(name) {
    if (!this.lanes.has(name) && this.lanes.size >= LANES) {
      this.left += 1;
      return { spans: [], marks: [] };
    }
    if (!this.lanes.has(name)) this.lanes.set(name, { name, spans: [], marks: [] });
    return this.lanes.get(name);
  }

  // From now on the member is in this state; "": nothing is known.
  become(name, state, at, why) {
    const { spans } = this.lane(name), last = spans[spans.length - 1];
    if (last && last.to === null) last.to = at;
    if (state) spans.push({ state, from: at, to: null, why });
  }

  add(event, at) {
    const { event: kind, peer = "", result = "", reason = "" } = event;
    if (kind === "ha.state") this.changed(event, at);
    else if (kind === "ha.isolated" || kind === "ha.resumed") {
      this.become(WAITS, result === "begun" ? "stalled" : "", at, reason || kind.slice(3));
    } else if (PRIMARY.includes(this.state) && peer) this.heard(kind, String(peer), result, at, reason);
    if (["ha.promoted", "ha.demote", "ha.relocate", "ha.primary_lost", "ha.salvage", "ha.twin", "ha.stop_request"].includes(kind)) {
      this.lane(this.self).marks.push({ at, text: told(event) });
    }
  }

  changed({ old, new: state, reason }, at) {
    const { spans } = this.lane(this.self);
    if (!spans.length && old && at > this.from) this.become(this.self, String(old), this.from, "");
    if (PRIMARY.includes(this.state) && !PRIMARY.includes(state)) {
      for (const name of this.lanes.keys()) if (name !== this.self) this.become(name, "", at);
    }
    this.state = state;
    this.become(this.self, String(state), at, reason);
  }

  // What a primary hears of its backups.
  heard(kind, peer, result, at, reason) {
    const states = { "ha.backup_connected": "joining", "ha.catchup_begin": "catchup", "ha.backup_lost": "lost" };
    if (Object.hasOwn(states, kind)) this.become(peer, states[kind], at, reason);
    else if (kind === "ha.membership" && result === "ready") this.become(peer, "ready", at, reason);
    else if (kind === "ha.membership" && result === "removed") this.become(peer, "lost", at, reason);
    else if (kind === "ha.backup_late") this.become(peer, result === "begun" ? "late" : "ready", at, reason);
  }
}

// `stalls`: {from, to, why} that the page has seen.  Times are microseconds; a clock that was set back stands still here.
function lanesOf(events, self, stalls) {
  const found = new Lanes(self, events.length ? events[0].time : 0);
  let at = 0;
  for (const event of events) found.add(event, at = Math.max(at, event.time));
  for (const { from, to, why } of stalls) found.lane(WAITS).spans.push({ state: "stalled", from, to, why });
  return { lanes: [...found.lanes.values()], left: found.left };
}

// What is drawn between two times, in thousandths of the width.
function drawn(lane, from, to) {
  const place = at => Math.round(1000 * Math.min(1, Math.max(0, (at - from) / Math.max(1, to - from))));
  const seen = lane.spans.filter(span => (span.to ?? to) >= from && span.from <= to);
  return { name: lane.name,
    spans: seen.map(span => ({ ...span, x: place(span.from), width: Math.max(2, place(span.to ?? to) - place(span.from)) })),
    marks: lane.marks.filter(mark => mark.at >= from && mark.at <= to).map(mark => ({ ...mark, x: place(mark.at) })) };
}

const PARTS = { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" };
const clock = time => new Date(time / 1000).toLocaleString(undefined, { ...PARTS, fractionalSecondDigits: 3 });

function shape(kind, attributes, title) {
  const { namespaceURI } = at("blank"), made = document.createElementNS(namespaceURI, kind), text = document.createElementNS(namespaceURI, "title");
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  text.textContent = title;
  made.append(text);
  return made;
}

function row(lane, from, to) {
  const made = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
  const { spans, marks } = drawn(lane, from, to), end = span => span.to === null ? "now" : clock(span.to);
  const picture = shape("svg", { viewBox: "0 0 1000 24", preserveAspectRatio: "none", role: "img" },
    `${short(lane.name)}: ${spans.length ? short(spans[spans.length - 1].state) : "nothing is known"}`);
  picture.append(...spans.map(span => shape("rect", { x: span.x, y: 4, width: span.width, height: 16,
    class: STATES.includes(span.state) ? `is-${span.state}` : "is-other" }, `${short(span.state)}, ${clock(span.from)} to ${end(span)}${span.why ? `: ${short(span.why)}` : ""}`)),
  ...marks.map(mark => shape("rect", { x: mark.x, y: 0, width: 3, height: 24, class: "mark" }, `${clock(mark.at)}: ${mark.text}`)));
  head.textContent = short(lane.name);
  head.scope = "row";
  head.title = lane.name;
  cell.append(picture);
  made.append(head, cell);
  return made;
}

// The events of one run of the broker, and what the page has seen of stalls.
class Timeline {
  constructor() {
    this.events = [];
    this.stalls = [];
    this.history = "";
    this.next = null;
    this.missed = 0;
  }

  get query() {
    const place = this.next === null ? "" : `&since=${this.next}&history=${encodeURIComponent(this.history)}`;
    return `ha/events?type=ha.*&limit=${KEPT}${place}`;
  }

  take(answer) {
    if (answer.history !== this.history) [this.events, this.missed] = [[], 0];
    this.missed += answer.missed;
    this.history = answer.history;
    this.next = answer.next;
    this.events = [...this.events, ...answer.events].slice(-KEPT);
  }

  stalled(found, now) {
    const last = this.stalls[this.stalls.length - 1], open = last && last.to === null;
    if (found && !open) this.stalls = [...this.stalls, { from: now - 1e6 * found.seconds, to: null, why: found.why }].slice(-100);
    if (!found && open) last.to = now;
  }

  show(self, seconds, now) {
    const { lanes, left } = lanesOf(this.events, self, this.stalls), first = this.events.length ? this.events[0].time : now;
    const from = seconds ? now - 1e6 * seconds : Math.min(first, now - 1e6);
    at("lanes").replaceChildren(...lanes.map(lane => row(lane, from, now)));
    at("range").textContent = `${clock(from)} to ${clock(now)}${left ? "; more members are not shown" : ""}${this.missed ? `; ${this.missed} events were missed` : ""}`;
    at("happened").replaceChildren(...this.events.slice(-LISTED).reverse().map(event => {
      const item = document.createElement("li");
      item.textContent = `${clock(event.time)} ${told(event)}`;
      return item;
    }));
  }
}
