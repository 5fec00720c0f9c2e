"""Facts in Corosync's texts, 2.4 and 3.1 (pure): the table of kinds.

A ring is `REPRESENTATIVE.SEQUENCE` (3.1, hexadecimal) or `ADDRESS:SEQUENCE` (2.4): attrs `ring`, `rep`, `ring_seq`.
The same ring on two nodes is the same instant; the same sequence under two representatives is a partition.
Nodes are numbers here; `parse.lines` replaces them by names (`attrs.host` keeps the number).

Texts: exec/totemsrp.c, exec/totemknet.c, exec/vsf_quorum.c, exec/main.c.
"""

from __future__ import annotations

import re

from spark_jobs.parse.facts.rules import Fact, Rule, read, rule


def _ring(fact: Fact) -> None:
    match = re.match(r"(.+)[.:]([0-9a-f]+)$", fact.attrs["ring"])
    if match:
        fact.attrs |= {"rep": match[1], "ring_seq": match[2]}


def _host(fact: Fact) -> None:
    fact.columns["peer"] = fact.attrs["host"]


RULES: tuple[Rule, ...] = (
    rule("token_warning", "Token has not", r"Token has not been received in (?P<ms>\d+) ms"),
    rule(
        "token_lost",
        "A processor failed",
        r"A processor failed, forming new configuration"
        r"(?::? token timed out \((?P<token>\d+)ms\), waiting (?P<consensus>\d+)ms for consensus)?",
    ),
    rule(
        "membership",
        "A new membership",
        r"A new membership \((?P<ring>[^)]+)\) was formed\. Members(?: joined:(?P<joined>(?: \d+)+))?"
        r"(?: left:(?P<left>(?: \d+)+))?",
        _ring,
    ),
    rule(
        "leave_missed",
        "Failed to receive the leave",
        r"Failed to receive the leave message\.(?: failed:(?P<nodes>(?: \d+)+))?",
    ),
    rule("members", "Members[", r"Members\[(?P<count>\d+)\]:(?P<nodes>[ \d]*)"),
    rule(
        "quorum_state",
        "This node is within",
        r"This node is within the (?P<new>primary|non-primary) component",
    ),
    rule("no_links", "has no active links", r"host: host: (?P<host>\d+) has no active links", _host),
    rule("link_down", "is down", r"link: host: (?P<host>\d+) link: (?P<link>\d+) is down", _host),
    rule(
        "sched_pause",
        "was not scheduled",
        r"Corosync main process was not scheduled (?:\(@(?P<at>\d+)\) )?for (?P<ms>[\d.]+) ms"
        r"(?: \(threshold is (?P<threshold>[\d.]+) ms\))?",
    ),
    rule("sched_pause", "Process pause", r"Process pause detected for (?P<ms>\d+) ms"),
    rule("start", "Corosync Cluster Engine", r"Corosync Cluster Engine \(?'?(?P<version>[\d.]+)'?\)?:? start"),
    rule("stopped", "exiting normally", r"Corosync Cluster Engine exiting normally"),
)


def fact_of(body: str) -> Fact | None:
    """What a line of Corosync says; None if it is none of the kinds."""
    return read(RULES, body)
