"""One node's copy of Pacemaker's configuration, and what `cibadmin` prints of it.

As Pacemaker 2.1.5 in the lab (`tests/unit/ha/test_registry_view.py` has an answer of it), or with times for truth as
from 2.1.7 on.  A write of an attribute needs no quorum: pacemaker-based has left that check out since 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

MEMBER: Final = "member"
LOST: Final = "lost"
GONE: Final = "gone"
PENDING: Final = "pending"
_STATES: Final = {
    MEMBER: ("yes", "yes", "member", "member"),
    LOST: ("no", "no", "down", "member"),
    GONE: ("no", "no", "down", "down"),
    PENDING: ("yes", "yes", "down", "member"),
}
"""in_ccm, crmd, join, expected.  `down` is expected of a node that was fenced, or whose cluster stack was stopped."""


@dataclass(frozen=True)
class Cib:
    """Never changed, only replaced."""

    nodes: tuple[str, ...]
    admin_epoch: int = 0
    """Never changed by Pacemaker itself."""
    epoch: int = 0
    """Changes of the configuration."""
    updates: int = 0
    """Changes of the status since the last of these."""
    quorum: bool = False
    values: dict[str, str] = field(default_factory=dict)
    """By node."""
    states: dict[str, str] = field(default_factory=dict)
    """By node; none of one that its reader has not seen since it started."""

    @property
    def generation(self) -> tuple[int, int, int]:
        return self.admin_epoch, self.epoch, self.updates

    def written(self, node: str, value: str) -> Cib:
        """The same value again is no change."""
        if self.values.get(node) == value:
            return self
        return replace(self, epoch=self.epoch + 1, updates=0, values={**self.values, node: value})

    def raised(self, number: int) -> Cib:
        """cibadmin sets admin_epoch; a lower one is refused."""
        if number <= self.admin_epoch:
            return self
        return replace(self, admin_epoch=number, updates=self.updates + 1)

    def seen(self, states: dict[str, str], quorum: bool) -> Cib:
        """A change of the status."""
        return replace(self, updates=self.updates + 1, states={**self.states, **states}, quorum=quorum)

    def document(self, attribute: str, times: bool) -> str:
        """`times`: the newer form of in_ccm and crmd."""
        lines = ["<xpath-query>", f"  {self._head()}"]
        for number, node in enumerate(self.nodes, 1):
            lines += [f'  <node id="{number}" uname="{node}"/>', *self._pair(number, node, attribute)]
        lines += [self._state(number, node, times) for number, node in enumerate(self.nodes, 1) if node in self.states]
        return "\n".join([*lines, "</xpath-query>\n"])

    def _head(self) -> str:
        counters = f'admin_epoch="{self.admin_epoch}" epoch="{self.epoch}" num_updates="{self.updates}"'
        return f'<cib crm_feature_set="3.16.1" {counters} have-quorum="{self.quorum:d}"/>'

    def _pair(self, number: int, node: str, attribute: str) -> Iterable[str]:
        if value := self.values.get(node):
            yield f'  <nvpair id="nodes-{number}-{attribute}" name="{attribute}" value="{value}"/>'

    def _state(self, number: int, node: str, times: bool) -> str:
        in_ccm, crmd, join, expected = _STATES[self.states[node]]
        words = {"yes": ("true", "online"), "no": ("false", "offline")}
        if times:
            words = {"yes": ("1700000000", "1700000000"), "no": ("0", "0")}
        return (
            f'  <node_state id="{number}" uname="{node}" in_ccm="{words[in_ccm][0]}" crmd="{words[crmd][1]}"'
            f' crm-debug-origin="simulator" join="{join}" expected="{expected}"/>'
        )
