"""What the options make of a broker without its shell: the broker itself, and what watches its memory."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from qpidd_py.amqp.sasl import NOBODY
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.limits import Limits
from qpidd_py.broker.memory import MemoryWatch
from qpidd_py.broker.pager import Pager
from qpidd_py.broker.settings import Key
from qpidd_py.config import (
    SMALLEST_MEMORY,
    BrokerSettings,
    DataSettings,
    LinkSettings,
    NetworkSettings,
    SecuritySettings,
)
from qpidd_py.core import Paging
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Amount, as_tag
from qpidd_py.options import Settings
from qpidd_py.security.entries import USER
from qpidd_py.security.users import Users
from qpidd_py.server.memory import available, resident
from qpidd_py.store.pages import TEMPORARY, PageFile, PageThread

log = logging.getLogger(__name__)


def make_broker(settings: Settings, address: str, version: str) -> Broker:
    name = settings[BrokerSettings].broker_name or address
    broker = Broker(name, version=version, clocks=lambda: (time.time_ns() // 1000, time.monotonic_ns() // 1000))
    broker.federation_tag = settings[LinkSettings].federation_tag or as_tag(name)
    security = settings[SecuritySettings]
    broker.anonymous = security.anonymous_user or ("" if security.auth else NOBODY)
    retune(broker, settings)
    return broker


def retune(broker: Broker, settings: Settings) -> None:
    """Limits, for clients that come from now on."""
    options, network = settings[BrokerSettings], settings[NetworkSettings]
    limits = Limits(
        connections=network.max_connections,
        connections_per_user=network.max_connections_per_user,
        connections_per_ip=network.max_connections_per_ip,
        queues=options.max_queues,
        queues_per_user=options.max_queues_per_user,
    )
    broker.retune(limits, options.heartbeat)
    broker.engine.max_message_size = options.max_message_size
    broker.engine.frame_max = options.frame_max
    broker.engine.max_transaction = options.max_transaction
    broker.engine.max_transaction_size = options.max_transaction_size
    broker.time_consumers(options.consumer_timeout)


def follow_users(broker: Broker, users: Users, security: SecuritySettings) -> None:
    """Logins and rights are those of the cluster's settings, too.  The user of ANONYMOUS has the rights that these say,
    also if that name comes into the user file later.  Raises ConfigError."""
    anonymous = security.anonymous_user
    if anonymous and users.local(anonymous):
        text = f"found {anonymous}, who is in the user file or guest, expected a user of the cluster (qpidctl add_user)"
        raise ConfigError(f"option anonymous-user: {text}")
    settings = broker.settings

    def look(key: Key) -> None:
        if key.kind == USER:
            entry = settings.get(key)
            users.keep(key.name, None if entry is None else entry["hash"])

    settings.watchers.append(look)
    broker.rights.checked, broker.rights.names = security.auth, users.names
    broker.rights.local = lambda user: user != anonymous and users.local(user)


def watch_memory(
    broker: Broker, limit: Amount, files: DataSettings, data_dir: Path | None, restarts: Callable[[], bool]
) -> tuple[MemoryWatch | None, PageThread | None]:
    """Neither without a limit; no thread if all stays in memory.  `restarts`: as of `Pager`.  Raises ConfigError."""
    measure, pool = resident(), broker.engine.pool
    octets = limit.of(available())
    if limit.percent and octets < SMALLEST_MEMORY:
        log.warning("memory-limit: %s are only %d octets here; %d are taken", limit, octets, SMALLEST_MEMORY)
        octets = SMALLEST_MEMORY
    if not octets and files.page_folder not in ("", "no"):
        raise ConfigError(f"option page-folder: found {files.page_folder} with memory-limit=0, expected a limit")
    broker.figures["memory"] = lambda: {"resident": measure(), "limit": octets, "segments": pool.held()}
    if not octets:
        return None, None
    file = _page_file(files, data_dir, pool.segment_size)
    if file is None:
        return MemoryWatch(broker, octets, measure, None), None
    thread = PageThread(file, pool.segment_size)
    where = f"the page file in {file.folder}"
    pager = thread.told = Pager(broker, Paging(broker.engine, file.fill), thread, octets, where)
    pager.restarts = restarts
    broker.figures["paged"] = pager.shown
    return MemoryWatch(broker, octets, measure, pager), thread


def _page_file(files: DataSettings, data_dir: Path | None, slot_size: int) -> PageFile | None:
    """It is made now; without one everything stays in memory."""
    if files.page_folder == "no":
        return None
    folder = Path(files.page_folder).expanduser() if files.page_folder else data_dir or TEMPORARY
    try:
        return PageFile(folder, slot_size, files.disk_free_limit)
    except OSError as error:
        if files.page_folder:
            raise ConfigError(f"option page-folder: {folder} cannot be used: {error.strerror}") from error
        log.warning("no page file in %s: %s; messages stay in memory", folder, error.strerror)
        return None
