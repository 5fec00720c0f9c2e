"""`qpid-cluster render`: what is written and told, and that nothing is overwritten unasked."""

import json
import stat

import pytest

from ha.qpid_cluster.main import RENDERED, main
from ha.qpid_cluster.render.kinds import KINDS
from ha.qpid_cluster.render.writer import WriteError, write
from qpidd_py.security.users import password_matches, read_user_file
from tests.unit.ha.rendering import cluster


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(cluster(3))
    return path


def test_it_can_render_every_kind():
    assert set(RENDERED) == {*KINDS, "all"}


def test_files_are_written_and_told(file, tmp_path, capsys):
    assert main(["render", str(file), "-o", str(tmp_path / "out"), "--for", "systemd"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert f"written   {tmp_path}/out/qpidd-node1.conf" in told
    assert (tmp_path / "out" / "qpidd.service.d" / "cluster.conf").exists()
    assert not list((tmp_path / "out").rglob(".*"))


def test_the_file_may_be_named_as_for_the_other_commands(file, tmp_path, capsys):
    assert main(["--config", str(file), "render", "-o", str(tmp_path / "out"), "--for", "systemd", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["directory"] == str(tmp_path / "out")
    assert set(told["files"].values()) == {"written"}


def test_what_differs_is_not_overwritten(file, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["render", str(file), "-o", str(out), "--for", "systemd"]
    assert main(command) == 0
    (out / "qpidd-node2.conf").write_text("edited by hand")
    (out / "README.md").unlink()
    assert main(command) == 1
    assert "found other content in qpidd-node2.conf; --force replaces it" in capsys.readouterr().err
    assert (out / "qpidd-node2.conf").read_text() == "edited by hand"
    assert not (out / "README.md").exists(), "all or nothing"
    assert main([*command, "--json"]) == 1
    assert "--force" in json.loads(capsys.readouterr().err)["error"]
    assert main([*command, "--force"]) == 0
    told = capsys.readouterr().out
    assert f"replaced  {out}/qpidd-node2.conf" in told and f"unchanged {out}/qpidd-node1.conf" in told


def test_a_fault_of_the_cluster_file_is_wrong_usage(file, tmp_path, capsys):
    assert main(["render", str(file), "-o", str(tmp_path), "--for", "pacemaker"]) == 0
    file.write_text(cluster(2, safety="manager"))
    assert main(["render", str(file), "-o", str(tmp_path), "--for", "pacemaker"]) == 2
    assert "wanted it for two nodes" in capsys.readouterr().err


def test_passwords_are_not_for_everybody(tmp_path):
    write(tmp_path, {"a.conf": "x", "b.sh": "x", "README.md": "x", "cluster.yaml": "x"})
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert not modes["a.conf"] & 0o007 and not modes["b.sh"] & 0o007
    assert modes["cluster.yaml"] & 0o004, "the container's user is another one"
    assert modes["b.sh"] & 0o100 and not modes["a.conf"] & 0o100


def test_what_cannot_be_written_is_named(tmp_path):
    (tmp_path / "a").write_text("a file")
    with pytest.raises(WriteError, match="cannot write"):
        write(tmp_path / "a", {"b/c": "x"})


def test_the_old_file_stands_until_the_new_one_is_complete(tmp_path, monkeypatch):
    (tmp_path / "a.conf").write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("ha.qpid_cluster.render.writer.os.open", full)
    with pytest.raises(WriteError, match="No space left"):
        write(tmp_path, {"a.conf": "new"}, force=True)
    assert (tmp_path / "a.conf").read_text() == "old"


def test_clients_have_a_user_whose_password_is_told_once(file, tmp_path, capsys):
    command = ["render", str(file), "-o", str(tmp_path / "out"), "--for", "systemd", "--json"]
    assert main(command) == 0
    name, _, password = json.loads(capsys.readouterr().out)["login"].partition("/")
    users = tmp_path / "out" / "users.yaml"
    assert stat.S_IMODE(users.stat().st_mode) == 0o600
    assert list(read_user_file(users)) == [name] and password_matches(password, read_user_file(users)[name])
    assert "user-file=/etc/qpid/users.yaml" in (tmp_path / "out" / "qpidd-node1.conf").read_text()

    users.write_text("anna: of the administrator\n")
    assert main([*command, "--force"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["files"]["users.yaml"] == "unchanged" and "login" not in told
    assert users.read_text() == "anna: of the administrator\n"


def test_every_kind_gets_the_user_file_when_all_are_written(file, tmp_path, capsys):
    file.write_text(cluster(3, "deployment: {virtual-ip: 192.0.2.10/24}\n"))
    assert main(["render", str(file), "-o", str(tmp_path / "out"), "--for", "all"]) == 0
    found = {path.parent.name: path for path in (tmp_path / "out").glob("*/users.yaml")}
    assert set(found) == set(KINDS)
    assert capsys.readouterr().out.count("clients log in as app with the password") == 1


@pytest.mark.parametrize("kind", ["systemd", "compose"])
def test_a_user_file_of_ones_own_is_left_alone(kind, file, tmp_path, capsys):
    file.write_text(cluster(3).replace("options: {", "options: {user-file: /srv/users, "))
    assert main(["render", str(file), "-o", str(tmp_path / "out"), "--for", kind]) == 0
    assert not (tmp_path / "out" / "users.yaml").exists() and "password" not in capsys.readouterr().out
    assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file() and "users.yaml" in path.read_text()]
