"""`make install DESTDIR=`: the tree."""

import os
import shutil
import stat
import subprocess
import sys
import tarfile
import threading
from functools import partial
from pathlib import Path

from tests.pacemaker.lab.package import QUICKLY, interpreter
from tests.packaging.conftest import BUILD_TIME, ROOT, make
from tests.support.wait import wait_for

OURS = (
    "qpidd",
    "qpidd-journal",
    "qpid-passwd",
    "qpid-ha",
    "qpid-config",
    "qpid-stat",
    "qpidctl",
    "qpid-http",
    "qpid-route",
    "qpid-shovel",
    "qpid-metrics",
    "qpid-printevents",
    "qpid-cluster",
)
PROGRAMS = (*OURS, "qpid-send", "qpid-receive", "failover-report")
MODES = {
    "etc/init.d/qpidd": 0o755,
    "etc/init.d/qpidd-primary": 0o755,
    "etc/logrotate.d/qpidd": 0o644,
    "etc/qpid/qpidd.conf": 0o640,
    "usr/lib/ocf/resource.d/qpid/qpidd": 0o755,
    "usr/lib/ocf/resource.d/qpid/vip": 0o755,
    "usr/lib/systemd/system/qpid-cluster.service": 0o644,
    "usr/lib/systemd/system/qpid-shovel.service": 0o644,
    "usr/lib/systemd/system/qpidd-primary.service": 0o644,
    "usr/lib/systemd/system/qpidd.service": 0o644,
    "usr/lib/systemd/system/qpidd@.service": 0o644,
    "usr/lib/sysusers.d/qpidd.conf": 0o644,
    "usr/lib/tmpfiles.d/qpidd.conf": 0o644,
    "usr/share/bash-completion/completions/failover-report": 0o644,
    "usr/share/bash-completion/completions/qpid-ha": 0o644,
    "usr/share/bash-completion/completions/qpid-send": 0o644,
    "usr/share/doc/qpidd/CHANGELOG.md": 0o644,
    "usr/share/doc/qpidd/README.md": 0o644,
    "usr/share/doc/qpidd/docs/runbook.md": 0o644,
    "usr/share/doc/qpidd/failover-report.md": 0o644,
    "usr/share/doc/qpidd/examples/cluster.yaml": 0o644,
    "usr/share/doc/qpidd/examples/qpidd.conf": 0o644,
    "usr/share/man/man1/failover-report.1": 0o644,
    "usr/share/man/man8/qpid-ha.8": 0o644,
    "usr/share/man/man8/qpidd.8": 0o644,
    "usr/share/qpidd/pacemaker-alert": 0o755,
    "usr/share/qpidd/post-install": 0o755,
    "usr/share/zsh/vendor-completions/_qpid-ha": 0o644,
    "usr/share/zsh/vendor-completions/_qpid-receive": 0o644,
}
"""What must be there, with its mode; more may be."""


def site_packages(tree: Path) -> Path:
    return next((tree / "usr/lib/qpidd/lib").glob("python3.*/site-packages"))


def test_files_and_modes(tree: Path) -> None:
    found = {name: stat.S_IMODE((tree / name).stat().st_mode) for name in MODES if (tree / name).exists()}
    assert found == MODES


def test_programs_are_links_to_scripts_with_the_final_interpreter(tree: Path) -> None:
    for name in PROGRAMS:
        link = tree / "usr/bin" / name
        assert os.readlink(link) == f"../lib/qpidd/bin/{name}"
        assert link.read_text().splitlines()[0] == "#!/usr/lib/qpidd/bin/python -I"
        assert os.access(link, os.X_OK)


def test_nothing_leads_back_to_where_it_was_built(tree: Path) -> None:
    built = [str(tree).encode(), str(Path(__file__).parents[2]).encode()]
    guilty = [
        path for path in tree.rglob("*")
        if path.is_file() and not path.is_symlink() and any(place in path.read_bytes() for place in built)
    ]  # fmt: skip
    assert guilty == []
    targets = [os.readlink(path) for path in tree.rglob("*") if path.is_symlink()]
    assert [target for target in targets if target.startswith("/") and not target.startswith("/usr/bin/")] == []


def test_holds_what_the_broker_needs_and_no_tools_for_development(tree: Path) -> None:
    packages = {path.name.partition("-")[0].lower() for path in site_packages(tree).glob("*.dist-info")}
    assert packages == {
        "qpidd_py",
        "google_re2",
        "pamqp",
        "pika",
        "prometheus_client",
        "psutil",
        "pyyaml",
        "sh",
        "tenacity",
    }
    assert not list(site_packages(tree).glob("*.pth"))  # each would be read at each start of a tool


def test_the_page_of_the_api_is_there(tree: Path) -> None:
    page = site_packages(tree) / "qpidd_py/http/page"
    assert {path.suffix for path in page.iterdir() if path.is_file()} == {".py", ".html", ".css", ".js"}


def test_the_tables_of_words_of_the_jobs_are_there(tree: Path) -> None:
    jobs = site_packages(tree) / "spark_jobs"
    assert (jobs / "report/words.toml").exists() and (jobs / "report/page.css").exists()


def test_modules_are_compiled(tree: Path) -> None:
    """The user who runs the tools cannot write there; `qpid-ha` would compile everything at each call."""
    modules = [*site_packages(tree).rglob("*.py"), *(tree / "usr/lib/ocf/lib/qpid").rglob("*.py")]
    assert [path for path in modules if not list(path.parent.glob(f"__pycache__/{path.stem}.*.pyc"))] == []


def test_again_changes_nothing_but_keeps_the_administrators_file(tree: Path) -> None:
    conf = tree / "etc/qpid/qpidd.conf"
    original = conf.read_text()
    before = {path: path.lstat().st_mtime_ns for path in tree.rglob("*") if not path.is_dir() and path != conf}
    conf.write_text("port=5999\n")
    try:
        make("install", f"DESTDIR={tree}")
        assert conf.read_text() == "port=5999\n"
        links = {path for path in before if path.is_symlink()}
        after = {path: path.lstat().st_mtime_ns for path in tree.rglob("*") if not path.is_dir() and path != conf}
        assert after.keys() == before.keys()
        assert {path for path in after if path not in links and after[path] != before[path]} == set()
    finally:
        conf.write_text(original)
        conf.chmod(0o640)


def test_an_upgrade_is_not_noticed_by_the_agent(tmp_path: Path) -> None:
    """A monitor that fails restarts a broker.  Each installation here has another agent than the one before."""
    root = tmp_path / "root"
    ocf = root / "usr/lib/ocf"
    project = tmp_path / "project"
    shutil.copytree(ROOT / "resource_agents", project / "resource_agents")
    (project / "packaging").mkdir()
    text = (ROOT / "packaging/install.sh").read_text().replace('main "$@"', 'install_agents "$DESTDIR"')
    (project / "packaging/install.sh").write_text(text)

    def install(number: int) -> None:
        with (project / "resource_agents/ocf/qpidd_agent/metadata.py").open("a") as file:
            file.write(f"\n# {number}\n")
        subprocess.run(["bash", "packaging/install.sh"], cwd=project, env={**QUICKLY, "DESTDIR": str(root),
                       "PYTHON": str(interpreter())}, check=True, timeout=BUILD_TIME)  # fmt: skip

    install(0)
    results: list[subprocess.CompletedProcess[str]] = []
    over = threading.Event()

    def monitors() -> None:
        while not over.is_set():
            results.append(call(ocf / "resource.d/qpid/qpidd", ocf))

    def called(times: int) -> bool:
        return len(results) >= times

    callers = [threading.Thread(target=monitors) for _ in range(3)]
    for caller in callers:
        caller.start()
    try:
        for number in range(1, 8):
            install(number)
            wanted = len(results) + 4
            wait_for(partial(called, wanted), 60, "the agent is called")
    finally:
        over.set()
        for caller in callers:
            caller.join()
    assert [done for done in results if done.returncode or "</resource-agent>" not in done.stdout] == []
    kept = sorted(path.name for path in (ocf / "lib/qpid").iterdir())
    assert len(kept) == 3 and kept[0] == "agent", "the link, the agent, and the one before"


def call(script: Path, ocf: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OCF_ROOT": str(ocf)}
    try:
        return subprocess.run(
            [sys.executable, "-IS", str(script), "meta-data"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return subprocess.CompletedProcess([], 127, "", str(error))


def test_uninstall_leaves_configuration_only(tmp_path: Path) -> None:
    make("install", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    make("uninstall", f"DESTDIR={tmp_path}", "PREFIX=/usr")
    assert [path for path in tmp_path.rglob("*") if not path.is_dir()] == [tmp_path / "etc/qpid/qpidd.conf"]


def test_package_holds_the_same_files_and_no_directories(tree: Path, package: Path) -> None:
    """A directory `lib` in a tarball replaces the link /lib of a machine where it is unpacked."""
    with tarfile.open(package) as archive:
        members = archive.getmembers()
    assert not [member.name for member in members if member.isdir()]
    assert {(member.uid, member.gid) for member in members} == {(0, 0)}
    files = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_symlink() or not path.is_dir()}
    assert {member.name for member in members} == files


def test_scripts_are_bash_and_sh(tree: Path) -> None:
    root = Path(__file__).parents[2]
    for shell, file in (
        ("bash", root / "packaging/install.sh"),
        ("bash", root / "packaging/docker/make_base.sh"),
        ("sh", tree / "usr/share/qpidd/post-install"),
    ):
        subprocess.run([shell, "-n", file], check=True)


def test_folder_does_not_hide_the_package_of_its_name() -> None:
    """`packaging` is also a library that setuptools and pytest import; a folder that is no package comes after it."""
    assert not list((Path(__file__).parents[2] / "packaging").rglob("__init__.py"))
