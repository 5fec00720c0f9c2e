"""The MEMBERSHIP operation, the only one that HA itself writes to the log."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ha.model.membership import InSync
from ha.model.protocol import short_text
from qpidd_py.amqp.json_object import read_object
from qpidd_py.errors import LinkError


@dataclass(frozen=True)
class Membership:
    """From this position on this set counts."""

    in_sync: InSync
    added: str = ""
    """Id of the backup that the primary has just found complete.  It becomes ready when it applies this operation,
    because then it holds everything before it."""

    def encode(self) -> bytes:
        value = {"op": "membership", "added": self.added, "in_sync": self.in_sync.to_json()}
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, payload: bytes) -> Membership:
        """Raises LinkError for anything else than a membership operation."""
        try:
            value = read_object(payload)
        except ValueError as error:
            raise LinkError(f"membership operation: {error}") from error
        if value.get("op") != "membership":
            raise LinkError(f"not a membership operation: {payload[:80]!r}")
        return cls(InSync.from_json(value.get("in_sync")), short_text(value, "added"))
