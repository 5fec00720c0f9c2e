"""Which modules of `ha` a plain `make mutants` tries: those of which every survivor was reviewed, that is killed by a
new test or excused with a reason (`equivalent.yaml`).  Each module of `ha` is on exactly one list."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

REVIEWED: Final = (
    "backup/staging",
    "model/difference",
    "model/membership",
    "model/position",
    "model/safety",
    "model/state_file",
    "primary/roster",
    "promotion/claims",
    "promotion/promotion",
    "promotion/takeover",
    "registry/recorder",
)
UNREVIEWED: Final[Mapping[str, tuple[str, ...]]] = {
    "it decides what is safe; its survivors are not reviewed yet (judged by the simulator and its planted mistakes)": (
        "backup/backup",
        "backup/finder",
        "backup/joining",
        "backup/salvager",
        "model/disk",
        "model/operations",
        "model/protocol",
        "model/status",
        "model/survey",
        "model/twins",
        "model/view",
        "node",
        "primary/arrivals",
        "primary/brokers",
        "primary/catchup",
        "primary/failing",
        "primary/losses",
        "primary/peer",
        "primary/primary",
        "primary/relocation",
        "primary/slow",
        "promotion/promoter",
        "qpid_cluster/election",
        "registry/view",
        "requests",
        "role",
        "salvage/copies",
        "salvage/files",
        "salvage/selection",
    ),
    "it is about when and whom, not about what is safe; its survivors are not reviewed yet": (
        "primary/stall",
        "promotion/candidacy",
        "promotion/score",
        "qpid_cluster/supervision",
        "qpid_cluster/supervisor",
        "shell/asker",
        "shell/shutdown",
        "single_queue/follower",
        "single_queue/link",
        "single_queue/source",
    ),
    "it only reports: a mistake misleads people and loses nothing": (
        "backup/advice",
        "model/allowance",
        "model/clock_readings",
        "primary/lag",
        "primary/removals",
        "qpid_cluster/events",
        "shell/client_rows",
        "shell/events",
        "shell/queue_dump",
    ),
    "it speaks with sockets, files and other programs, or reads options: real processes judge it (tests/integration)": (
        "environment",
        "model/public_url",
        "plugin",
        "qpid_cluster/admin_link",
        "qpid_cluster/control",
        "qpid_cluster/main",
        "qpid_cluster/processes",
        "qpid_cluster/shell",
        "registry/attributes",
        "registry/commands",
        "registry/file",
        "registry/helper",
        "registry/living",
        "registry/pacemaker",
        "registry/steps",
        "registry/worker",
        "salvage/door",
        "salvage/publisher",
        "settings",
        "shell/cluster_hooks",
        "shell/connection_guard",
        "shell/connector",
        "shell/core_link",
        "shell/environment",
        "shell/standalone",
    ),
    "it is a command, or writes files for other programs: its output is compared as a whole (tests/unit)": (
        "qpid_cluster/cluster_file",
        "qpid_cluster/cluster_values",
        "qpid_cluster/deployment",
        "qpid_cluster/render",
        "qpid_ha/ask",
        "qpid_ha/cluster",
        "qpid_ha/commands",
        "qpid_ha/main",
        "qpid_ha/output",
        "qpid_ha/parser",
        "qpid_ha/replicate",
        "qpid_ha/salvage",
    ),
}
"""Reason -> modules; `render` is a package."""


def said() -> str:
    """For people: what was left out, and why."""
    lines = [f"reviewed, and tried: {' '.join(REVIEWED)}"]
    lines += [f"not tried, {reason}: {' '.join(names)}" for reason, names in UNREVIEWED.items()]
    return "\n".join(lines)
