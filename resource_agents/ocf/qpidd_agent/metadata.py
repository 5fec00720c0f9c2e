"""What `meta-data` prints; valid against the DTD of resource-agents and the RelaxNG schemas of OCF 1.0 and 1.1."""

from qpidd_agent.parameters import DEFAULTS, FALLBACKS

SHORT = "AMQP 0-9-1 broker qpidd, active-passive"

LONG = """
The message broker qpidd as a promotable clone: one instance is promoted and serves clients (the primary), the
others are backups that hold a hot copy of all replicated queues. To be used with promotable=true, promoted-max=1,
notify=false, and an address (ocf:heartbeat:IPaddr2) colocated with the promoted instance.

Start never promotes: Pacemaker decides who is primary, by a promotion score that each broker computes from what it
holds. A broker refuses a promotion that could lose confirmed messages; the reason is then shown as exit reason of
the failed action. Demote works in place, the broker goes on as backup.

Recurring monitors are held: they end when something is wrong, or after half of their timeout. The death of a broker
is therefore told to Pacemaker at once, whatever the interval; the interval only is the time in which nobody looks.
Give them a short interval and a timeout of 20 s or so. A primary that hangs for longer than the parameter heartbeat
is killed.

Set on-fail=demote for promote and for the monitor of the promoted role, and leave migration-threshold alone: a broker
that was stopped has lost its memory, one that was demoted keeps it. A broker that has died is started again at once,
after another one was promoted.
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
        "Configuration file of the broker (qpidd.conf). It also has the login with which the broker is steered: "
        "ha-username and ha-password (SASL PLAIN). What is not given as a parameter comes from there.",
    ),
    (
        "port",
        "integer",
        "Port",
        "The port on which the broker listens. If it is not given, that of the configuration file, "
        f"else {FALLBACKS['port']}.",
    ),
    (
        "data_dir",
        "string",
        "Data directory",
        "Where the broker keeps its lock, its vote and its event logs. If it is not given, that of the configuration "
        f"file, else {FALLBACKS['data-dir']}. Each node needs its own; it must not be shared.",
    ),
    (
        "user",
        "string",
        "User of the process",
        "The user as whom the broker runs. With ha-registry=pacemaker the user must be a member of the group haclient.",
    ),
    (
        "options",
        "string",
        "More options",
        "Further options for the command line of the broker, such as --log-enable debug+:HA. They win over the file.",
    ),
    (
        "heartbeat",
        "string",
        "Silence after which a primary counts as hung",
        "The event loop of the broker gives a sign of life four times in this time, to the monitor that is held. A "
        "primary that gives none for so long, and does not answer on its port either, is killed, so that a backup can "
        "be promoted. A backup, and a primary that holds the only copy of something, get the whole time of the monitor."
        " Takes s and ms; a change counts from the next start on.",
    ),
)

ACTIONS = (
    'name="start" timeout="60s"',
    'name="stop" timeout="60s"',
    'name="promote" timeout="30s"',
    'name="demote" timeout="30s"',
    'name="notify" timeout="20s"',
    'name="monitor" timeout="20s" interval="1s" role="Promoted" depth="0"',
    'name="monitor" timeout="20s" interval="2s" role="Unpromoted" depth="0"',
    'name="validate-all" timeout="20s"',
    'name="meta-data" timeout="5s"',
)


def metadata() -> str:
    parameters = "\n".join(_parameter(*parameter) for parameter in PARAMETERS)
    actions = "\n".join(f"<action {attributes}/>" for attributes in ACTIONS)
    return f"""<?xml version="1.0"?>
<!DOCTYPE resource-agent SYSTEM "ra-api-1.dtd">
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
    return f"""<parameter name="{name}" unique="0" required="0">
<longdesc lang="en">
{_escaped(long)}
</longdesc>
<shortdesc lang="en">{_escaped(short)}</shortdesc>
<content type="{kind}"{default}/>
</parameter>"""


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
