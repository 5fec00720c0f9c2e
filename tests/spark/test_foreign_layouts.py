"""The collectors' archives as they are sent: a tarball of each node, packed by another program, among files of other
kinds.  DuckDB reads them; the answer is that of the files."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from spark_jobs.engine.base import Engine
from tests.spark.foreign_stories import paf_node_dies
from tests.spark.foreign_world import DEBIAN, REPORT, SOS, V11, V21, V30, Dialect, Layout
from tests.spark.pipeline_runs import SETTINGS, answer
from tests.spark.truth.reading import MODIFIED
from tests.spark.truth.world import Files

OTHERS: dict[str, bytes] = {
    "sos_commands/pacemaker/crm_report.out": b"nothing of this is a log\n",
    "etc/corosync/corosync.conf": b"totem {\n    version: 2\n    token: 1000\n}\n",
    "analysis.txt": b"Checking problems with permissions/ownership... OK\n",
    "var/lib/pacemaker/cib/cib.xml": b'<cib crm_feature_set="3.16.2"><configuration/></cib>\n',
    "proc/cpuinfo": b"\x00\x01\x02binary",
}


def archive(files: Files, place: Path, packing: str) -> str:
    """One for each node (the first folder), and files that are no logs."""
    place.mkdir()
    for top in sorted({name.split("/")[0] for name in files}):
        mine = {name: b"".join(lines) for name, lines in files.items() if name.split("/")[0] == top}
        mine |= {f"{top}/{name}": content for name, content in OTHERS.items()}
        with tarfile.open(place / f"{top}.tar.{packing}", f"w:{packing}") as tar:  # type: ignore[call-overload]
            for name, content in sorted(mine.items()):
                member = tarfile.TarInfo(name)
                member.size, member.mtime = len(content), MODIFIED // 1_000_000
                tar.addfile(member, io.BytesIO(content))
    return str(place)


@pytest.mark.parametrize(
    ("layout", "dialect", "packing"),
    [(REPORT, V11, "bz2"), (SOS, V21, "xz"), (DEBIAN, V30, "gz")],
    ids=("crm report", "sosreport", "Debian"),
)
def test_an_archive_says_what_its_files_say(
    duck: Engine, tmp_path: Path, layout: Layout, dialect: Dialect, packing: str
) -> None:
    story = paf_node_dies(dialect, layout)
    where = archive(story.cluster.files(), tmp_path / "in", packing)
    found = answer(duck, [where], tmp_path, SETTINGS)
    (name,) = [name for name in found if name.startswith("incident-")]
    document = json.loads(found[name])
    incident = document["incident"]
    assert (incident["type"], incident["old_primary"], incident["new_primary"]) == (story.type, story.old, story.new)
    assert {row["resource"]: (row["what"], row["old_node"], row["new_node"]) for row in document["resources"]} == dict(
        story.moves
    )
    assert not [
        text
        for text in document["words"]
        if "no log here asks" in text or ("took over" in text and "n2 took over" not in text)
    ]
