"""A cluster whose members take nothing but TLS: links, questions, promotions, and who is not let in."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from qpidd_py.amqp.client_handshake import Login
from qpidd_py.cli.client_socket import Deadline, ManagementSocket, RequestRefused, Target
from tests.acceptance.cluster import ANSWER_TIME, TIMEOUT, Cluster, Member
from tests.support import programs
from tests.support.certificates import Authority, needs_openssl
from tests.support.process import HeldPort
from tests.support.wait import wait_for, wait_logged

pytestmark = needs_openssl

USER = "qpid-ha"


class TlsMember(Member):
    """One broker with a TLS port; `address` is that of the TLS port."""

    def __init__(self, directory: Path, name: str, authority: Authority) -> None:
        super().__init__(directory, name=name)
        self._tls_held = HeldPort()
        self.tls_port = self._tls_held.port
        self.tls = ssl.create_default_context(cafile=authority.file)
        self.tls.load_cert_chain(certificate(authority))

    @property
    def address(self) -> str:
        return f"ssl:127.0.0.1:{self.tls_port}"

    def ask(self, method: str, timeout: float = ANSWER_TIME, user: str = "guest", **arguments: Any) -> Any:
        login = Login(USER, "", "EXTERNAL") if "EXTERNAL" in self.options else Login()
        target = Target("127.0.0.1", self.tls_port, login, self.tls)
        with ManagementSocket(target, Deadline(timeout)) as connection:
            return connection.request(method, arguments)

    def parameters(self, admin: bool = False, **options: Any) -> pika.ConnectionParameters:
        plain = super().parameters(admin, **options)
        plain.port = self.tls_port
        plain.ssl_options = pika.SSLOptions(self.tls, "127.0.0.1")
        return plain


class TlsCluster(Cluster):
    """`options` as in `Cluster`; every member has its own certificate, with the name `user`."""

    def __init__(self, directory: Path, authority: Authority, **options: str) -> None:
        self.authority = authority
        secured = {"require_encryption": "yes", "ssl_ca": str(authority.file), "ssl_cert": str(certificate(authority))}
        super().__init__(directory, 3, **{**secured, **options})

    def _make(self, number: int) -> Member:
        return TlsMember(self.directory, f"node{number}", self.authority)

    def _tell_addresses(self) -> None:
        super()._tell_addresses()
        for member in self.members:
            assert isinstance(member, TlsMember)
            member.options = (*member.options, "--ssl-port", str(member.tls_port))


def certificate(authority: Authority, user: str = USER) -> Path:
    found = authority.directory / f"{user}.pem"
    return found if found.exists() else authority.certificate(user)


def changed(member: Member, **options: object) -> None:
    """Other values for options that it has."""
    words = list(member.options)
    for name, value in options.items():
        words[words.index("--" + name.replace("_", "-")) + 1] = str(value)
    member.options = words


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["PLAIN", "EXTERNAL"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path, authority: Authority) -> Iterator[TlsCluster]:
    external = {"ha_username": USER, "ha_password": "", "ha_mechanism": "EXTERNAL"}
    options = external if request.param == "EXTERNAL" else {}
    found = TlsCluster(tmp_path, authority, ha_safety="quorum", **options)
    with found:
        yield found


def publish(member: Member, *bodies: bytes) -> None:
    with member.channel() as channel:
        channel.queue_declare("q", durable=True)
        for body in bodies:
            channel.basic_publish("", "q", body, mandatory=True)


@pytest.mark.parametrize("safety", ["manager", "quorum"])
def test_of_brokers_that_take_only_tls_one_is_promoted(tmp_path: Path, authority: Authority, safety: str) -> None:
    """Their plain ports are closed.  (Links and questions went there: both were refused, and so both promoted.)"""
    with TlsCluster(tmp_path, authority, ha_safety=safety) as cluster:
        first, second, third = cluster.spawn().members
        first.promote()
        for other in (second, third):
            with pytest.raises(RequestRefused, match="is primary"):
                other.promote_once()
        cluster.settle()
        publish(first, b"one")
        cluster.fail_over()
        publish(cluster.primary, b"two")
        assert cluster.primary.peek("q") == ["one", "two"]


def test_plain_addresses_are_refused_where_only_tls_is_taken(tmp_path: Path, authority: Authority) -> None:
    with TlsCluster(tmp_path, authority) as cluster:
        member = cluster.members[0]
        changed(member, ha_brokers_url="127.0.0.1:5672,127.0.0.1:5673")
        member.spawn().wait()
        wanted = "expected ssl: before each address, such as ssl:127.0.0.1:"
        wait_logged(member, f"option ha-brokers-url: found 127.0.0.1:5672 with require-encryption, {wanted}")


def test_a_login_by_certificate_needs_tls(tmp_path: Path, authority: Authority) -> None:
    options = {"ha_username": USER, "ha_password": "", "ha_mechanism": "EXTERNAL", "require_encryption": "no"}
    with TlsCluster(tmp_path, authority, **options) as cluster:
        member = cluster.members[0]
        changed(member, ha_brokers_url=f"127.0.0.1:{member.port},127.0.0.1:1,127.0.0.1:2")
        member.spawn().wait()
        wait_logged(member, f"option ha-mechanism: found EXTERNAL with 127.0.0.1:{member.port} in ha-brokers-url")


def test_a_broker_that_comes_back_joins_over_tls(cluster: TlsCluster) -> None:
    cluster.start()
    publish(cluster.primary, b"1")
    killed = cluster.backups[0]
    killed.kill()
    publish(cluster.primary, b"2" * 30_000)
    killed.start().wait_status("ready")
    assert [len(body) for body in killed.peek("q")] == [1, 30_000]
    cluster.bounce()
    publish(cluster.primary, b"3")


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("expired", "its certificate is refused: certificate has expired"),
        ("foreign", "its certificate is refused: "),
        ("elsewhere", "its certificate is refused: IP address mismatch"),
    ],
)
def test_a_broker_with_a_wrong_certificate_is_silent(tmp_path: Path, authority: Authority, kind: str, why: str) -> None:
    wrong = {
        "expired": lambda: authority.certificate("expired", days=-1),
        "foreign": lambda: Authority(tmp_path / "other", "other").certificate("foreign"),
        "elsewhere": lambda: authority.certificate("elsewhere", hosts="IP:192.0.2.1"),
    }[kind]()
    with TlsCluster(tmp_path, authority, ha_safety="manager") as cluster:
        first, second, stranger = cluster.members
        changed(stranger, ssl_cert=wrong)
        cluster.spawn()
        with pytest.raises(RequestRefused, match=r"it is new, and .* does not answer"):
            first.promote_once()
        place = stranger.address
        wait_for(lambda: f"{place} cannot be asked: {why}" in first.log, TIMEOUT, lambda: first.log)
        assert second.status == "joining"
        wait_for(lambda: "it breaks the handshake off" in stranger.log, TIMEOUT, lambda: stranger.log)


def test_a_certificate_of_another_name_is_no_broker(tmp_path: Path, authority: Authority) -> None:
    """EXTERNAL: the name in the certificate is the user of the other brokers."""
    options = {"ha_username": USER, "ha_password": "", "ha_mechanism": "EXTERNAL", "ha_safety": "manager"}
    with TlsCluster(tmp_path, authority, **options) as cluster:
        first, _, stranger = cluster.members
        changed(stranger, ssl_cert=certificate(authority, "somebody"))
        cluster.spawn()
        refused = f"{first.address} closes our admin connection: ACCESS_REFUSED"
        wait_for(lambda: refused in stranger.log, TIMEOUT, lambda: stranger.log)


def test_the_tool_asks_all_brokers_over_tls(tmp_path: Path, authority: Authority) -> None:
    """With an address, and with the broker's own configuration only."""
    external = {"ha_username": USER, "ha_password": "", "ha_mechanism": "EXTERNAL", "ha_safety": "quorum"}
    with TlsCluster(tmp_path, authority, **external) as cluster:
        first = cluster.start().members[0]
        places = [member.address for member in cluster.members]
        wanted = [f"{places[0]} active", *(f"{place} ready" for place in places[1:])]
        mine = ("--ssl-ca", str(authority.file), "--ssl-certificate", str(certificate(authority)))
        login = ("--sasl-mechanism", "EXTERNAL", "-b", f"{USER}@{first.address}")
        assert sorted(tool("status", "--all", *mine, *login)) == sorted(wanted)
        config = tmp_path / "qpidd.conf"
        files = f"ssl-ca={authority.file}\nssl-cert={certificate(authority)}\nssl-port={first.address.split(':')[-1]}\n"
        config.write_text(f"require-encryption=yes\nha-username={USER}\nha-mechanism=EXTERNAL\n{files}")
        assert sorted(tool("status", "--all", "--config", str(config))) == sorted(wanted)
        assert tool("member", "--config", str(config)) == places


def tool(*words: str) -> list[str]:
    command = [sys.executable, "-m", "ha.qpid_ha.main", *words]
    done = programs.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, done.stdout
    return str(done.stdout).splitlines()


class BothMember(TlsMember):
    """It takes plain connections, too, by which the test asks it."""

    ask = Member.ask
    parameters = Member.parameters


class BothCluster(TlsCluster):
    def _make(self, number: int) -> Member:
        return BothMember(self.directory, f"node{number}", self.authority)

    @property
    def plain(self) -> str:
        return ",".join(f"127.0.0.1:{member.port}" for member in self.members)

    def _tell_addresses(self) -> None:
        super()._tell_addresses()
        for member in self.members:
            changed(member, ha_brokers_url=self.plain)


@pytest.mark.slow
def test_a_cluster_moves_from_plain_addresses_to_tls(tmp_path: Path, authority: Authority) -> None:
    """One member after the other leaves with its plain address and comes with the other one; docs/how-to/tls.md."""
    with BothCluster(tmp_path, authority, require_encryption="no", ha_safety="quorum") as cluster:
        cluster.start()
        publish(cluster.primary, b"kept")
        for member in (*cluster.backups, cluster.primary):
            if member is cluster.primary:
                cluster.primary.ask("ha.relocate", timeout=20.0)
                cluster.settle()
            cluster.primary.ask("ha.member", action="remove", address=f"127.0.0.1:{member.port}")
            member.kill()
            changed(member, ha_brokers_url=cluster.url)
            member.start()
            cluster.primary.ask("ha.member", action="add", address=member.address)
            member.wait_status("ready")
        brokers = cluster.primary.ask("ha.member", action="list")["brokers"]
        assert sorted(brokers) == sorted(member.address for member in cluster.members)
        assert all(member.peek("q") == ["kept"] for member in cluster.members)
