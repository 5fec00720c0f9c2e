"""Routes between brokers that follow bindings: what is asked of a source, and which of its messages are taken.   Pure.

A route takes from an exchange of its source to the exchange of that name of its destination.  Its queue at the source
is bound like what is bound at the destination.  A binding that another route has made there is handed on as well; its
*path* is the tags of the brokers that it comes by, from the one whose queue it is for.  No binding goes to a broker
that is on its path, so in a circle of brokers none keeps itself.  Of the paths of one binding from one broker the
shortest are handed on.

A message may come to a broker by several ways, and must be taken by one.  Its *trace* is the tags of the brokers that
it has passed.  Each broker knows by which ways messages can come to it, because each tells it those that lead to
itself (`route.paths`); of those from one broker the shortest counts, the first in the order of the alphabet if there
are more.  So the ways from a broker to all others are a tree: what begins a way that counts is one that counts, and a
message is taken by the route with which its way ends.  That depends on the routes alone: neither a fail-over nor a
binding changes it.

When a route is added or deleted another way may count from then on.  If messages have come from that broker within
AMBIGUOUS seconds, they are taken by the former way as well for so long, and marked, since they may come twice: none is
lost that one way had already brought, and that was left.
A way that its broker does not name any more is kept as long, if there is no other: that broker may have begun anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from math import inf
from typing import Final, NamedTuple

Path = tuple[str, ...]
"""Tags."""
LONGEST: Final = 16
"""Brokers on a path."""
WAYS_MAX: Final = 64
"""That a route reports."""
AMBIGUOUS: Final = 60.0


Terms = tuple[bytes, bytes]
"""Of a binding: the routing key, and the arguments as an encoded field table."""
Destination = tuple[bool, str]
"""Whether it is an exchange, and its name."""


class Bound(NamedTuple):
    """A binding without its destination."""

    terms: Terms
    path: Path = ()
    """Of one that a route has made."""


class Bindings:
    """Of the exchange at the destination of routes; one that several queues have counts once."""

    def __init__(self) -> None:
        self._of: dict[Destination, set[Bound]] = {}
        self._paths: dict[Terms, Counter[Path]] = {}
        self._watched: list[set[Terms]] = []

    def add(self, destination: Destination, bound: Bound) -> None:
        """One that is there already stays."""
        those = self._of.setdefault(destination, set())
        if bound in those:
            return
        those.add(bound)
        paths = self._paths.setdefault(bound.terms, Counter())
        paths[bound.path] += 1
        if paths[bound.path] == 1:
            self._changed(bound.terms)

    def remove(self, destination: Destination, bound: Bound) -> None:
        """One that is not there is no error."""
        those = self._of.get(destination, set())
        if bound in those:
            those.discard(bound)
            self._lessen(bound)
            if not those:
                del self._of[destination]

    def lose(self, destination: Destination) -> None:
        for bound in self._of.pop(destination, ()):
            self._lessen(bound)

    def replace(self, items: Iterable[tuple[Destination, Bound]]) -> None:
        """These are all there are."""
        found: dict[Destination, set[Bound]] = {}
        for destination, bound in items:
            found.setdefault(destination, set()).add(bound)
        for destination, those in list(self._of.items()):
            for bound in those - found.get(destination, set()):
                self.remove(destination, bound)
        for destination, those in found.items():
            for bound in those:
                self.add(destination, bound)

    def terms(self) -> Iterable[Terms]:
        return self._paths.keys()

    def watch(self) -> set[Terms]:
        """A set that gets the terms whose paths have changed; at first all."""
        changed = set(self._paths)
        self._watched.append(changed)
        return changed

    def unwatch(self, changed: set[Terms]) -> None:
        self._watched = [each for each in self._watched if each is not changed]

    def wanted(self, terms: Terms, own: str, source: str) -> set[Path]:
        """The paths with which a route from this source is to be bound on these terms; `own`, `source`: the tags of
        both brokers."""
        found: dict[str, list[Path]] = {}
        for before in self._paths.get(terms, ()):
            path = (*before, own)
            if source in path or own in before or len(path) > LONGEST or not all(path):
                continue
            shortest = found.setdefault(path[0], [])
            if shortest and len(path) < len(shortest[0]):
                shortest.clear()
            if not shortest or len(path) == len(shortest[0]):
                shortest.append(path)
        return {path for paths in found.values() for path in paths}

    def _lessen(self, bound: Bound) -> None:
        paths = self._paths[bound.terms]
        paths[bound.path] -= 1
        if not paths[bound.path]:
            del paths[bound.path]
            self._changed(bound.terms)
        if not paths:
            del self._paths[bound.terms]

    def _changed(self, terms: Terms) -> None:
        for changed in self._watched:
            changed.add(terms)


class Verdict(Enum):
    """About a message that has come by a route."""

    TAKE = 1
    MARK = 2
    """Take it, marked: it may come twice."""
    LEAVE = 3


class Way(NamedTuple):
    """From a broker to the source of a route, which is the last one on the path."""

    path: Path
    route: str
    fading: bool
    """Its broker does not name it any more."""

    @property
    def order(self) -> tuple[bool, int, Path, str]:
        return self.fading, len(self.path), self.path, self.route


class Ways:
    """By which messages come to the routes of one exchange."""

    def __init__(self, own: str, now: Callable[[], float]) -> None:
        """`own`: the broker's tag; `now` in seconds."""
        self._own, self._now = own, now
        self._heard: dict[str, dict[Path, float]] = {}
        """Route → path → until when it counts; for ever, while it is named."""
        self._excluded: dict[str, frozenset[str]] = {}
        self._chosen: dict[str, Way] = {}
        self._seen: dict[str, float] = {}
        """Tags of messages → when."""
        self._former: dict[str, dict[str, float]] = {}
        """Origin → routes that were chosen → until when they count, too."""

    def hear(self, route: str, source: str, paths: Iterable[Path] | None, excluded: Collection[str] = ()) -> None:
        """What the source of a route says; None: it does not know its ways yet."""
        known = self._heard.setdefault(route, {})
        self._excluded[route] = frozenset(excluded)
        named = {(source,), *((*each, source) for each in paths or () if each)}
        if paths is not None:
            fading = self._now() + AMBIGUOUS
            known.update({path: min(until, fading) for path, until in known.items() if path not in named})
        known.update(dict.fromkeys(named, inf))
        self._choose()

    def forget(self, route: str) -> None:
        """It was deleted."""
        self._heard.pop(route, None)
        self._excluded.pop(route, None)
        self._choose()

    def heard(self, route: str) -> bool:
        return route in self._heard

    def told(self, route: str) -> list[Path]:
        """The ways that count and end with this route, those of near brokers first."""
        found = (way.path for way in self._chosen.values() if way.route == route and not way.fading)
        return sorted(found, key=lambda path: (len(path), path))[:WAYS_MAX]

    def judge(self, route: str, trace: Iterable[str]) -> Verdict:
        """`trace`: with the tag of the route's source at its end."""
        tags = list(trace)
        if self._own in tags or not self._excluded.get(route, frozenset()).isdisjoint(tags):
            return Verdict.LEAVE
        known = [tag for tag in tags if tag in self._chosen]
        self._seen.update(dict.fromkeys(known, self._now()))
        origin = known[0] if known else None
        if origin is None:
            return Verdict.TAKE
        doubtful = {name for name, until in self._former.get(origin, {}).items() if until > self._now()}
        if self._chosen[origin].route == route:
            return Verdict.MARK if doubtful - {route} else Verdict.TAKE
        return Verdict.MARK if route in doubtful else Verdict.LEAVE

    def _choose(self) -> None:
        best: dict[str, Way] = {}
        for way in self._usable():
            origin = way.path[0]
            if origin not in best or way.order < best[origin].order:
                best[origin] = way
        now = self._now()
        for origin, way in self._chosen.items():
            recent = self._seen.get(origin, -inf) > now - AMBIGUOUS
            if recent and origin in best and best[origin].route != way.route:
                self._former.setdefault(origin, {})[way.route] = now + AMBIGUOUS
        self._chosen = best

    def _usable(self) -> Iterator[Way]:
        now = self._now()
        for route, known in self._heard.items():
            for path in [path for path, until in known.items() if until < now]:
                del known[path]
            for path, until in known.items():
                if self._own not in path and len(path) < LONGEST and self._excluded[route].isdisjoint(path):
                    yield Way(path, route, until < inf)


def read_path(text: object) -> Path:
    """Of the argument of a binding."""
    return tuple(text.split(",")) if isinstance(text, str) and text else ()


def traces(headers: Mapping[str, object], name: str) -> list[str]:
    found = headers.get(name)
    return [each for each in found.split(",") if each] if isinstance(found, str) else []
