"""`qpid-ha salvage`: messages that a broker put aside because its cluster does not have them.

The files are on the broker that held the messages, so ask that broker, in whatever role it is now; `list --all` finds
them.  Several brokers may have put the same message aside; what is restored from one file is marked in the others.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ha.qpid_ha.ask import as_object, ask, ask_all
from ha.qpid_ha.output import format_octets
from qpidd_py.cli.client_socket import Deadline, Target
from qpidd_py.cli.output import clip, describe, print_json, print_table
from qpidd_py.cli.target import Options, Parser, UsageError

METHOD = "ha.salvage"
PREVIEW = 40
"""Characters of a body shown in the table."""

Ask = Callable[..., dict[str, Any]]


def add_arguments(command: str, parser: Parser) -> None:
    actions = ("list", "show", "restore", "discard")
    parser.add_argument("action", choices=actions, help="restore publishes the messages of a file to the primary")
    parser.add_argument("file", nargs="?", default="", metavar="FILE", help="as `list` names it")
    parser.add_argument("--all", action="store_true", help="with list: the files of all brokers of the cluster")
    parser.add_argument("--yes", action="store_true", help="with discard: do not ask; needed without a terminal")


def salvage(options: Options, target: Target, deadline: Deadline) -> int:
    def ask_broker(action: str, **arguments: Any) -> dict[str, Any]:
        # A large file takes many requests, each with its own timeout.
        return ask(target, Deadline(deadline.seconds), METHOD, {"action": action, **arguments})

    if options.action == "list":
        if options.file:
            raise UsageError("salvage list takes no FILE")
        return _list_all(options, target, deadline) if options.all else _list(options, ask_broker)
    if options.all:
        raise UsageError("--all is for salvage list: a file lies on one broker")
    if not options.file:
        raise UsageError(f"salvage {options.action} needs a FILE; `salvage list` names them")
    return _ACTIONS[options.action](options, ask_broker)


def _list(options: Options, ask_broker: Ask) -> int:
    found = ask_broker("list")
    print_json(found) if options.json else _print_files(found["files"])
    return 0


def _list_all(options: Options, target: Target, deadline: Deadline) -> int:
    answers = ask_all(target, deadline, METHOD, {"action": "list"})
    if options.json:
        print_json([as_object(address, answer) for address, answer in answers])
        return 0
    _print_files([file for _, answer in answers if isinstance(answer, dict) for file in answer["files"]])
    for _, answer in answers:
        if isinstance(answer, Exception):
            print(describe(answer))
    return 0


def _print_files(files: Sequence[Mapping[str, Any]]) -> None:
    rows = [_row(file) for file in files if "error" not in file]
    print_table(("File", "Broker", "Primary", "Messages", "Restored", "Octets"), rows)
    for file in files:
        for note in _notes(file):
            print(f"{file['file']}: {note}")


def _row(file: Mapping[str, Any]) -> tuple[str, ...]:
    names = (clip(str(file[name]), 12).strip() for name in ("broker", "primary"))
    return file["file"], *names, str(file["found"]), str(file["restored"]), format_octets(file["octets"])


def _notes(file: Mapping[str, Any]) -> list[str]:
    if "error" in file:
        return [file["error"]]
    if file["complete"]:
        return []
    return [f"cut off: {file['found']} of {file['messages']} messages, the broker died while it wrote them"]


def _show(options: Options, ask_broker: Ask) -> int:
    pages = list(_pages(options.file, ask_broker))
    messages = [message for page in pages for message in page["messages"]]
    if options.json:
        print_json({**pages[0], "messages": messages})
        return 0
    heads = ("No", "Position", "Queue", "Grade", "Octets", "State", "Body")
    print_table(heads, [_message_row(message) for message in messages])
    for note in _notes(pages[0]):
        print(note)
    return 0


def _pages(file: str, ask_broker: Ask) -> Iterator[dict[str, Any]]:
    offset, left = 0, True
    while left:
        page = ask_broker("show", file=file, offset=offset)
        offset, left = offset + len(page["messages"]), page["left"] > 0
        yield page


def _message_row(message: Mapping[str, Any]) -> tuple[str, ...]:
    body = message["body"]
    shown = repr(body[:PREVIEW]) if isinstance(body, str) else f"base64 {body['base64'][:PREVIEW]}"
    keys = ("number", "id", "queue", "grade", "octets", "state")
    return *(str(message[key]) for key in keys), shown


def _restore(options: Options, ask_broker: Ask) -> int:
    """Returns 0 if nothing stays in the file."""
    results, after = [], 0
    while True:
        results.append(ask_broker("restore", file=options.file, after=after))
        after = results[-1]["next"]
        if not after or results[-1]["error"]:
            break
    total = _total(results)
    print_json(total) if options.json else _print_restored(total)
    return 1 if total["error"] or total["stay"] else 0


def _total(results: list[dict[str, Any]]) -> dict[str, Any]:
    stay: dict[tuple[str, str], int] = {}
    for item in (item for result in results for item in result["stay"]):
        key = item["queue"], item["why"]
        stay[key] = stay.get(key, 0) + item["messages"]
    items = [{"queue": queue, "why": why, "messages": number} for (queue, why), number in sorted(stay.items())]
    restored = sum(result["restored"] for result in results)
    untold = sorted({address for result in results for address in result["untold"]})
    return {**results[0], "restored": restored, "stay": items, "untold": untold, "error": results[-1]["error"]}


def _print_restored(total: Mapping[str, Any]) -> None:
    before = f", {total['before']} were before" if total["before"] else ""
    print(f"{total['restored']} messages restored{before}")
    if total["maybe_twice"]:
        print(f"{total['maybe_twice']} of them may be there twice: an earlier restore was interrupted")
    for item in total["stay"]:
        print(f"{item['messages']} stay in the file, queue {item['queue']}: {item['why']}")
    if total["untold"]:
        untold = ", ".join(total["untold"])
        print(f"not informed: {untold}; files there may hold the same messages, not marked as restored")
    if total["error"]:
        print(f"not finished: {total['error']}")


def _discard(options: Options, ask_broker: Ask) -> int:
    """Returns 1 if the answer was no, 2 if no person can be asked."""
    if not options.yes and not (sys.stdin and sys.stdin.isatty()):
        text = f"salvage discard: no terminal to ask at, {options.file} is kept; --yes deletes it"
        print_json({"error": text}) if options.json else print(text)
        return 2
    if not options.yes and not _agreed(options.file, ask_broker):
        print(f"{options.file} is kept", file=sys.stderr)
        return 1
    found = ask_broker("discard", file=options.file)
    if options.json:
        print_json(found)
    else:
        print(f"{found['file']} is discarded, with {found['dropped']} messages that were not restored")
    return 0


def _agreed(name: str, ask_broker: Ask) -> bool:
    files: list[dict[str, Any]] = ask_broker("list")["files"]
    found = next((file for file in files if file["file"] == name), {})
    left = found["found"] - found["restored"] if "found" in found else "an unknown number of"
    print(f"delete {name}, with {left} messages that were not restored? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


_ACTIONS: Mapping[str, Callable[[Options, Ask], int]] = {"show": _show, "restore": _restore, "discard": _discard}
