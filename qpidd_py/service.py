"""Puts one broker together and runs it: engine, reactor, broker, ports, plug-ins, ticks; and how it stops.

Everything runs on one asyncio loop.  An exception from the data path is a defect of the broker (errors of peers end in
`ClientConnection.failed`): the process ends at once, because a broker in a contradictory state must not confirm.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from qpidd_py.acl_file import AclFile
from qpidd_py.assembly import follow_users, make_broker, retune, watch_memory
from qpidd_py.broker.broker import Broker
from qpidd_py.broker.memory import ReserveWatch
from qpidd_py.broker.state_dump import state_dump
from qpidd_py.config import BrokerSettings, DataSettings, LinkSettings, NetworkSettings, SecuritySettings, is_loopback
from qpidd_py.core import Reactor
from qpidd_py.core.memory import hold_reserve, reserve_uses
from qpidd_py.doorman import Doorman, Ports
from qpidd_py.errors import EXIT_DISK, ConfigError, InvariantError, PageError, ReplyCode
from qpidd_py.journal_reading import STOPS, JournalReading
from qpidd_py.logrules import log_notice
from qpidd_py.management import amqp_door
from qpidd_py.options import Settings
from qpidd_py.plugins import Plugin, PluginHost, Reading, Request, linking_users
from qpidd_py.reload import Check, reload
from qpidd_py.security.users import read_users
from qpidd_py.security.verifier import Verifier
from qpidd_py.server.collector import Collector
from qpidd_py.server.heartbeat import Ticker, tick_interval
from qpidd_py.server.listener import Listener, bound_addresses, listening_sockets
from qpidd_py.server.loop import BrokerLoop
from qpidd_py.server.notify import Notifier, take_environment
from qpidd_py.server.tls import context
from qpidd_py.store.service import NAME, Store

log = logging.getLogger(__name__)

INSIST_TIME: Final = 10.0  # seconds in which a second signal stops a broker that has refused the first
STOP_TIME: Final = 1.0  # seconds that clients have to answer our close, all in all
BACKUP_STOP_TIME: Final = 0.2  # the same on a backup, whose clients were closed when it stepped down
CORE_TICK: Final = 0.25  # seconds between two ticks of the core


class Service:
    """One broker process: the constructor binds the ports, `read_journal` reads the journal, `run` serves."""

    def __init__(
        self, settings: Settings, plugins: Sequence[Plugin], data_dir: Path | None, version: str, broken: int
    ) -> None:
        """`broken` is the exit code for a broken invariant.  Raises `ConfigError` or `OSError`."""
        self._settings = settings
        self._plugins = list(plugins)
        self._data_dir = data_dir
        self._broken = broken
        self._version = version
        self._exit_code = 0
        self._core_tick_due = 0.0
        self._expiry: asyncio.TimerHandle | None = None
        self._insist_until = 0.0
        self._environment = take_environment(os.environ)
        self._reload_waits = False  # until the ports are open, or the reading of before has ended
        self._reloading = False
        self._listener: Listener | None = None
        self.on_refused: Callable[[str], None] = lambda text: None
        """Called with the reason when a signal to stop was refused."""
        self.read_settings: Callable[[], Settings] = lambda: settings
        """Reads them again, for SIGHUP."""
        self._on_reload: list[Check] = []
        network, security = settings[NetworkSettings], settings[SecuritySettings]
        self._tls_context = context(security)
        self._users = read_users(security.user_file)
        if security.auth and security.user_file is None and _reachable(network.interface):
            log.warning("there is no user-file: guest/guest may log in from this machine, and no client from elsewhere")
        self._sockets = _bind(network, network.port) if not security.require_encryption else []
        self._tls_sockets = _bind(network, security.ssl_port) if self._tls_context is not None else []
        plain, encrypted = bound_addresses(self._sockets), bound_addresses(self._tls_sockets, tls=True)
        self._addresses = plain + encrypted
        self.port = self._addresses[0].port
        self._broker = make_broker(settings, str(self._addresses[0]), version)
        self._broker.options = lambda: self._settings.shown()
        self._broker.known_hosts = network.known_hosts_url
        follow_users(self._broker, self._users, security)
        self._acl = AclFile(settings, linking_users(plugins, settings))
        self._acl.bring(self._broker)
        reactor = self._reactor = Reactor(self._broker.engine)
        self._broker.figures["turns"] = lambda: {"took": reactor.durations, "seconds": reactor.busy / 1e9}
        self._reserve = ReserveWatch(self._broker, hold_reserve, reserve_uses)
        self._broker.engine.pool.look_ahead()
        files = settings[DataSettings]
        limit = settings[BrokerSettings].memory_limit
        self._memory, self._pages = watch_memory(self._broker, limit, files, data_dir, self._restarts)
        self._store: Store | None = None
        if files.journal and data_dir is not None:
            self._store = Store(
                self._broker,
                data_dir,
                files.journal_segment_size,
                files.disk_free_limit,
                files.journal_sync,
                applied=self._memory.look if self._memory is not None else lambda: None,
            )
        elif data_dir is not None and (data_dir / NAME).exists():
            log.warning("there is a journal in %s, and it is not read: option journal is no", data_dir)

    def read_journal(self, busy: Callable[[str], None]) -> bool:
        """Call in the main thread, before `run`; `busy` hears how far it is, if it takes long.  False: a signal has
        ended it, and nothing was changed.  Raises ConfigError."""
        if self._store is None:
            return True
        reading = JournalReading(self._store, self._doorman(self._store, busy))
        done = reading.run()
        self._reload_waits = reading.reload_waits
        return done

    def _doorman(self, store: Store, busy: Callable[[str], None]) -> Doorman:
        settings, address = self._settings, str(self._addresses[0])
        reading = Reading(settings, self._broker.name, store.progress, self._add_user, self._tls_context)
        answers: list[Request] = list(filter(None, (plugin.reading(reading) for plugin in self._plugins)))
        ports = Ports(
            self._sockets,
            self._tls_sockets,
            self._tls_context,
            settings[NetworkSettings],
            settings[BrokerSettings],
            self._users if settings[SecuritySettings].auth else None,
            self._environment,
        )

        def make() -> Broker:
            broker = make_broker(settings, address, self._version)
            broker.use_acl(self._acl.rules)
            return broker

        return Doorman(
            make,
            ports,
            store.progress,
            lambda *request: any(answer(*request) for answer in answers),
            self._guard,
            busy,
        )

    async def run(self, ready: Callable[[], None]) -> int:
        """Serves until a signal or a failure; returns the exit code of the process."""
        loop = asyncio.get_running_loop()
        self._loop = loop
        self._end = loop.create_future()
        self._turn_scheduled = False
        loop.set_exception_handler(self._loop_failed)
        for number in STOPS:
            loop.add_signal_handler(number, self._signalled, signal.Signals(number).name)
        loop.add_signal_handler(signal.SIGHUP, self._guard, self._reload)
        loop.add_signal_handler(signal.SIGUSR1, self._guard, self._dump)
        self._broker.engine.schedule = self._schedule_turn
        self._broker.engine.on_deadline = self._expire_at
        amqp_door.install(self._broker, self._version, self._defer)
        self._verifier = Verifier(self._users, loop, self._guard)
        if self._settings[SecuritySettings].auth:
            self._broker.authenticate = self._verifier
            self._broker.scram = lambda: self._users.has_scram
            self._verifier.on_refused = lambda line: self._broker.events.note("clientConnectFail", reason=line)
        self._broker.settings.watchers.append(lambda key: self._verifier.users_changed())
        self._collector = Collector(loop.time)
        self._notifier = Notifier(loop, self._environment)
        if self._pages is not None:
            self._pages.start(loop, self._guard)
        if self._store is not None:
            self._store.open(loop, self._guard, self._fail)
        self._attach_plugins()
        if self._store is not None:
            self._store.begin()
            await self._first(self._store.settled())
        if not self._end.done():
            await self._serve(loop, ready)
        await self._shut_down(self._end.result())
        self._notifier.close()
        return self._exit_code

    async def _serve(self, loop: asyncio.AbstractEventLoop, ready: Callable[[], None]) -> None:
        """From the first client to the signal or failure that ends it."""
        listener = await self._open()
        ticker = Ticker(loop, self._tick_interval(), lambda now: self._guard(lambda: self._tick(listener, now)))
        ticker.start()
        ready()
        self._notifier.ready()
        if self._reload_waits:
            self._guard(self._reload)
        reason = await self._end
        self._notifier.stopping(reason)
        ticker.stop()
        listener.close()

    # ---- starting

    async def _first(self, step: Coroutine[Any, Any, None]) -> None:
        """Wait for a step of the start, or until the process is to end."""
        task = self._loop.create_task(step)
        await asyncio.wait((task, self._end), return_when=asyncio.FIRST_COMPLETED)
        task.cancel()

    def _attach_plugins(self) -> None:
        host = PluginHost(
            loop=self._loop,
            engine=self._broker.engine,
            reactor=self._reactor,
            broker=self._broker,
            settings=self._settings,
            name=self._broker.name,
            data_dir=self._data_dir,
            fail=self._fail,
            add_user=self._add_user,
            addresses=self._addresses,
            tls=self._tls_context,
            users=self._users,
            tell=self._notifier.tell,
            on_reload=self._on_reload,
            store=self._store,
        )
        for plugin in self._plugins:
            hooks = plugin.attach(host)
            if hooks is not None and self._broker.hooks is not None:
                raise ConfigError(f"plug-in {plugin.name}: only one plug-in may watch the broker")
            if hooks is not None:
                self._broker.hooks = hooks

    def _add_user(self, name: str, password: str) -> None:
        self._users.add(name, password)
        self._broker.couriers.add(name)

    async def _open(self) -> Listener:
        network, limits = self._settings[NetworkSettings], self._settings[BrokerSettings]
        listener = self._listener = Listener(self._loop, self._broker, self._reactor, network, limits, self._guard)
        if isinstance(self._loop, BrokerLoop):
            self._loop.turns.serve(self._reactor, self._guard)
        else:
            self._loop.add_reader(self._reactor.fileno(), self._guard, self._reactor.poll)
        listener.open(self._sockets)
        if self._tls_context is not None:
            listener.open(self._tls_sockets, self._tls_context)
            log_notice(log, "TLS on %s", ", ".join(str(each)[4:] for each in self._addresses if each.tls))
        for plugin in self._plugins:
            plugin.start()
        log_notice(log, "Broker running on %s", self._addresses[0])
        return listener

    def _restarts(self) -> bool:
        """Whether a restart brings back what the page file has lost, and nothing else does."""
        return self._store is not None and not (self._broker.hooks and self._broker.hooks.cluster)

    def _tick_interval(self) -> float:
        return tick_interval(self._settings[LinkSettings].link_heartbeat_interval)

    # ---- running

    def _tick(self, listener: Listener, now: float) -> None:
        listener.tick(now)
        self._verifier.tick(now)
        self._broker.tick(now)
        if self._memory is not None:
            self._memory.tick(now)
        self._reserve.tick(now)
        self._collector.tick(now, self._broker.engine.published + self._broker.engine.delivered)
        if now >= self._core_tick_due:
            self._core_tick_due = now + CORE_TICK
            self._broker.engine.now = time.time_ns() // 1_000_000
            self._broker.engine.tick()
        self._broker.engine.end_turn()

    def _schedule_turn(self) -> None:
        """The core asks for an end of turn outside `poll`; repeated requests cause only one."""
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _expire_at(self, when: int) -> None:
        """Messages expire then, in ms since 1970; earlier than what was asked for last."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_later(max(0.0, when / 1000 - time.time()), self._guard, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._broker.engine.now = time.time_ns() // 1_000_000
        self._broker.engine.expire_due()

    def _defer(self, seconds: float, work: Callable[[], None]) -> None:
        self._loop.call_later(seconds, self._guard, work)

    def _turn(self) -> None:
        self._turn_scheduled = False
        self._guard(self._broker.engine.end_turn)

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except PageError as error:
            self._die_of(error)
        except Exception:
            log.critical("the data path failed; the broker ends", exc_info=True)
            self._die(self._broken)

    def _die_of(self, error: InvariantError) -> None:
        log.critical("%s; the broker ends", error)
        self._die(EXIT_DISK if isinstance(error, PageError) else self._broken)

    def _die(self, exit_code: int) -> None:
        """Ends at once: no buffer is written any more, so nothing is confirmed from a broken state."""
        logging.shutdown()
        os._exit(exit_code)

    def _loop_failed(self, loop: asyncio.AbstractEventLoop, found: dict[str, Any]) -> None:
        error = found.get("exception")
        log.error("%s", found.get("message", "a callback failed"), exc_info=error)
        if isinstance(error, InvariantError):
            self._die_of(error)

    # ---- stopping

    def _signalled(self, name: str) -> None:
        """SIGTERM, SIGINT, SIGQUIT or SIGUSR2.  A plug-in may refuse once; a second signal within INSIST_TIME is not
        refused."""
        now = self._loop.time()
        insists = now <= self._insist_until
        refusal = "" if insists else next(filter(None, (plugin.may_stop() for plugin in self._plugins)), "")
        if not refusal:
            self._stop(name)
            return
        self._insist_until = now + INSIST_TIME
        text = f"{refusal}; a second signal within {INSIST_TIME:g} s stops the broker"
        log.error("%s is refused: %s", name, text)
        self.on_refused(text)

    def _users_changed(self) -> None:
        """The user file was read again."""
        self._verifier.users_changed()
        self._broker.users_changed()

    def _reload(self) -> None:
        self._reload_waits = self._listener is None or self._reloading
        if self._listener is not None and not self._reloading:
            self._reloading = True
            self._reload_on(self._reload_steps(self._listener))

    def _reload_on(self, steps: Iterator[None]) -> None:
        """One step in each turn of the loop."""
        for _ in steps:
            self._loop.call_soon(self._guard, lambda: self._reload_on(steps))
            return
        self._reloading = False
        if self._reload_waits:
            self._reload()

    def _reload_steps(self, listener: Listener) -> Iterator[None]:
        try:
            fresh = self.read_settings()
            renewed = self._settings.renewed(fresh)
            use_acl = yield from self._acl.prepare(renewed)
            reload(renewed, self._users, self._tls_context, self._users_changed, self._on_reload)
        except (ConfigError, OSError) as error:
            log.error("SIGHUP: nothing is changed: %s", error)
            return
        use_acl(self._broker)
        changed, waiting = self._settings.changed(fresh)
        self._settings = renewed
        self._retune(listener)
        log_notice(log, "SIGHUP: log rules, user file and certificates are read")
        if changed:
            log_notice(log, "SIGHUP: changed: %s", ", ".join(changed))
        if waiting:
            log.warning("SIGHUP: these options wait for a restart: %s", ", ".join(waiting))

    def _retune(self, listener: Listener) -> None:
        """Limits and offers, for clients that come from now on."""
        network = self._settings[NetworkSettings]
        retune(self._broker, self._settings)
        self._broker.known_hosts = network.known_hosts_url
        listener.retune(network, self._settings[BrokerSettings])

    def _dump(self) -> None:
        """SIGUSR1: the state, for the log."""
        for line in state_dump(self._broker):
            log_notice(log, "%s", line)

    def _stop(self, reason: str) -> None:
        if not self._end.done():
            self._end.set_result(reason)

    def _fail(self, reason: str, exit_code: int) -> None:
        """For plug-ins: stops the data path now, then ends the process with `exit_code`."""
        log.critical("%s", reason)
        self._loop.remove_reader(self._reactor.fileno())
        self._exit_code = exit_code
        self._stop(reason)

    async def _shut_down(self, reason: str) -> None:
        log_notice(log, "stopping: %s", reason)
        deadline = self._loop.time() + (BACKUP_STOP_TIME if self._broker.passive else STOP_TIME)
        if not self._exit_code:
            self._broker.close_clients(ReplyCode.CONNECTION_FORCED, f"broker {self._broker.name} is stopping")
            self._broker.engine.end_turn()
            await self._until(deadline, lambda: all(each.link is not None for each in self._broker.connections))
        for plugin in self._plugins:
            plugin.stop(reason)
        if not self._exit_code:
            self._broker.engine.end_turn()
            for connection in list(self._broker.connections):
                connection.close(ReplyCode.CONNECTION_FORCED, "broker is stopping")
            await self._until(deadline, lambda: len(self._reactor) == 0)
        self._loop.remove_reader(self._reactor.fileno())
        self._verifier.close()
        if self._store is not None:
            self._store.stop()
        if self._pages is not None:
            self._pages.stop()

    async def _until(self, deadline: float, done: Callable[[], bool]) -> None:
        while not done() and self._loop.time() < deadline:  # noqa: ASYNC110 (it has no event)
            await asyncio.sleep(0.01)


def _reachable(interfaces: Sequence[str]) -> bool:
    """From other machines."""
    return not all(map(is_loopback, interfaces)) or not interfaces


def _bind(network: NetworkSettings, port: int) -> list[Any]:
    return listening_sockets(network.interface, port, network.connection_backlog)
