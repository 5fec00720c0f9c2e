"""The plan for each file that was found: its name, its cluster, and what is already known of it (pure).

* A segment's first line names its process and a number in it, so no other segment has it: by its hash a segment is
  known again when it is closed, renamed, packed or handed in twice.  A text log is known by its name and its first
  line, or by that alone when its old name has another now (rotated); a file of crm_mon by all that it says, because
  each is a moment of its own.
* Names are places inside the input, without the endings `.open` and of packings: a report is the same if the logs are
  packed.  Where two inputs hold one name, all files of both get the input's name in front.
* A file that names no cluster belongs to the one named by the nearest segments: in its folder, in those above, in its
  input, in all inputs.  If no segment names one, the cluster is called as the input, or `cluster` if there are several
  inputs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from spark_jobs.ingest.tables import State
from spark_jobs.parse import event_json

UNREAD: Final = ("other", "refused", "copy")
"""States of files without rows."""
SEGMENTS: Final = ("client_json", "broker_json")
COVERING: Final = "broker_json"
"""Segments that say what text logs say."""
_OPEN: Final = ".open"
_PACKED: Final = re.compile(r"\.(?:gz|xz|bz2|zst)$")
_ARCHIVE: Final = re.compile(r"(?:\.tar)?\.(?:tgz|tar|gz|xz|txz|bz2|tbz2?|zst|open)$")
_FOLDER: Final = re.compile(r"^cluster=(.+)$")
_UNIQUE: Final = "s:"


@dataclass(frozen=True)
class Found:
    """A file.  `input`: its label; `name`: inside the input; `kind`: its parser, empty if there is none; `open`: still
    being written; `head`, `named`: see `head_of`; `place`: what the reader needs to open it."""

    input: str
    name: str
    kind: str
    mtime: int
    size: int
    head: str = ""
    named: str = ""
    open: bool = False
    why: str | None = None
    place: Any = None

    @property
    def path(self) -> str:
        """Or its URL; of what was in a tarball the tarball's URL, or where it was unpacked."""
        return str(getattr(self.place, "url", getattr(self.place, "path", "")))

    @property
    def segment(self) -> bool:
        return self.kind in SEGMENTS


@dataclass(frozen=True)
class Task:
    """`todo`: lines (a segment, from where `known` ended), text, keep (nothing new), note (a row in `files` only)."""

    todo: str
    found: Found
    state: State
    known: State | None = None


def labels(paths: Iterable[str]) -> dict[str, str]:
    """A name for each input: `/srv/node1.tar.gz` is node1; equal ones get the folders in front that tell them apart."""
    listed = sorted(set(paths))
    found: dict[str, str] = {}
    for path in listed:
        others = [other for other in listed if other != path]
        count, depth = 1, len(_parts(path))
        while count < depth and any(_tail(other, count) == _tail(path, count) for other in others):
            count += 1
        found[path] = _free(_tail(path, count), found.values())
    return found


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _tail(path: str, count: int) -> str:
    name = "/".join(_parts(path)[-count:])
    return _ARCHIVE.sub("", name) or name or "input"


def inside(name: str, packed: bool) -> tuple[str, bool]:
    """A file's name without what says how it is kept, and whether it is still being written."""
    while packed and (shorter := _PACKED.sub("", name)) != name:
        name = shorter
    return (name.removesuffix(_OPEN), True) if name.endswith(_OPEN) else (name, False)


def head_of(kind: str, lines: Sequence[bytes]) -> tuple[str, str]:
    """(hash of what the file begins with, cluster that it names); the hash is empty if there is no whole line."""
    whole = [line for line in lines if line.endswith(b"\n")]
    if not whole:
        return "", ""
    if kind not in SEGMENTS:
        return blake2b(b"".join(whole) if kind == "crm_mon" else whole[0], digest_size=12).hexdigest(), ""
    events = [event for line in whole if (event := event_json.load(line)) is not None]
    named = next((cluster for event in events if isinstance(cluster := event.get("cluster"), str) and cluster), "")
    first = event_json.load(whole[0]) or {}
    unique = _UNIQUE if first.get("proc") and first.get("seq") else ""
    return unique + blake2b(whole[0], digest_size=12).hexdigest(), named


def logs_to_read(tasks: Iterable[Task]) -> dict[str, list[Task]]:
    """Cluster → its text logs, where one of them has changed, or what segments say instead of them."""
    listed = list(tasks)
    changed = {task.state.cluster for task in listed if task.todo == "text"}
    changed |= {task.state.cluster for task in listed if task.todo == "lines" and task.state.kind == COVERING}
    found: dict[str, list[Task]] = {}
    for task in listed:
        readable = task.found.kind and not task.found.segment and task.found.place is not None
        if readable and task.state.cluster in changed:
            found.setdefault(task.state.cluster, []).append(task)
    return found


def plan(found: Iterable[Found], known: Mapping[str, State], cluster: str = "") -> list[Task]:
    """In the order of the names.  `cluster`: of all files that name none, if the user gave it."""
    files = sorted(found, key=lambda file: (file.input, file.name, not file.open))
    matches = _matched(files, known)
    copies = _copies(files)
    for index in copies:
        matches.pop(index, None)
    names = _names(files, matches, known)
    clusters = _clusters(files, known, cluster)
    tasks = [
        _copy(file, names[i], clusters[i], names[copies[i]])
        if i in copies
        else _task(file, names[i], clusters[i], matches.get(i))
        for i, file in enumerate(files)
    ]
    return sorted(tasks, key=lambda task: (task.state.name, task.found.input))


# ---- known again ----------------------------------------------------------------------------------------------------


def _matched(files: Sequence[Found], known: Mapping[str, State]) -> dict[int, State]:
    unique = [state for state in known.values() if state.head.startswith(_UNIQUE) and state.state != "copy"]
    by_head = {state.head: state for state in unique}
    by_name = {(state.input, state.head, state.name): state for state in known.values()}
    matches: dict[int, State] = {}
    for index, file in enumerate(files):
        state = by_head.get(file.head) or next(
            (by_name[key] for name in _candidates(file) if (key := (file.input, file.head, name)) in by_name), None
        )
        state = state or _headless(file, known)
        if state is not None:
            matches[index] = state
    _rotated(files, known, matches)
    return matches


def _candidates(file: Found) -> tuple[str, str]:
    """Its name, and that with the input's in front; an input that is a single file has it in its own."""
    alone = file.input.split("/")[-1] == file.name
    return file.name, file.input if alone else f"{file.input}/{file.name}"


def _headless(file: Found, known: Mapping[str, State]) -> State | None:
    """It had no whole line the last time, or cannot be read."""
    for name in _candidates(file):
        state = known.get(name)
        if state is not None and state.input == file.input and (not state.head or not file.head):
            return state
    return None


def _rotated(files: Sequence[Found], known: Mapping[str, State], matches: dict[int, State]) -> None:
    """Text logs that have another name now."""
    taken = {state.name for state in matches.values()}
    free = {
        (state.input, state.kind, state.head): state
        for state in known.values() if state.name not in taken and state.head and state.kind not in SEGMENTS
    }  # fmt: skip
    for index, file in enumerate(files):
        if index not in matches and (state := free.pop((file.input, file.kind, file.head), None)) is not None:
            matches[index] = state


# ---- names ----------------------------------------------------------------------------------------------------------


def _names(files: Sequence[Found], matches: Mapping[int, State], known: Mapping[str, State]) -> list[str]:
    """A segment that is known keeps its name; so does everything else if it can."""
    inputs: dict[str, set[str]] = defaultdict(set)
    for file in files:
        inputs[file.name].add(file.input)
    mixed = {one for sharing in inputs.values() if len(sharing) > 1 for one in sharing}
    kept = {index: state.name for index, state in matches.items() if _keeps(files[index], state)}
    gone = {state.name for state in matches.values()} | {name for name, state in known.items() if state.state in UNREAD}
    taken = set(kept.values()) | (known.keys() - gone)
    names: list[str] = []
    for index, file in enumerate(files):
        if index not in kept:
            inner, outer = _candidates(file)
            name = outer if file.input in mixed or inner in taken else inner
            kept[index] = _free(name, taken)
            taken.add(kept[index])
        names.append(kept[index])
    return names


def _free(name: str, taken: Collection[str]) -> str:
    number, unique = 2, name
    while unique in taken:
        number, unique = number + 1, f"{name}~{number}"
    return unique


def _keeps(file: Found, state: State) -> bool:
    return file.segment or state.name in _candidates(file)


# ---- clusters -------------------------------------------------------------------------------------------------------


def _clusters(files: Sequence[Found], known: Mapping[str, State], given: str) -> list[str]:
    if given:
        return [given] * len(files)
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file in files:
        if name := _of_folder(file.name) or file.named:
            for folder in _folders(file.input, file.name):
                named[folder].add(name)
    for state in known.values():
        if state.kind in SEGMENTS and state.cluster and state.state not in UNREAD:
            for folder in _folders(state.input, state.name):
                named[folder].add(state.cluster)
    inputs = {file.input for file in files}
    return [_cluster(file, named, len(inputs) > 1) for file in files]


def _cluster(file: Found, named: Mapping[tuple[str, str], set[str]], several: bool) -> str:
    if name := _of_folder(file.name) or file.named:
        return name
    for folder in _folders(file.input, file.name):
        if len(near := named.get(folder, set())) == 1:
            return next(iter(near))
    return "cluster" if several and not named else file.input


def _of_folder(name: str) -> str:
    return next((match[1] for part in name.split("/")[:-1] if (match := _FOLDER.match(part))), "")


def _folders(label: str, name: str) -> list[tuple[str, str]]:
    """From the file's own to all inputs."""
    parts = name.split("/")[:-1]
    return [(label, "/".join(parts[:count])) for count in range(len(parts), -1, -1)] + [("", "")]


# ---- the plan -----------------------------------------------------------------------------------------------------


def _task(file: Found, name: str, cluster: str, known: State | None) -> Task:
    state = State(name, file.input, cluster, file.kind, head=file.head, mtime=file.mtime, size=file.size)
    state = replace(state, state="open" if file.open else "read")
    if file.why is not None or not file.kind:
        if known is not None and known.events:
            return Task("keep", file, replace(known, why=file.why), known)
        return Task("note", file, replace(state, state="refused" if file.why else "other", why=file.why), known)
    if known is not None and known.state in UNREAD:
        known = None
    same = known is not None and (known.name, known.kind, known.size, known.mtime)
    here = known is not None and (file.segment or known.cluster == cluster)
    if known is not None and here and same == (name, file.kind, file.size, file.mtime):
        return Task("keep", file, known if known.state == "damaged" else replace(known, state=state.state), known)
    return Task("lines" if file.segment else "text", file, state, known)


def _copies(files: Sequence[Found]) -> dict[int, int]:
    """Of several files that begin with the same line of a segment only the longest is read: the others → that one."""
    same: dict[str, list[int]] = defaultdict(list)
    for index, file in enumerate(files):
        if file.head.startswith(_UNIQUE):
            same[file.head].append(index)
    copies: dict[int, int] = {}
    for group in same.values():
        first, *rest = sorted(group, key=lambda index: (-files[index].size, files[index].open, index))
        copies |= dict.fromkeys(rest, first)
    return copies


def _copy(file: Found, name: str, cluster: str, of: str) -> Task:
    state = State(name, file.input, cluster, file.kind, head=file.head, mtime=file.mtime, size=file.size)
    return Task("note", file, replace(state, state="copy", why=f"the same as {of}"))
