"""`qpid-passwd`: the user file of a broker.

    add FILE NAME      adds a user or changes its password
    remove FILE NAME
    list FILE
    check FILE NAME    is this the password?

The password is asked for, or read as one line from standard input; it never stands on a command line.  A broker reads
its file again on SIGHUP.
"""

import argparse
import getpass
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from qpidd_py.cli.output import ShowVersion, run_tool
from qpidd_py.cli.whole_file import whole
from qpidd_py.security.scram import scram_entry
from qpidd_py.security.users import LOG2N, hash_password, password_matches, read_user_file

PROGRAM: Final = "qpid-passwd"
SCRAM_HELP: Final = "lets clients use SCRAM-SHA-256, too; a stolen file is easier to guess from than with the default"
_TEXTS: Final = {
    "add": "add a user, or change its password; makes the file",
    "remove": "remove a user",
    "list": "print the names",
    "check": "exit code 0 if this is the user's password, else 1",
}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description="the user file of a broker")
    parser.add_argument("--version", action=ShowVersion)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, text in _TEXTS.items():
        verb = verbs.add_parser(name, help=text, description=text)
        verb.add_argument("file", type=Path, metavar="FILE", help="the broker's `user-file`")
        if name != "list":
            verb.add_argument("name", metavar="NAME", help="the user")
        if name == "add":
            text = f"log2 of the memory in KiB and of the time of one verification, 10 to 17 (default {LOG2N})"
            verb.add_argument("--cost", type=int, default=LOG2N, choices=range(10, 18), metavar="N", help=text)
            verb.add_argument("--scram", action="store_true", help=SCRAM_HELP)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return run_tool(lambda _: _VERBS[options.verb](options), arguments, f"{PROGRAM}: ")


def _add(options: argparse.Namespace) -> int:
    name = options.name
    if not name or not name.isprintable() or len(name.encode()) > 255:
        raise ValueError(f"name {name[:64]!r}, expected 1 to 255 printable characters")
    users = read_user_file(options.file) if options.file.exists() else {}
    password = ask_password(twice=True)
    if not password:
        raise ValueError("the password is empty")
    changed = "changed" if name in users else "added"
    if options.scram and options.cost != LOG2N:
        raise ValueError("--cost is of the default hash, and not of --scram")
    entry = scram_entry(password) if options.scram else hash_password(password, log2n=options.cost)
    _write(options.file, users | {name: entry})
    print(f"{name} {changed}; a running broker reads the file on SIGHUP")
    return 0


def _remove(options: argparse.Namespace) -> int:
    users = read_user_file(options.file)
    if options.name not in users:
        raise ValueError(f"{options.file} has no user {options.name!r}")
    _write(options.file, {name: stored for name, stored in users.items() if name != options.name})
    print(f"{options.name} removed; a running broker reads the file on SIGHUP")
    return 0


def _list(options: argparse.Namespace) -> int:
    for name in sorted(read_user_file(options.file)):
        print(name)
    return 0


def _check(options: argparse.Namespace) -> int:
    stored = read_user_file(options.file).get(options.name)
    if stored is None:
        raise ValueError(f"{options.file} has no user {options.name!r}")
    matches = password_matches(ask_password(), stored)
    print(f"this is {'' if matches else 'not '}the password of {options.name}")
    return 0 if matches else 1


def ask_password(twice: bool = False) -> str:
    """Asked for at a terminal, else one line of standard input.  Raises ValueError."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\n")
    password = getpass.getpass()
    if twice and getpass.getpass("Again: ") != password:
        raise ValueError("the passwords differ")
    return password


def _write(file: Path, users: Mapping[str, str]) -> None:
    """A new file gets the owner of its folder: root may write it for the broker."""
    import yaml

    known = file if file.exists() else None
    owner = (known or file.resolve().parent).stat()
    mode = known.stat().st_mode & 0o777 if known else 0o600
    with whole(file) as target:
        if os.geteuid() == 0:
            os.fchown(target.fileno(), owner.st_uid, owner.st_gid)
        os.fchmod(target.fileno(), mode)
        yaml.safe_dump(dict(users), target, width=1000, allow_unicode=True, sort_keys=False)


_VERBS: Final = {"add": _add, "remove": _remove, "list": _list, "check": _check}

if __name__ == "__main__":
    sys.exit(main())
