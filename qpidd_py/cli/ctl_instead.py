"""Verbs of rabbitmqctl that `qpidctl` has not, and what to use.                                                Pure."""

import re
from collections.abc import Mapping
from typing import Final


def _each(text: str, *verbs: str) -> Mapping[str, str]:
    return dict.fromkeys(verbs, text)


INSTEAD: Final[Mapping[str, str]] = {
    **_each(
        "a backup gets all that it lacks by itself when it joins, all queues together, while clients go on: there is"
        " nothing to begin or cancel; `qpid-ha status --all -v` shows how far it is",
        "sync_queue",
        "cancel_sync_queue",
    ),
    **_each(
        "the members are those of ha-brokers-url; `qpid-ha member list`, `add` and `remove` change them",
        "join_cluster",
        "forget_cluster_node",
        "update_cluster_nodes",
        "rename_cluster_node",
        "change_cluster_node_type",
    ),
    **_each(
        "the resource manager or systemd stops and starts a broker, `qpidd --quit` stops one; `qpid-ha relocate` hands"
        " over first",
        "stop",
        "shutdown",
        "stop_app",
        "start_app",
        "suspend_listeners",
        "resume_listeners",
    ),
    **_each("stop the broker and remove its data-dir", "reset", "force_reset"),
    **_each(
        "`qpidctl ping` and `qpid-ha status --expect active` until they succeed",
        "wait",
        "await_startup",
        "await_online_nodes",
    ),
    **_each("`qpidctl alarms`, `qpid-ha status`", "node_health_check"),
    **_each("`qpid-ha status -v` names what stands still, and why", "list_unresponsive_queues"),
    **_each(
        "it is an option of the broker, see `qpidd --help` and SIGHUP: memory-limit, log-enable, ha-cluster-name",
        "set_vm_memory_high_watermark",
        "set_log_level",
        "set_cluster_name",
    ),
    **_each("a journal that cannot be written holds publishers back by itself", "set_disk_free_limit"),
    **_each("logrotate does it, see packaging", "rotate_logs"),
    **_each("`qpid-printevents`; what became of a message tells `failover-report`", "trace_on", "trace_off"),
    **_each("`qpid-printevents`, and the broker's log", "list_node_auth_attempt_stats"),
    **_each(
        "there are no global parameters", "set_global_parameter", "clear_global_parameter", "list_global_parameters"
    ),
    **_each("there are no feature flags", "enable_feature_flag", "list_feature_flags"),
    **_each("passwords are in files: password-file, ha-password-file", "encode", "decode"),
    **_each("the broker runs no code of others", "eval", "eval_file", "exec"),
    **_each("after a total failure `qpid-ha promote --force`", "force_boot"),
    **_each("a virtual host is not a process of its own", "restart_vhost"),
    **_each("a virtual host has no tags", "set_vhost_tags"),
    **_each("the broker decides that", "force_gc", "hipe_compile"),
    **_each("TLS is that of the system's OpenSSL, see ssl-cert", "list_ciphers"),
    **_each("scrypt, and SCRAM-SHA-256 with --scram", "list_hashes"),
    **_each("`qpidctl --help`", "help"),
    **_each("`qpidctl --version` and `qpidctl status`", "version"),
}


def instead(error: str) -> str:
    """What to use instead of the verb that this error of the parser says is unknown; empty if it is of nobody."""
    found = re.search(r"argument VERB: invalid choice: '(\w+)'", error)
    return f"{found[1]}: {INSTEAD[found[1]]}" if found is not None and found[1] in INSTEAD else ""
