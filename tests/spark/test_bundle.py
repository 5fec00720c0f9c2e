"""What people hand in: folders, tarballs, packed files, and everything that is wrong with them."""

import bz2
import gzip
import io
import lzma
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_jobs import bundle as bundle_module
from spark_jobs.bundle import Bundle, BundleError

TEXT = b"one\ntwo\nthree"
LINES = [b"one\n", b"two\n", b"three"]


def tarball(path: Path, members: list[tuple[str, bytes] | tarfile.TarInfo], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size, info.mtime = len(member[1]), 1_700_000_000
            archive.addfile(info, io.BytesIO(member[1]))
    return path


def link(name: str, target: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


def content(path: Path) -> dict[str, list[bytes]]:
    with Bundle(path) as bundle:
        return {file.name: list(file.lines()) for file in bundle}


def refused(path: Path) -> dict[str, str]:
    with Bundle(path) as bundle:
        return {refused.name: refused.why for refused in bundle.refused}


def test_a_folder_gives_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b/2.log", "a.log", "b/10.log", "B.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(TEXT)
    os.utime(tmp_path / "a.log", ns=(0, 1_700_000_000_123_456_000))
    with Bundle(tmp_path) as bundle:
        assert [file.name for file in bundle] == ["B.log", "a.log", "b/10.log", "b/2.log"]
        assert (bundle.files[1].mtime, bundle.files[1].size) == (1_700_000_000_123_456, len(TEXT))
        assert list(bundle.files[0].lines()) == LINES


def test_a_single_file_has_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(TEXT)
    assert content(tmp_path / "x.log") == {"x.log": LINES}


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_are_told_by_their_content(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "messages.1").write_bytes(pack(TEXT))
    (tmp_path / "plain.gz").write_bytes(TEXT)
    (tmp_path / "twice").write_bytes(gzip.compress(pack(TEXT)))
    assert content(tmp_path) == dict.fromkeys(("messages.1", "plain.gz", "twice"), LINES)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_files_that_were_appended_to_each_other_are_one(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "x").write_bytes(pack(b"one\nt") + pack(b"wo\n" * 1) + pack(b"three") + b"\0" * 100)
    assert content(tmp_path) == {"x": LINES}


def test_a_large_packed_file_is_read_whole(tmp_path: Path) -> None:
    lines = [b"%d %s\n" % (n, b"x" * (n % 300)) for n in range(20_000)]
    (tmp_path / "x").write_bytes(gzip.compress(b"".join(lines)))
    assert content(tmp_path) == {"x": lines}


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
def test_a_tarball_is_a_folder(tmp_path: Path, mode: str) -> None:
    path = tarball(tmp_path / "report", [("./z/1.log", TEXT), ("a.log.gz", gzip.compress(TEXT))], mode)
    assert content(path) == {"a.log.gz": LINES, "z/1.log": LINES}
    with Bundle(path) as bundle:
        assert bundle.files[0].mtime == 1_700_000_000_000_000


def test_a_tarball_in_a_folder_and_in_a_tarball(tmp_path: Path) -> None:
    inner = tarball(tmp_path / "inner.tgz", [("x.log", TEXT)], "w:gz")
    (tmp_path / "in").mkdir()
    tarball(tmp_path / "in" / "outer.tar", [("sub/inner.tgz", inner.read_bytes()), ("y.log", TEXT)])
    inner.unlink()
    assert content(tmp_path) == {"in/outer.tar/sub/inner.tgz/x.log": LINES, "in/outer.tar/y.log": LINES}


def test_the_folder_and_its_tarball_have_the_same_names(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    (folder / "n1").mkdir(parents=True)
    (folder / "n1" / "a.log").write_bytes(TEXT)
    (folder / "b.log").write_bytes(TEXT)
    subprocess.run(["tar", "-czf", tmp_path / "logs.tar.gz", "-C", folder, "."], check=True)
    assert content(folder) == content(tmp_path / "logs.tar.gz") != {}
    assert refused(tmp_path / "logs.tar.gz") == {}


def test_dangerous_names_are_refused_and_the_others_read(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    names = ("../../escaped", "/etc/escaped", "a/../../escaped", "ok.log")
    path = tarball(inside / "evil.tar", [(name, TEXT) for name in names])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Bundle(path, scratch=scratch) as bundle:
        assert [file.name for file in bundle] == ["ok.log"]
        assert {entry.name: entry.why for entry in bundle.refused} == dict.fromkeys(
            names[:3], "its name leads out of the tarball"
        )
        assert all(file.name.isdigit() for file in scratch.rglob("*") if file.is_file())
    assert list(scratch.iterdir()) == [] and not list(tmp_path.rglob("escaped"))


def test_links_and_devices_in_a_tarball_are_refused(tmp_path: Path) -> None:
    device = tarfile.TarInfo("null")
    device.type = tarfile.CHRTYPE
    path = tarball(tmp_path / "t.tar", [link("passwd", "/etc/passwd"), device, ("ok.log", TEXT)])
    assert content(path) == {"ok.log": LINES}
    assert refused(path) == {
        "passwd": "a link to /etc/passwd: links are not followed",
        "null": "neither a file nor a folder",
    }


def test_links_in_a_folder_are_not_followed_so_there_are_no_loops(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.log").write_bytes(TEXT)
    (folder / "again.log").symlink_to("a.log")
    (folder / "loop").symlink_to(folder)
    (folder / "self").symlink_to("self")
    os.mkfifo(folder / "pipe")
    assert content(folder) == {"a.log": LINES}
    assert sorted(refused(folder)) == ["again.log", "loop", "pipe", "self"]


def test_a_root_that_is_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.log").write_bytes(TEXT)
    (tmp_path / "root").symlink_to("real")
    assert content(tmp_path / "root") == {"a.log": LINES}


def test_of_two_files_of_one_name_in_a_tarball_the_last_is_valid(tmp_path: Path) -> None:
    path = tarball(tmp_path / "t.tar", [("a.log", b"old\n"), ("a.log", b"new\n")])
    assert content(path) == {"a.log": [b"new\n"]}


def test_a_torn_packed_file_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = b"".join(b"line %d %s\n" % (n, os.urandom(20).hex().encode()) for n in range(5000))
    (tmp_path / "a.gz").write_bytes(gzip.compress(text)[:60_000])
    (tmp_path / "b.log").write_bytes(TEXT)
    with Bundle(tmp_path) as bundle:
        lines = [line for line in bundle.files[0].lines() if line.endswith(b"\n")]
        assert 500 < len(lines) < 5000 and text.startswith(b"".join(lines))
        (damage,) = bundle.refused
        assert damage.name == "a.gz" and damage.why.startswith(f"damaged behind line {len(lines)}")
        assert list(bundle.files[1].lines()) == LINES


def test_hardly_anything_before_a_damaged_place_is_lost(tmp_path: Path) -> None:
    """bzip2 at its least packs 100 kB at a time: what is read of the damaged ones may be wrong."""
    lines = [b"%09d\n" % number for number in range(100_000)]
    packed = bytearray(bz2.compress(b"".join(lines), 1))
    packed[len(packed) * 3 // 4] ^= 255
    (tmp_path / "x").write_bytes(packed)
    got = content(tmp_path)["x"]
    assert got[:73_000] == lines[:73_000] and len(got) < 80_000


def test_a_torn_tarball_gives_the_files_before(tmp_path: Path) -> None:
    members: list[tuple[str, bytes] | tarfile.TarInfo] = [
        (f"{n}.log", os.urandom(20_000).hex().encode()) for n in range(9)
    ]
    path = tarball(tmp_path / "t.tgz", members, "w:gz")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with Bundle(path) as bundle:
        assert 0 < len(bundle.files) < 9
        assert bundle.refused[0].name == "t.tgz" and "the files behind are missing" in bundle.refused[0].why


def test_garbage_behind_a_gzip_magic_costs_that_file_alone(tmp_path: Path) -> None:
    (tmp_path / "bad.gz").write_bytes(b"\x1f\x8b" + b"\xff" * 100)
    (tmp_path / "ok.log").write_bytes(TEXT)
    assert content(tmp_path) == {"ok.log": LINES}
    assert refused(tmp_path)["bad.gz"].startswith("damaged")


def test_nothing_there_is_an_error_with_the_name(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"no-such: cannot be read: No such file"), Bundle(tmp_path / "no-such"):
        pass


def test_a_broken_single_input_is_an_error_with_name_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "bad.gz"
    path.write_bytes(b"\x1f\x8b" + b"\xff" * 100)
    with pytest.raises(BundleError, match=r"bad\.gz: .*damaged"), Bundle(path):
        pass


def test_an_empty_file_and_an_empty_folder_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert content(tmp_path / "empty") == {}
    (tmp_path / "empty" / "x.log").touch()
    assert content(tmp_path / "empty") == {"x.log": []}


def test_a_line_without_end_is_cut_and_the_numbers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_module, "LINE_MAX", 10)
    (tmp_path / "x.log").write_bytes(b"a" * 35 + b"\nsecond\n" + b"b" * 25)
    assert content(tmp_path) == {"x.log": [b"a" * 10 + b"\n", b"second\n", b"b" * 10 + b"\n"]}


def test_the_head_is_the_first_lines(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"".join(b"%d\n" % n for n in range(100))))
    with Bundle(tmp_path) as bundle:
        assert bundle.files[0].head(3) == [b"0\n", b"1\n", b"2\n"]
        assert len(list(bundle.files[0].lines())) == 100


@pytest.mark.parametrize("packed", [False, True])
def test_progress_reaches_the_whole(tmp_path: Path, packed: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_bytes(os.urandom(300_000).replace(b"\n", b"x") + b"\n")
    path = folder
    if packed:
        path = tmp_path / "in.tgz"
        subprocess.run(["tar", "-czf", path, "-C", folder, "."], check=True)
    told: list[tuple[int, int]] = []
    with Bundle(path, progress=lambda done, total: told.append((done, total))) as bundle:
        unpacked = len(told)
        assert bool(unpacked) == packed
        for file in bundle:
            before = len(told)
            file.head()
            assert len(told) == before
            list(file.lines())
        assert (len(told) == unpacked) == packed
    total = sum(file.stat().st_size for file in folder.iterdir()) if not packed else path.stat().st_size
    assert told[-1] == (total, total) and told == sorted(told)


def test_what_was_unpacked_is_gone_afterwards(tmp_path: Path) -> None:
    path = tarball(tmp_path / "t.tar", [("a", TEXT)])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with Bundle(path, scratch=scratch):
        assert list(scratch.rglob("1"))
    assert not list(scratch.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_listed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(TEXT)
    (tmp_path / "secret").chmod(0)
    assert refused(tmp_path) == {"secret": "cannot be read: Permission denied"}


def test_a_file_that_is_gone_when_it_is_read_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(TEXT)
    with Bundle(tmp_path) as bundle:
        (tmp_path / "x.log").unlink()
        with pytest.raises(BundleError, match=r"x\.log: cannot be read: No such file"):
            list(bundle.files[0].lines())
