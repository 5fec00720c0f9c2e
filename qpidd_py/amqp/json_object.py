"""JSON objects that come from a peer or from a file.  Pure."""

from __future__ import annotations

import json
from typing import Any


def read_object(text: bytes | str) -> dict[str, Any]:
    """Raises ValueError, in words for people, for everything else than one object; also for one nested too deeply, and
    for the numbers NaN and Infinity, which are no JSON."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at octet {error.start}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}, expected an object")
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"not JSON: {name}")
