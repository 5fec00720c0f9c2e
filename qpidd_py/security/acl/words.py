"""The words of an ACL file: what can be done, and by which properties it is told apart.                        Pure.

`PAIRS` has the lookups that a broker of AMQP 0-9-1 makes.  A word of Qpid's that means nothing here is refused with
the reason (`WHY_NOT`), since a rule that never matches would look like one that protects.
"""

from collections.abc import Mapping
from typing import Final

Pair = tuple[str, str]
"""Action and object."""

ALL: Final = "all"
ACCESS, BIND, CONSUME, CREATE = "access", "bind", "consume", "create"
DELETE, MOVE, PUBLISH, PURGE = "delete", "move", "publish", "purge"
REROUTE, UNBIND = "reroute", "unbind"
QUEUE, EXCHANGE, LINK, METHOD, QUERY, CONNECTION = "queue", "exchange", "link", "method", "query", "connection"

NAME: Final = "name"
KEY: Final = "routingkey"
HOST: Final = "host"
FLAGS: Final = ("durable", "autodelete", "exclusive")
POLICY: Final = "policytype"
POLICIES: Final = ("reject", "ring", "self-destruct")
CLASS: Final = "schemaclass"
CLASSES: Final = (
    *("acl", "binding", "broker", "channel", "event", "exchange", "ha", "limit", "parameter", "permission"),
    *("policy", "queue", "session", "shovel", "subscription", "topic", "user"),
)
"""First words of management requests."""
COUNT: Final = "queuemaxcount"
SIZE: Final = "queuemaxsize"
LOWER, UPPER = "lowerlimit", "upperlimit"
LIMITS: Final = tuple(f"{of}{bound}" for of in (COUNT, SIZE) for bound in (LOWER, UPPER))
OLD_NAMES: Final = {"maxqueuecount": f"{COUNT}{UPPER}", "maxqueuesize": f"{SIZE}{UPPER}"}

_EXCHANGE: Final = frozenset((NAME, "type", "alternate", "durable", "autodelete"))
_QUEUE: Final = frozenset((NAME, "alternate", *FLAGS, POLICY))
_BINDING: Final = frozenset((NAME, "queuename", KEY))
PAIRS: Final[Mapping[Pair, frozenset[str]]] = {
    (ACCESS, EXCHANGE): _EXCHANGE,
    (ACCESS, METHOD): frozenset((NAME, CLASS)),
    (ACCESS, QUERY): frozenset((NAME, CLASS)),
    (ACCESS, QUEUE): _QUEUE | {*LIMITS},
    (BIND, EXCHANGE): _BINDING,
    (CONSUME, QUEUE): frozenset((NAME, *FLAGS)),
    (CREATE, EXCHANGE): _EXCHANGE,
    (CREATE, LINK): frozenset(),
    (CREATE, QUEUE): _QUEUE | {*LIMITS},
    (DELETE, EXCHANGE): _EXCHANGE - {"autodelete"},
    (DELETE, QUEUE): _QUEUE,
    (MOVE, QUEUE): frozenset((NAME, "queuename")),
    (PUBLISH, EXCHANGE): frozenset((NAME, KEY)),
    (PURGE, QUEUE): frozenset((NAME,)),
    (REROUTE, QUEUE): frozenset((NAME, "exchangename")),
    (UNBIND, EXCHANGE): _BINDING,
}
"""The properties of each lookup.  Connections have rules of their own (`hosts`)."""
ACTIONS: Final = tuple(sorted({action for action, _ in PAIRS}))
OBJECTS: Final = tuple(sorted({*(what for _, what in PAIRS), CONNECTION}))
PROPERTIES: Final = tuple(sorted({HOST}.union(*PAIRS.values())))

_PAGES: Final = "every queue leaves memory for the page file when there is need"
_FILES: Final = "a queue has no files of its own, all are in one journal"
WHY_NOT: Final[Mapping[str, str]] = {
    "redirect": "queues cannot be redirected here",
    "update": "no request changes the broker's time stamps; settings are changed by requests, `access method`",
    "broker": "no request is about the broker's time stamps; other requests are `method` and `query`",
    "virtualhost": "rules hold in all virtual hosts; permissions are for one",
    "route": "there is no federation",
    "paging": _PAGES,
    **{f"{of}{bound}": _PAGES for of in ("pages", "pagefactor") for bound in (LOWER, UPPER)},
    **{f"{of}{bound}": _FILES for of in ("filemaxcount", "filemaxsize") for bound in (LOWER, UPPER)},
    "schemapackage": f"requests are told apart by name and {CLASS}",
    "owner": "no lookup has it",
    "passive": "a passive declaration is `access`, another one `create`",
}
