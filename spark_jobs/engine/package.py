"""This package as a zip, for the workers of a cluster: `python -m spark_jobs.engine.package -o spark_jobs.zip`.

Workers need it because functions travel to them by name.  The same files give the same octets.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import spark_jobs

NAME = "spark_jobs.zip"
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The earliest that a zip can say: when a file was installed does not matter."""


def zipped(place: Path) -> Path:
    """Write the zip (its name ends in .zip); raises OSError."""
    root = Path(spark_jobs.__path__[0])
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in _files(root):
            entry = zipfile.ZipInfo(f"{root.name}/{path.relative_to(root).as_posix()}", _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return place


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="spark_jobs.engine.package", description="Write spark_jobs as a zip.")
    parser.add_argument("-o", "--output", type=Path, default=Path(NAME), metavar="FILE", help=f"default {NAME}")
    print(zipped(parser.parse_args(arguments).output))


if __name__ == "__main__":
    main()
