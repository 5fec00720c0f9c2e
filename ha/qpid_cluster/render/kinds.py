"""The kinds of configuration that can be rendered."""

from collections.abc import Callable, Mapping

from ha.qpid_cluster.cluster_file import ClusterSpec
from ha.qpid_cluster.render import checks, compose, pacemaker_files, rgmanager, systemd, vagrant

Files = dict[str, str]
"""Text by the name of its file, relative to the directory that is written."""

KINDS: Mapping[str, Callable[[ClusterSpec], Files]] = {
    "pacemaker": pacemaker_files.render,
    "rgmanager": rgmanager.render,
    "systemd": systemd.render,
    "compose": compose.render,
    "vagrant": vagrant.render,
}


def render(spec: ClusterSpec, kind: str) -> Files:
    """The files for `kind`, one of KINDS, or `all`: a directory for each.  Raises ConfigError if `spec` lacks
    something."""
    if kind == "all":
        return {f"{name}/{file}": text for name in KINDS for file, text in render(spec, name).items()}
    checks.check(spec, kind)
    return KINDS[kind](spec)
