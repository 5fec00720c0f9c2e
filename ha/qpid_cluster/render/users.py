"""The user file of a rendered cluster: one user, whose password is new and told once.  Pure, but for its writing.

It is no file of `kinds.render`, which gives the same text each time.  One that is there is never touched: it has the
administrator's users.
"""

import os
import secrets
from collections.abc import Collection
from pathlib import Path

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.render.writer import WriteError
from qpidd_py.security.users import hash_password

FILE = "users.yaml"
INSTALLED = f"/etc/qpid/{FILE}"
USER = "app"


def own(spec: ClusterSpec) -> bool:
    """The cluster file names other user files, on all nodes."""
    return all("user-file" in node.options for node in spec.nodes)


def row(spec: ClusterSpec) -> str:
    """Of the table in README.md."""
    if own(spec):
        return ""
    return (
        f"| `{FILE}` | `{INSTALLED}` on every node; owner qpidd, mode 0600. Clients log in as `{USER}`, with the"
        " password that was printed when the file was written."
        f" `qpid-passwd add {FILE} {USER}` makes the file where it is missing |\n"
    )


def paths(spec: ClusterSpec, kinds: Collection[str]) -> list[str]:
    """Relative to the directory that is written; a directory for each kind if there are several."""
    if own(spec):
        return []
    return [FILE] if len(kinds) == 1 else [f"{kind}/{FILE}" for kind in kinds]


def write(directory: Path, files: Collection[str]) -> str:
    """The password of USER; empty if all files were there.  Raises WriteError."""
    missing = [directory / name for name in files if not (directory / name).exists()]
    if not missing:
        return ""
    password = secrets.token_urlsafe(18)
    try:
        for path in missing:
            _write(path, f"{USER}: {hash_password(password)}\n")
    except OSError as error:
        raise WriteError(f"cannot write {error.filename or directory}: {error.strerror}") from error
    return password


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    work = path.with_name(f".{path.name}.new")
    work.unlink(missing_ok=True)
    with open(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    work.replace(path)
