"""Facts in the texts of Pacemaker's daemons, 1.1 to 3.0 (pure): `pacemaker.toml` has the kinds.

Both wordings of a fact give the same columns:

    peer             the node (or, for plans, the node where it is to be) that the line is about
    old, new         states, roles, values of attributes (an attribute without a value is left out)
    attrs            trans, action: of the transition; op (`broker_promote_0`), task (`promote`), resource;
                     target: node; ref, pe; event: of a fencing; fence: `reboot` or `off`; rc, call; cause, origin; ...

Texts: lib/pengine, daemons/controld, daemons/fenced, daemons/attrd, daemons/pacemakerd of Pacemaker 2.0.1 and 2.1.5,
read from real logs; those of 1.1.10 to 1.1.14 and of 3.0 from their sources.

No facts: an unfencing (`on`), a daemon that ended with status 0 (each stop in order does it), one that did not answer
once, and a fencing's result that came when another one had been told.
"""

from __future__ import annotations

import re
from typing import Final

from spark_jobs.parse.facts.rules import Fact, Finish, read, role, rules, split_op

_UNSET = ("(unset)", "(null)")
_CODES = {"0": "ok", "1": "error", "7": "not running", "8": "promoted", "9": "promoted (failed)"}
"""Names that 2.1 writes for agents' exit codes which 2.0 writes as numbers only."""
_RESULTS = {
    "master": "promoted",
    "master (failed)": "promoted (failed)",
    "failed in promoted role": "promoted (failed)",
}
"""Names of 2.0 and 3.0 that 2.1 has others for; 3.0 begins its names with a capital."""
_OPERATORS = re.compile(r"standby|cli-(?:prefer|ban|standby)|maintenance|shutdown")
_NODES = re.compile(r"\((?P<places>[^()]*)\)\s*(?P<reason>.*)$")


def _operation(fact: Fact) -> None:
    """Resource and task, where the line has only the operation's key; and the node as `peer`."""
    parts = split_op(fact.attrs.get("op", ""))
    if parts is not None:
        fact.attrs.setdefault("resource", parts[0])
        fact.attrs.setdefault("task", parts[1])
    if "target" in fact.attrs:
        fact.columns.setdefault("peer", fact.attrs["target"])


def _keyed(fact: Fact) -> None:
    for pair in (("op_key", "op"), ("key", "op"), ("call-id", "call"), ("target-rc", "target_rc")):
        if pair[0] in fact.attrs:
            fact.attrs.setdefault(pair[1], fact.attrs.pop(pair[0]))
    fact.attrs.pop("transition_key", None)
    _operation(fact)


def _result(fact: Fact) -> None:
    """2.0: `0 (ok)`, `7 (not running)`; 2.1: `ok`, `error (exit reason)`."""
    _keyed(fact)
    match = re.match(r"(\d+) \((.*)\)$", fact.columns.get("result", ""))
    if match:
        fact.columns["result"] = match[2]
        fact.attrs.setdefault("rc", match[1])
    elif fact.columns.get("result") in ("", None) and "rc" in fact.attrs:
        fact.columns["result"] = _CODES.get(fact.attrs["rc"], f"rc {fact.attrs['rc']}")
    plain = fact.columns["result"].lower()
    if plain in _RESULTS or plain in _CODES.values():
        fact.columns["result"] = _RESULTS.get(plain, plain)
        return
    head, found, detail = fact.columns["result"].partition(" (")
    if found and detail.endswith(")"):
        fact.columns["result"], fact.columns["reason"] = head, detail[:-1]


def _plan(fact: Fact) -> None:
    verb, rest = fact.attrs.pop("verb"), fact.attrs.pop("rest", "")
    fact.attrs["task"] = verb.lower()
    if verb in ("Fence", "Shutdown"):
        how, node, reason = re.match(r"(?:\((\w+)\)\s+)?(\S*)\s*(.*)$", rest, re.DOTALL).groups()  # type: ignore[union-attr]
        fact.columns |= {"peer": node} | ({"reason": reason.strip("'")} if reason else {})
        fact.attrs |= {"fence": how} | ({"task": "unfence"} if how == "on" else {}) if how else {}
        fact.planned = verb == "Shutdown"
        return
    resource, behind = (*rest.split(maxsplit=1), "")[:2]
    fact.attrs["resource"] = resource
    if match := _NODES.search(behind):
        _places(fact, match["places"])
        reason = match["reason"].strip().removeprefix("due to ")
        fact.columns |= {"reason": reason} if reason else {}


def _places(fact: Fact, text: str) -> None:
    """`Unpromoted -> Promoted node2`, `node1 -> node2`, `Promoted node1 -> Unpromoted node2`, `node1`."""
    before, arrow, after = text.partition("->")
    for side, column, key in (
        (before if arrow else "", "old", "origin"),
        (after if arrow else before, "new", "target"),
    ):
        for word in side.split():
            if named := role(word):
                fact.columns[column] = named
            else:
                fact.attrs[key] = word
    if "target" not in fact.attrs and "origin" in fact.attrs:
        fact.attrs["target"] = fact.attrs["origin"]
    if "target" in fact.attrs:
        fact.columns["peer"] = fact.attrs["target"]


def _attribute(fact: Fact) -> None:
    fact.columns["peer"] = fact.attrs["target"]
    for name in ("old", "new"):
        if fact.columns.get(name) in _UNSET:
            del fact.columns[name]
    value = fact.columns.get("new", "off")
    # a node that shuts down sets an attribute first: the leave that follows is planned
    fact.planned = fact.attrs["name"] in ("shutdown", "standby", "maintenance") and value not in ("off", "0", "false")


def _abort(fact: Fact) -> None:
    """An operator's change of the configuration or of an attribute; not what a resource of such a name did."""
    text = f"{fact.attrs.get('by', '')} {fact.attrs.get('path', '')}"
    changed = re.search(r"Configuration|attribute|Non-status", fact.columns.get("reason", ""))
    fact.planned = changed is not None and _OPERATORS.search(text) is not None


def _fenced(fact: Fact) -> None:
    """2.0 ends the client with `@ORIGIN.EVENT`; 2.1 has ` | id=EVENT`."""
    client = fact.attrs.get("client", "")
    name, at, origin = client.partition("@")
    if at:
        origin, dot, event = origin.rpartition(".") if re.search(r"\.[0-9a-f]{8}$", origin) else (origin, "", "")
        fact.attrs |= {"client": name, "origin": origin} | ({"event": event} if dot else {})
    for key in ("id", "ref"):
        if key in fact.attrs:
            fact.attrs.setdefault("event", fact.attrs.pop(key))
    if "initiator" in fact.attrs:
        fact.attrs.setdefault("origin", fact.attrs.pop("initiator"))
    fact.attrs["event"] = fact.attrs.get("event", "")[:8]
    if not fact.attrs["event"]:
        del fact.attrs["event"]
    if fact.attrs.pop("negated", None):
        fact.columns["new"] = "not terminated"
    result, found, detail = fact.columns.get("result", "").partition(" (")
    fact.columns["result"] = result
    if found and detail.rstrip(")") != "complete":
        fact.columns["reason"] = detail.rstrip(")")


def _exited(fact: Fact) -> None:
    fact.columns["result"] = re.sub(r"^(?:exited|terminated) with ", "", fact.columns["result"]).rstrip(".")


_FINISHERS: Final[dict[str, Finish]] = {
    "operation": _operation,
    "keyed": _keyed,
    "result": _result,
    "plan": _plan,
    "attribute": _attribute,
    "abort": _abort,
    "fenced": _fenced,
    "exited": _exited,
}
_RULES: Final = rules("pacemaker", _FINISHERS)


def fact_of(daemon: str, body: str) -> Fact | None:
    """What a line of one of Pacemaker's daemons says; None if it is none of the kinds."""
    return read((*_RULES["everybody"], *_RULES.get(daemon, ())), body)
