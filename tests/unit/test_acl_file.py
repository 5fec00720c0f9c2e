"""Which files are refused, and that a reload checks before it changes anything."""

import os
from pathlib import Path

import pytest

from qpidd_py.acl_file import MOST, AclFile
from qpidd_py.broker.broker import Broker
from qpidd_py.config import GROUPS
from qpidd_py.errors import ConfigError
from qpidd_py.options import Settings, load
from qpidd_py.security.acl.reader import SLICE, run_through

HA = "acl allow ha all all\n"


def settings(file: Path | str) -> Settings:
    return load(GROUPS, ["--acl-file", str(file)] if file else [], {}, "/nonexistent")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "x.acl"

    def refused() -> str:
        with pytest.raises(ConfigError) as caught:
            AclFile(settings(file), [])
        return str(caught.value)

    assert f"cannot read {file}: No such file or directory" in refused()
    os.mkfifo(file)
    assert f"found {file}, which is no regular file" in refused()
    file.unlink()
    file.write_bytes(b"\n" * (MOST + 1))
    assert f"of more than {MOST} octets" in refused()
    file.write_bytes(b"# \xff\nacl allow \xff all\n")
    assert "line 2: found 'acl allow \\ufffd all', expected ASCII" in refused()
    file.write_bytes(b"#" * MOST)
    assert AclFile(settings(file), []).rules


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        (HA, True),
        ("acl allow-log ha@QPID all\n", True),
        ("group brokers ha@QPID\nacl allow brokers all all\nacl deny all all\n", True),
        ("acl allow all all\n", True),
        (f"acl deny all publish exchange\n{HA}", False),
        ("acl deny kim all\nacl allow all all\n", True),
        ("acl allow ha create queue queuemaxcountupperlimit=5\nacl allow ha all\n", False),
        ("acl allow ha access\nacl allow ha create\nacl allow ha publish\n", False),
        (f"acl deny all create connection host=all\n{HA}", False),
        (f"acl allow ha create connection host=10.0.0.1\nacl deny all create connection host=all\n{HA}", True),
        (f"acl deny ha create connection host=all\n{HA}", False),
        (f"quota connections 1 kim\n{HA}", True),
    ],
)
def test_the_user_of_brokers_may_do_everything(tmp_path: Path, text: str, usable: bool) -> None:
    file = tmp_path / "x.acl"
    file.write_text(text)
    assert AclFile(settings(file), []).rules
    try:
        AclFile(settings(file), ["ha"])
    except ConfigError as error:
        assert not usable and "since other brokers log in with that name" in str(error)
    else:
        assert usable


def test_a_reload_checks_first_and_may_bring_or_take_the_file(tmp_path: Path) -> None:
    file, broker = tmp_path / "x.acl", Broker()
    acl = AclFile(settings(""), [])
    acl.bring(broker)
    assert broker.acl.rules is None and broker.reload_acl is None
    file.write_text("acl")
    with pytest.raises(ConfigError):
        run_through(acl.prepare(settings(file)))
    file.write_text(HA)
    use = run_through(acl.prepare(settings(file)))
    assert broker.acl.rules is None
    use(broker)
    assert broker.acl.rules and broker.acl.rules.count == 1 and broker.reload_acl is not None
    file.write_text(HA * 2)
    assert not list(broker.reload_acl())
    assert broker.acl.rules.count == 2
    file.unlink()
    with pytest.raises(ConfigError):
        list(broker.reload_acl())
    assert broker.acl.rules.count == 2
    run_through(acl.prepare(settings("")))(broker)
    assert broker.acl.rules is None and broker.reload_acl is None


def test_a_long_file_is_read_in_slices_and_the_newest_counts(tmp_path: Path) -> None:
    file, broker = tmp_path / "x.acl", Broker()
    file.write_text(HA)
    acl = AclFile(settings(file), [])
    acl.bring(broker)
    file.write_text("acl allow bob all\n" * 1000)
    assert broker.reload_acl is not None
    long = broker.reload_acl()
    assert [next(long) for _ in range(10)] == [None] * 10
    assert broker.acl.rules and broker.acl.rules.count == 1, "the old ones are in force"
    file.write_text("acl allow kim all\n" * 2)
    list(broker.reload_acl())
    assert len(list(long)) == 1000 // SLICE - 10
    assert broker.acl.rules.count == 2, "the file was changed after the long one was read"
