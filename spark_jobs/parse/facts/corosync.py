"""Facts in Corosync's texts, 2.4 and 3.1 (pure): `corosync.toml` has the kinds.

A ring is `REPRESENTATIVE.SEQUENCE` (3.1, hexadecimal) or `ADDRESS:SEQUENCE` (2.4): attrs `ring`, `rep`, `ring_seq`.
The same ring on two nodes is the same instant; the same sequence under two representatives is a partition.
Nodes are numbers here; `parse.lines` replaces them by names (`attrs.host` keeps the number).

Texts: exec/totemsrp.c, exec/totemknet.c, exec/vsf_quorum.c, exec/main.c.
"""

from __future__ import annotations

import re
from typing import Final

from spark_jobs.parse.facts.rules import Fact, read, rules


def _ring(fact: Fact) -> None:
    match = re.match(r"(.+)[.:]([0-9a-f]+)$", fact.attrs["ring"])
    if match:
        fact.attrs |= {"rep": match[1], "ring_seq": match[2]}


def _host(fact: Fact) -> None:
    fact.columns["peer"] = fact.attrs["host"]


_RULES: Final = rules("corosync", {"ring": _ring, "host": _host})["corosync"]


def fact_of(body: str) -> Fact | None:
    """What a line of Corosync says; None if it is none of the kinds."""
    return read(_RULES, body)
