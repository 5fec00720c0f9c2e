"""The output of `meta-data`; valid by the RelaxNG schema of OCF 1.1, and by the DTD of resource-agents, which is older
and by which `ocf-tester` checks: what is new is declared."""

from qpidd_agent.parameters import DEFAULTS, FALLBACKS

SHORT = "AMQP 0-9-1 broker qpidd, active-passive"

LONG = """
The message broker qpidd as a promotable clone: one instance is promoted and serves clients (the primary), the
others are backups that hold a hot copy of all replicated queues. Use it with promotable=true, promoted-max=1,
notify=false, and an address (ocf:qpid:vip) colocated with the promoted instance.

Start never promotes: Pacemaker chooses the primary by a promotion score that each broker computes from what it holds.
A broker refuses a promotion that could lose confirmed messages; the reason is shown as exit reason of the failed
action. Demote works in place, and the broker goes on as backup.

Recurring monitors are held: they end when something is wrong, or after half of their timeout. So Pacemaker learns of
the death of a broker at once, with any interval; the interval is only the time between two monitors, in which the
broker is not watched. Use a short interval and a timeout of about 20 s. A primary that hangs for longer than the
parameter heartbeat is killed. The death of a primary is reported by the monitor of the unpromoted role, unless on-fail
of the promoted one is fence, block, standby or stop: then by that one.

Set on-fail=demote for promote and for the monitor of the promoted role, and do not set migration-threshold: a broker
that is stopped loses the messages in its memory, one that is demoted keeps them. A broker that has died is restarted
as soon as another one has been promoted.

A changed parameter restarts no broker: with the action reload-agent a broker reads its configuration file again, as
with SIGHUP; its log says which options wait for a restart. On a node whose last action was a demote Pacemaker calls no
reload-agent: there the next monitor does the same, once, and logs "not reloaded by Pacemaker". Binary, config, port,
data_dir, user and options, and a heartbeat below 1s, count from the next start of each broker: qpid-cluster
rolling-restart --manager pacemaker.
"""

PARAMETERS = (
    (
        "binary",
        "string",
        "The broker",
        "The program qpidd.",
    ),
    (
        "config",
        "string",
        "Configuration file",
        "Configuration file of the broker (qpidd.conf). It also contains the agent's login to the broker: "
        "ha-username and ha-password (SASL PLAIN). Parameters that are not given are taken from it.",
    ),
    (
        "port",
        "integer",
        "Port",
        f"The port on which the broker listens. Default: that of the configuration file, else {FALLBACKS['port']}.",
    ),
    (
        "data_dir",
        "string",
        "Data directory",
        "The directory of the broker's lock, vote and event logs. Default: that of the configuration "
        f"file, else {FALLBACKS['data-dir']}. Each node needs its own; it must not be shared.",
    ),
    (
        "user",
        "string",
        "User of the process",
        "The user that runs the broker. With ha-registry=pacemaker it must be a member of the group haclient.",
    ),
    (
        "options",
        "string",
        "More options",
        "Further options for the command line of the broker, such as --log-enable debug+:HA. They override the file.",
    ),
    (
        "heartbeat",
        "string",
        "Silence after which a primary counts as hung",
        "The event loop of the broker sends four signs of life in this time to the held monitor. A primary that sends "
        "none for this time, and does not answer on its port either, is killed, so that a backup can be promoted. A "
        "backup gets twice the time if an active primary answers. Without one a backup, and a primary that holds the "
        "only copy of some messages, get the whole time of the monitor. Units are s and ms.",
    ),
)

ACTIONS = (
    'name="start" timeout="60s"',
    'name="stop" timeout="60s"',
    'name="promote" timeout="30s"',
    'name="demote" timeout="30s"',
    'name="notify" timeout="20s"',
    'name="reload-agent" timeout="20s"',
    'name="monitor" timeout="20s" interval="1s" role="Promoted" depth="0"',
    'name="monitor" timeout="20s" interval="2s" role="Unpromoted" depth="0"',
    'name="validate-all" timeout="20s"',
    'name="meta-data" timeout="5s"',
)


def metadata() -> str:
    parameters = "\n".join(_parameter(*parameter) for parameter in PARAMETERS)
    actions = "\n".join(f"<action {attributes}/>" for attributes in ACTIONS)
    return f"""<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd" [
<!ATTLIST parameter reloadable (1|0) "0">
<!ATTLIST action name CDATA #REQUIRED>
]>
<resource-agent name="qpidd" version="1.0">
<version>1.1</version>
<longdesc lang="en">{_escaped(LONG)}</longdesc>
<shortdesc lang="en">{SHORT}</shortdesc>
<parameters>
{parameters}
</parameters>
<actions>
{actions}
</actions>
</resource-agent>"""


def _parameter(name: str, kind: str, short: str, long: str) -> str:
    default = f' default="{DEFAULTS[name]}"' if DEFAULTS[name] else ""
    return f"""<parameter name="{name}" reloadable="1" required="0">
<longdesc lang="en">
{_escaped(long)}
</longdesc>
<shortdesc lang="en">{_escaped(short)}</shortdesc>
<content type="{kind}"{default}/>
</parameter>"""


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
