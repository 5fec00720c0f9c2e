"""Received messages as text: the lines of Qpid's tool, or JSON (pure)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from client_lib.message import Message


def headers(message: Message) -> str:
    """As Qpid's tool writes them: one per line, then an empty line."""
    named = {
        "Subject": message.subject,
        "ReplyTo": message.reply_to,
        "MessageId": message.id,
        "CorrelationId": message.correlation_id,
        "UserId": message.user_id,
        "ContentType": message.content_type,
        "TTL": None if message.ttl is None else round(message.ttl * 1000),
        "Priority": message.priority or None,
        "Durable": "true" if message.durable else None,
        "Redelivered": "true" if message.redelivered else None,
    }
    lines = [f"{name}: {value}" for name, value in named.items() if value not in (None, "")]
    return "\n".join([*lines, f"Properties: {qpid_text(message.properties)}", "", ""])


def content(message: Message) -> bytes:
    """Octets as they are; maps and lists as Qpid writes them."""
    found = message.content
    return qpid_text(found).encode() if isinstance(found, Mapping | list) else message.body


def object_type(message: Message) -> str:
    """The content as the application would get it."""
    names: dict[type, str] = {bytes: "binary", str: "text", dict: "map", list: "list"}
    return names.get(type(message.content), "other")


def qpid_text(value: Any) -> str:
    """`{a:1, b:[x, true]}`."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}:{qpid_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(qpid_text, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def as_json(message: Message, with_headers: bool, with_content: bool) -> str:
    """One line; octets that are no text as `content_base64`."""
    found: dict[str, Any] = {}
    if with_headers:
        names = ("id", "subject", "reply_to", "correlation_id", "user_id", "content_type", "ttl", "priority", "durable")
        found.update((name, value) for name in names if (value := getattr(message, name)) is not None)
        found |= {"redelivered": message.redelivered, "properties": message.properties}
    if with_content:
        found |= _json_content(message.content)
    return json.dumps({"message": found}, default=_plain)


def _json_content(value: Any) -> dict[str, Any]:
    if isinstance(value, bytes):
        try:
            return {"content": value.decode()}
        except UnicodeDecodeError:
            return {"content_base64": base64.b64encode(value).decode()}
    return {"content": value}


def _plain(value: Any) -> Any:
    """Values that JSON lacks: octets, times, decimals."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
