"""What the event log and a supervisor are told of this broker."""

from __future__ import annotations

from typing import Any

from ha.model.settings import HaSettings
from ha.node import Node
from ha.shell.shutdown import is_last
from qpidd_py.config import LinkSettings
from qpidd_py.options import Settings
from qpidd_py.store.service import Store as Journal


def journal_read(store: Journal, node: Node) -> dict[str, Any]:
    """What the disk has brought back, for the event `journal_read`."""
    local = node.local
    found: dict[str, Any] = {"last_pos": local.engine.position or None, "attrs": store.facts}
    if store.damaged:
        return {"result": "damaged", "reason": store.damaged, "attrs": {}}
    if not local.engine.position:
        return {"result": "empty"}
    partial = "" if local.whole else local.copied or "the in-sync set does not list what it holds"
    return {**found, "result": "partial" if partial else "whole", "reason": partial}


def started(node: Node) -> dict[str, object]:
    """Identity of this broker, for the event `start`."""
    return {
        "broker_id": node.local.id,
        "address": node.local.settings.address,
        "brokers": len(node.local.settings.brokers),
    }


def configured(settings: Settings) -> dict[str, object]:
    """Options that bound the duration of a fail-over, in seconds; for the event `start`."""
    options, links = settings[HaSettings], settings[LinkSettings]
    return {
        "ha-safety": options.safety,
        "ha-registry": options.registry,
        "ha-backup-timeout": options.ha_backup_timeout,
        "ha-promote-timeout": options.ha_promote_timeout,
        "ha-isolation-wait": options.ha_isolation_wait,
        "ha-isolation-timeout": options.ha_isolation_timeout,
        "link-heartbeat-interval": links.link_heartbeat_interval,
        "link-maintenance-interval": links.link_maintenance_interval,
    }


def notice(node: Node) -> dict[str, str]:
    """The state for a supervisor; see `PluginHost.tell`."""
    score = node.candidacy.score
    if node.local.state.is_primary:
        text = f"{node.local.state.value}: primary of epoch {node.local.epoch}"
    else:
        may = "must not be promoted now" if score is None else f"promotion score {score}"
        text = f"{node.local.state.value}: backup, {may}"
    return {
        "STATUS": text,
        "X_QPID_STATE": node.local.state.value,
        "X_QPID_SCORE": "" if score is None else str(score),
        "X_QPID_LAST": "1" if is_last(node) else "",
    }
