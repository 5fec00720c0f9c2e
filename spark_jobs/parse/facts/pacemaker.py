"""Facts in the texts of Pacemaker's daemons, 1.1 to 3.0 (pure): the table of kinds.

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

from spark_jobs.parse.facts.rules import Fact, Rule, read, role, rule, split_op

_UNSET = ("(unset)", "(null)")
_CODES = {"0": "ok", "1": "error", "7": "not running", "8": "promoted", "9": "promoted (failed)"}
"""Names that 2.1 writes for agents' exit codes which 2.0 writes as numbers only."""
_RESULTS = {
    "master": "promoted",
    "master (failed)": "promoted (failed)",
    "failed in promoted role": "promoted (failed)",
}
"""Names of 2.0 and 3.0 that 2.1 has others for; 3.0 begins its names with a capital."""
_HOW = r"(?P<fence>reboot|off|poweroff)"
_VERBS = "Fence|Shutdown|Promote|Re-promote|Demote|Recover|Restart|Reload|Stop|Start|Move|Migrate"
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


_EVERYBODY = (
    rule(
        "peer_state",
        " state is now ",
        r"(?:\w+: )?Node (?P<peer>[^\s\[]+)(?:\[\d+\] -)? state is now (?P<new>\w+)(?: \(was (?P<old>\w+)\))?",
        previous="old",
        source="origin",
    ),
)
_CONTROLD = (
    *_EVERYBODY,
    rule("fsa", "State transition ", r"State transition (?P<old>S_\w+) -> (?P<new>S_\w+)", None, input="reason"),
    rule("quorum", "uorum ", r"(?:Membership \d+: q|Q)uorum (?P<new>acquired|lost)\b"),
    rule(
        "op_unexpected",
        "): expected '",
        r"Transition (?P<trans>-?\d+) action (?P<action>-?\d+) \((?P<op>\S+) on (?P<target>\S+)\): "
        r"expected '(?P<want>[^']*)' but got '(?P<result>[^']*)'",
        _result,
    ),
    rule(
        "op_unexpected",
        " failed (target: ",
        r"Action (?P<action>\d+) \((?P<op>\S+)\) on (?P<target>\S+) failed "
        r"\(target: (?P<want>\S+) vs\. rc: (?P<rc>\d+)\)(?:: (?P<result>[^|]*))?",
        _result,
    ),
    rule(  # of 1.1: it does not say where
        "op_unexpected",
        "Detected action (",
        r"Detected action \((?P<trans>-?\d+)\.(?P<action>-?\d+)\) (?P<op>\S+)\.(?P<call>-?\d+)="
        r"(?P<result>[^:|]*): failed",
        _result,
    ),
    rule(
        "op_confirmed",
        ") confirmed: ",
        r"Transition (?P<trans>-?\d+) action (?P<action>\d+) \((?P<op>\S+) on (?P<target>\S+)\) confirmed: "
        r"(?P<result>[^|]*)",
        _result,
    ),
    rule(
        "op_confirmed",
        ") confirmed on ",
        r"Action (?P<op>\S+) \((?P<action>\d+)\) confirmed on (?P<target>\S+) \(rc=(?P<rc>\d+)\)",
        _result,
    ),
    rule(
        "abort",
        " aborted",
        r"Transition (?:(?P<trans>-?\d+) )?aborted(?: by (?P<by>.+?))?: (?P<reason>[^|]*)",
        _abort,
        source="origin",
    ),
    rule(
        "graph",
        "Processing graph ",
        r"Processing graph (?P<trans>\d+) \(ref=(?P<ref>[^)]+)\)(?: derived from (?P<pe>\S+))?",
    ),
    rule(
        "initiate",
        "Initiating ",
        r"Initiating (?P<task>\S+) operation (?P<op>\S+) (?P<local>locally )?on (?P<target>\S+)"
        r"(?: without waiting)?(?: \| action (?P<action>\d+))?",
        _operation,
    ),
    rule(
        "op_request",
        "Requesting local execution of ",
        r"Requesting local execution of (?P<task>\S+) operation for (?P<resource>\S+) on (?P<target>\S+)"
        r"(?: \| transition(?:_key=| )(?P<action>\d+):(?P<trans>-?\d+):(?P<target_rc>\d+):(?P<uuid>\S+))?",
        _keyed,
    ),
    rule(
        "op_request",
        "Performing key=",
        r"Performing key=(?P<action>\d+):(?P<trans>-?\d+):(?P<target_rc>\d+):(?P<uuid>\S+) op=(?P<op>\S+)",
        _operation,
    ),
    rule(
        "initiate",
        "Initiating action ",
        r"Initiating action (?P<action>\d+): (?P<task>\S+) (?P<op>\S+) on (?P<target>\S+)",
        _operation,
    ),
    rule(
        "op_result",
        "peration ",
        r"(?:LRM o|O)peration (?P<op>\w\S*_\d+)(?: \(call=\d+, (?:rc=(?P<rc>\d+)|status=)[^)]*\) |: )"
        r"(?P<result>[A-Za-z][^(|]*)"
        r"(?:\(node=(?P<target>[^,)\s]+)[^)]*\))?",
        _result,
    ),
    rule(
        "op_result",
        "Result of ",
        r"Result of (?P<task>\S+) operation for (?P<resource>\S+) on (?P<target>\S+): (?P<result>[^|]*)",
        _result,
    ),
    rule(
        "fence_request",
        "Requesting fencing ",
        rf"Requesting fencing \({_HOW}\) (?:of|targeting) node (?P<peer>\S+)",
    ),
    rule("fence_request", " fencing operation ", rf"Executing {_HOW} fencing operation \(\d+\) on (?P<peer>\S+)"),
    rule(
        "fence_notify",
        " terminated (",
        rf"Peer (?P<peer>\S+) was (?P<negated>not )?terminated \({_HOW}\) by (?P<by>\S+(?: \w+)?) "
        r"(?:on behalf of|for) (?P<client>[^:]+): (?P<result>[^|]*?)(?: \(ref=(?P<ref>[^)]+)\).*)?(?: \||$)",
        _fenced,
    ),
    rule("self_fenced", "allegedly", r"We were allegedly just fenced by (?P<by>\S+) for (?P<origin>.*?)!"),
)
_SCHEDULERD = (
    *_EVERYBODY,
    rule(
        "sched_failed_op",
        "Unexpected result (",
        r"Unexpected result \((?P<result>.*?)\) was recorded for (?P<task>\S+) of (?P<resource>\S+) on (?P<target>\S+)"
        r"(?: at (?P<at>[^|]*))?",
        _operation,
        id="failure",
    ),
    rule(
        "sched_failed_op",
        "Processing failed ",
        r"Processing failed (?:op )?(?P<task>\S+) (?:of|for) (?P<resource>\S+) on (?P<target>[^\s:]+): "
        r"(?P<result>[^|]*)",
        _operation,
        id="failure",
    ),
    rule(
        "will_fence",
        " will be fenced",
        r"(?:(?:Cluster|Remote|Guest) node |Node )?(?P<peer>\S+) will be fenced(?: because |: | \()(?P<reason>[^|]*)",
    ),
    rule("will_fence", " for STONITH", r"Scheduling Node (?P<peer>\S+) for STONITH"),
    rule("plan", " ", rf"(?:Actions:|\*)\s+(?P<verb>{_VERBS})\s+(?P<rest>.*)$", _plan),
    rule("plan", "(", rf"(?P<verb>{_VERBS})\s+(?P<rest>\S+\s+\(.*)$", _plan),
    rule(
        "calculated",
        "Calculated ",
        r"Calculated [tT]ransition (?P<trans>\d+)(?: \(with (?P<severity>\w+)\))?"
        r"(?:(?:, saving inputs in |: )(?P<pe>\S+))?",
    ),
)
_FENCED = (
    *_EVERYBODY,
    rule(  # the controller says so itself
        "fence_request",
        " wants to fence ",
        rf"Client (?P<client>(?!pacemaker-controld|crmd)\S+) wants to fence \({_HOW}\) '?(?P<peer>[^\s']+)'?",
    ),
    rule("fence_device", "Added '", r"Added '(?P<device>[^']+)' to (?:the )?device list"),
    rule(
        "fence_delay",
        "Delaying ",
        r"Delaying '?(?P<fence>\w+)'?(?: action)?(?: targeting (?P<peer>\S+))? (?:on|using) (?P<device>\S+) "
        r"for (?P<delay>[\d.]+m?s)",
    ),
    rule(
        "fence_op_done",
        "Operation ",
        rf"Operation '?{_HOW}'? (?:targeting|of) (?P<peer>\S+) (?:by|on) (?P<by>\S+(?: \w+)?) "
        r"for (?P<client>[^\s:]+)(?: \(merged\))?: (?!Result arrived too late)(?P<result>[^|]*)",
        _fenced,
    ),
)
_ATTRD = (
    *_EVERYBODY,
    rule(
        "attr",
        "Setting ",
        r"Setting (?P<name>\S+?)\[(?P<target>[^\]]+)\](?: in (?P<set>\S+))?: (?P<old>.*?) -> (?P<new>.*?)"
        r"(?: \|)? from (?P<writer>\S+)",
        _attribute,
    ),
)
_PACEMAKERD = (
    *_EVERYBODY,
    rule(
        "daemon_exit",
        "pacemaker-",
        r"(?:Subdaemon )?(?P<child>pacemaker-\w+)\[(?P<child_pid>\d+)\] (?:is )?"
        r"(?P<result>exited with status (?!0\b)[^|]*|terminated with signal [^|]*|unresponsive(?=.* killed\b))",
        _exited,
    ),
    rule(
        "daemon_exit",
        " process ",
        r"(?:The|Child process) (?P<child>[\w-]+) (?:process )?\((?P<child_pid>\d+)\) "
        r"(?P<result>terminated with [^|]*|exited(?!: OK)[^|]*|can no longer be respawned)",
        _exited,
    ),
    rule(
        "daemon_exit",
        " had fatal failure",
        r"Shutting cluster down because (?P<child>[\w-]+)\[(?P<child_pid>\d+)\] had (?P<result>fatal failure)",
    ),
    rule("stop_request", "Shutting down Pacemaker", r"Shutting down Pacemaker"),
    rule("start", "Starting Pacemaker ", r"Starting Pacemaker (?P<version>\S+)"),
    rule("stopped", "Shutdown complete", r"Shutdown complete"),
)
RULES: dict[str, tuple[Rule, ...]] = {
    "pacemaker-controld": _CONTROLD,
    "pacemaker-schedulerd": _SCHEDULERD,
    "pacemaker-fenced": _FENCED,
    "pacemaker-attrd": _ATTRD,
    "pacemakerd": _PACEMAKERD,
}


def fact_of(daemon: str, body: str) -> Fact | None:
    """What a line of one of Pacemaker's daemons says; None if it is none of the kinds."""
    return read(RULES.get(daemon, _EVERYBODY), body)
