"""Where an exploration begins, and how much may happen in it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.calls import Cluster
from tests.model.state import Left, World
from tests.model.steps import steps


@dataclass(frozen=True)
class Bounds:
    """What may happen, how often."""

    left: Left
    brokers: int = 3
    mode: str = "quorum"
    listed: int = 0
    """How many of them are members at the beginning; 0: all."""
    spare: bool = False
    """The last one is started when a disk is lost, and not before."""
    isolated: bool = False
    """A primary may always be one that had no majority for long, and so hinders no promotion."""
    prefix: tuple[str, ...] = ()
    """Steps that are made first, by their words: to look deeper with the same effort."""
    symmetric: bool = False
    """Explore one of the states that differ only in names of equals (`symmetry.py`); for at most one claim."""

    def begin(self) -> tuple[Cluster, World]:
        """A cluster whose primary is `a`, with all members ready and nothing under way; then the prefix."""
        cluster = Cluster(self.brokers, self.mode, self.listed, self.spare, self.isolated)
        world = ready(cluster, self.left, self.listed or self.brokers)
        for words in self.prefix:
            world = _step(cluster, world, words)
        assert not (self.left.disks and cluster.registry)
        if self.symmetric:
            assert self.left.claims <= 1 and not cluster.registry
            members = self.listed or self.brokers
            cluster.groups = cluster.names[1:members], cluster.names[members:]
        return cluster, world


def ready(cluster: Cluster, left: Left, members: int) -> World:
    """Made by the same steps that are explored: one promotion, and everybody joins."""
    world = cluster.fresh(Left(claims=1))
    names = cluster.names[:members]
    for words in ("reads the registry a",) * cluster.registry + ("claims epoch 1 a",):
        world = _step(cluster, world, words)
    for name in names[1:]:
        world = _step(cluster, world, f"grants {name}")
    world = _settled(cluster, _step(cluster, _settled(cluster, world), "ends its claim a"))
    for name in names[1:]:
        for words in (f"connects to {name} a", f"is welcomed {name}", f"has copied all {name}"):
            world = _step(cluster, world, words)
    world = _settled(cluster, world)
    assert world.seen.survivors == names
    return world._replace(left=left, claims=())


def _step(cluster: Cluster, world: World, words: str) -> World:
    return next(after for label, after in steps(cluster, world) if f"{' '.join(label)} ".startswith(f"{words} "))


def _settled(cluster: Cluster, world: World) -> World:
    """All that is on its way has arrived."""
    quiet = ("hears", "applies", "the registry takes the entry of", "the registry is read for", "the registry answers")
    while found := [after for label, after in steps(cluster, world) if label[0] in quiet]:
        world = found[0]
    return world
