"""Who this broker is: its stored vote and set, and its address among those of the cluster.                   Shell."""

from __future__ import annotations

import logging
import socket
import uuid
from collections.abc import Iterable
from pathlib import Path

from ha.model.membership import HaState
from ha.model.settings import split_address, uses_tls
from ha.model.state_file import FileDirectory, StateFile, StateFileError
from ha.model.twins import with_new_identity
from qpidd_py.errors import ConfigError
from qpidd_py.option_values import Address

log = logging.getLogger("ha")


def needed_directory(data_dir: Path | None) -> Path:
    """Raises ConfigError."""
    if data_dir is None:
        text = "expected a data directory: a member that forgets its vote in a restart can make two primaries"
        raise ConfigError(f"option no-data-dir: found yes with ha-cluster, {text}")
    return data_dir


def load_state(directory: Path, new_identity: bool = False) -> tuple[StateFile, HaState]:
    """The stored vote and set, with a new identity if there is no file or `new_identity` is set.  Raises ConfigError
    for a file that cannot be written, or is damaged: going on without our vote could make two primaries."""
    file = StateFile(FileDirectory(directory))
    try:
        state = file.open()
        if state is None:
            state = HaState(id=uuid.uuid4().hex)
            file.store(state)
        elif new_identity:
            state = _renamed(state)
            file.store(state)
    except (OSError, StateFileError) as error:
        raise ConfigError(f"{file} cannot be used: {error}") from error
    return file, state


def _renamed(state: HaState) -> HaState:
    id = uuid.uuid4().hex
    log.warning("new identity %s, it was %s; start without --new-identity from now on", id[:8], state.id[:8])
    return with_new_identity(state, id)


def own_address(brokers: Iterable[str], listening: Iterable[Address]) -> str:
    """Our entry in ha-brokers-url: our port, on an address of this machine; "" if there is none."""
    ports = {(address.port, address.tls) for address in listening}
    candidates = [entry for entry in brokers if (split_address(entry)[1], uses_tls(entry)) in ports]
    return next((entry for entry in candidates if is_local(split_address(entry)[0])), "")


def is_local(host: str) -> bool:
    """True if a socket can be bound to `host`, that is for addresses of this machine only."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, kind, protocol, _, target in found:
        with socket.socket(family, kind, protocol) as sock:
            try:
                sock.bind(target)
            except OSError:
                continue
            return True
    return False
