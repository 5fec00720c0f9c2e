"""Fuzzers for the files that a broker and its tools read."""

from __future__ import annotations

import hashlib
import json
import zlib
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from ha.model.membership import HaState, InSync, Member
from ha.model.state_file import NAME, SLOT, FileDirectory, StateFile, StateFileError, encode
from ha.qpid_cluster.main import main as qpid_cluster
from ha.registry.file import FileRegistry
from ha.registry.file import encode as encode_registry
from ha.registry.worker import RegistryError
from ha.salvage.files import SalvageFiles
from ha.salvage.lines import SalvageError
from qpidd_py.__main__ import main as qpidd
from qpidd_py.cli.qpid_passwd import main as qpid_passwd
from qpidd_py.security.users import hash_password
from qpidd_py.store.archive import ArchiveError, decode_message, decode_object
from qpidd_py.store.archive_file import ArchiveFile
from qpidd_py.store.layout import encode_mark
from qpidd_py.store.mark import read_mark
from tests.fuzz.hostile import DEEP, mutated, spoiled, to_json, value
from tests.fuzz.target import Target, files, judge_refusal, judge_words, run_program

A, B = Member("id-a", "a", "127.0.0.1:1", "run-1"), Member("id-b", "b", "127.0.0.1:2", "run-2", ("run-1",))
STATES: Final = [
    HaState("id-a", epoch, "id-a", InSync(epoch, "id-a", epoch + 3, (A, B), ("127.0.0.1:1", "127.0.0.1:2")), (B,))
    for epoch in (3, 4)
]


# ---- qpidd.conf ------------------------------------------------------------------------------------------------------

CONFIGURATION: Final = """# a broker
port=5672
interface=127.0.0.1
data-dir=data
journal=yes
journal-segment-size=64M
journal-sync=interval:50
memory-limit=40%
disk-free-limit=5%
heartbeat=60
log-enable=info+:ha
log-enable=debug+
max-negotiate-time=10s
ha-cluster=yes
ha-brokers-url=127.0.0.1:5672,127.0.0.1:5673,ssl:[::1]:5674
ha-address=127.0.0.1:5672
ha-username=ha
ha-password=secret
ha-backup-timeout=10
ha-safety=quorum
ha-replicate=all
link-heartbeat-interval=500ms
user-file=users.yaml
"""


def _configuration(rng: Random) -> bytes:
    lines = CONFIGURATION.splitlines()
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(lines))
        lines[at] = f"{lines[at].partition('=')[0]}={value(rng)}".replace(DEEP, "[" * 100_000)
    return spoiled(rng, "\n".join(lines).encode(errors="surrogatepass"), 2)


def _judge_configuration(folder: Path, octets: bytes) -> None:
    file = folder / "qpidd.conf"
    file.write_bytes(octets)
    code, output, errors = run_program(qpidd, "--config", str(file), "--check-config")
    assert code in (0, 1, 2), code
    judge_words(output + errors)
    lines = errors.splitlines()
    assert all(line.startswith("qpidd: ") for line in lines), errors[:500]
    assert all(len(line) <= 4096 for line in lines), f"a line of {max(map(len, lines))} characters: {errors[:300]}"
    assert not code or lines, "refused, and nothing said"


# ---- cluster file ----------------------------------------------------------------------------------------------------

CLUSTER: Final[dict[str, Any]] = {
    "cluster": "east",
    "directory": "cluster",
    "host": "127.0.0.1",
    "safety": "quorum",
    "registry": "none",
    "options": {"ha-username": "ha", "ha-password": "secret", "journal": True, "log-enable": "info+"},
    "supervisor": {"ping-interval": "100ms", "hang-timeout": 1.0},
    "command": ["qpidd"],
    "nodes": [
        {"name": "node1", "port": 5672, "host": "10.0.0.1", "links": ["10.1.0.1"], "fencing": {"ip": "10.2.0.1"}},
        {"name": "node2", "port": 5672, "host": "10.0.0.2", "options": {"heartbeat": 10}},
        {"name": "node3", "port": 5672, "host": "10.0.0.3"},
    ],
    "deployment": {
        "virtual-ip": "10.0.0.100/24",
        "interface": "eth0",
        "token": 1.5,
        "registry": "pacemaker",
        "fencing": {"agent": "fence_ipmilan", "options": {"username": "x"}, "delay": 3},
    },
}


def _cluster_file(rng: Random) -> bytes:
    text = yaml.safe_dump(mutated(rng, CLUSTER), allow_unicode=rng.random() < 0.5)
    octets = text.replace(DEEP, "[" * 5000).encode(errors="surrogatepass")
    return spoiled(rng, octets, 2)


def _judge_cluster_file(folder: Path, octets: bytes) -> None:
    file = folder / "cluster.yaml"
    file.write_bytes(octets)
    words = ["render", str(file), "--for", "all", "--force", "-o", str(folder / "out")]
    code, output, errors = run_program(qpid_cluster, *words)
    assert code in (0, 1, 2), code
    if code:
        judge_refusal(errors)
    judge_words(output + errors)


# ---- user file -------------------------------------------------------------------------------------------------------


def _user_file(rng: Random) -> bytes:
    document = mutated(rng, {"anna": hash_password("a", b"salt", 1), "ben": "scrypt$1$8$1$00$00"})
    text = yaml.safe_dump(document).replace(DEEP, "[" * 5000)
    return spoiled(rng, text.encode(errors="surrogatepass"), 2)


def _judge_user_file(folder: Path, octets: bytes) -> None:
    file = folder / "users.yaml"
    file.write_bytes(octets)
    code, output, errors = run_program(qpidd, "--check-config", "--no-data-dir", "--user-file", str(file))
    assert code in (0, 1), code
    if code:
        judge_refusal(errors)
    judge_words(output + errors)
    code, output, errors = run_program(qpid_passwd, "list", str(file))
    assert code in (0, 1, 2), code
    judge_words(output + errors)
    if code:
        judge_refusal(output + errors)
    assert file.read_bytes() == octets


# ---- ha-state.json, registry -----------------------------------------------------------------------------------------


def _checksum(document: dict[str, Any]) -> str:
    return f"{zlib.crc32(json.dumps(document, sort_keys=True).encode()):08x}"


def _slot(rng: Random, number: int) -> bytes:
    octets = encode(STATES[number], 6 + number)
    if rng.random() < 0.5:
        return octets
    document = json.loads(octets)
    del document["crc32"]
    document = mutated(rng, document)
    if isinstance(document, dict):
        document["crc32"] = _checksum(document)
    return to_json(document).ljust(SLOT - 1) + b"\n"


def _state_file(rng: Random) -> bytes:
    octets = b"".join(_slot(rng, number) for number in (0, 1)) if rng.random() < 0.9 else _slot(rng, 0).rstrip()
    return spoiled(rng, octets, 2) if rng.random() < 0.7 else octets


def _judge_state_file(folder: Path, octets: bytes) -> None:
    (folder / NAME).write_bytes(octets)
    try:
        state = StateFile(FileDirectory(folder)).open()
    except StateFileError as error:
        judge_refusal(str(error))
        return
    assert state is not None
    _judge_state(state)


def _judge_state(state: HaState) -> None:
    """What was read can be written, compared and promoted from."""
    encode(state, 1)
    assert 0 <= state.epoch < 1 << 16 and 0 <= state.in_sync.epoch < 1 << 16, state
    assert state.advance() == state and state.id and isinstance(state.leader, str), state


class _Living:
    def gone(self, ids: Any) -> frozenset[str]:
        return frozenset()


def _registry(rng: Random) -> bytes:
    document = json.loads(encode_registry({state.id: state for state in STATES}))
    brokers = mutated(rng, document["brokers"])
    whole = mutated(rng, {"brokers": brokers, "crc32": _checksum(brokers)}, 1)
    return spoiled(rng, to_json(whole), 1)


def _judge_registry(folder: Path, octets: bytes) -> None:
    file = folder / "registry.json"
    file.write_bytes(octets)
    registry = FileRegistry(file, _Living())
    try:
        states = registry.exchange(None, 1.0).states
    except RegistryError as error:
        judge_refusal(str(error))
        return
    for state in states:
        _judge_state(state)


# ---- archives, salvage, marks ----------------------------------------------------------------------------------------

MESSAGE: Final[dict[str, Any]] = {
    "id": "3.7", "queue": "q", "redelivered": False, "arrival": 1700000000000, "exchange": "", "routing_key": "q",
    "properties": {}, "header": "ADwAAAAAAAAAAAABAAA=", "body": "eA==", "leader": "id-a", "grade": "received",
}  # fmt: skip
HEADER: Final[dict[str, Any]] = {
    "archive": 1, "time": "2026-11-24T09:00:00Z", "broker": "a", "position": "3.9", "messages": True, "damage": "",
}  # fmt: skip
OBJECT: Final[dict[str, Any]] = {"object": "queue.declare", "name": "q", "operation": "AAAAAA=="}


def _lines(rng: Random, *documents: dict[str, Any]) -> list[bytes]:
    return [to_json(mutated(rng, each, 2), separators=(",", ":")) + b"\n" for each in documents]


def _archive(rng: Random) -> bytes:
    lines = _lines(rng, HEADER, OBJECT, MESSAGE, MESSAGE)
    body = b"".join(lines)
    body = spoiled(rng, body, 1)
    end = {"end": 2, "objects": 1, "sha256": hashlib.sha256(body).hexdigest()}
    return spoiled(rng, body + b"".join(_lines(rng, end)), 1 if rng.random() < 0.3 else 0)


def _judge_archive(folder: Path, octets: bytes) -> None:
    file = folder / "archive.jsonl"
    file.write_bytes(octets)
    try:
        for found in ArchiveFile(file).values():
            (decode_object if "object" in found else decode_message)(found)
    except ArchiveError as error:
        judge_refusal(str(error))
    assert file.read_bytes() == octets


SALVAGE: Final[dict[str, Any]] = {
    "salvage": 1, "time": "20261121T070526Z", "broker": "a", "broker_id": "id-a", "primary": "b", "epoch": 3,
    "messages": 2,
}  # fmt: skip


def _salvage(rng: Random) -> tuple[bytes, bytes]:
    found = spoiled(rng, b"".join(_lines(rng, SALVAGE, MESSAGE, MESSAGE, {"end": 2})), 1)
    return found, spoiled(rng, b"".join(_lines(rng, {"tried": [1, 2]}, {"restored": [1]}, {"refused": [2]})), 1)


def _judge_salvage(folder: Path, input: tuple[bytes, bytes]) -> None:
    found, marks = input
    name = "20261121T070526Z-3.jsonl"
    (folder / name).write_bytes(found)
    (folder / f"{name}.restored").write_bytes(marks)
    salvage = SalvageFiles(folder, 1 << 30)
    assert salvage.names() == [name]
    for look in (salvage.summary, salvage.time, salvage.size, salvage.marks, lambda it: list(salvage.records(it))):
        try:
            look(name)
        except SalvageError as error:
            judge_refusal(str(error))
    assert (folder / name).read_bytes() == found


def _mark(rng: Random) -> bytes:
    return spoiled(rng, encode_mark(rng.getrandbits(64)), 1)


def _judge_mark(folder: Path, octets: bytes) -> None:
    file = folder / "journal.mark"
    file.write_bytes(octets)
    assert read_mark(file) >= 0


TARGETS: Final = (
    Target("qpidd.conf", _configuration, files(_judge_configuration)),
    Target("cluster-file", _cluster_file, files(_judge_cluster_file)),
    Target("user-file", _user_file, files(_judge_user_file)),
    Target("ha-state.json", _state_file, files(_judge_state_file)),
    Target("registry", _registry, files(_judge_registry)),
    Target("archive", _archive, files(_judge_archive)),
    Target("salvage", _salvage, files(_judge_salvage)),
    Target("journal.mark", _mark, files(_judge_mark)),
)
