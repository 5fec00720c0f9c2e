"""The program `qpidd`: start, options, lock, background, stop, exit codes, TLS."""

import os
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pika
import pika.exceptions
import pytest

from tests.support.process import BrokerProcess
from tests.support.system import skip_without
from tests.support.wait import wait_for, wait_logged

MakeBroker = Callable[..., BrokerProcess]


def qpidd(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("QPID_")}
    command = [sys.executable, "-m", "qpidd_py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)


def connect(port: int, user: str = "guest", password: str = "guest", **options: object) -> pika.BlockingConnection:
    login = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, credentials=login, **options))


def test_a_client_is_served_and_sigterm_ends_cleanly(broker: BrokerProcess) -> None:
    channel = connect(broker.port).channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    channel.basic_publish("", "q", b"hello", mandatory=True)
    assert channel.basic_get("q", auto_ack=True)[2] == b"hello"
    broker.signal(signal.SIGTERM)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        wait_for(lambda: channel.connection.process_data_events(0.1))
    assert closed.value.reply_code == 320
    assert "is stopping" in closed.value.reply_text
    assert broker.wait() == 0
    wait_logged(broker, "stopping: SIGTERM")


def test_port_0_is_chosen_and_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "qpidd_py", "--port", "0", "--interface", "127.0.0.1", "--no-data-dir", "yes"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            connect(int(process.stdout.readline())).close()
        finally:
            process.terminate()
        assert process.wait(30) == 0


def test_a_second_broker_on_the_data_directory_is_refused(broker: BrokerProcess) -> None:
    second = qpidd("--port", "0", "--data-dir", str(broker.data_dir))
    assert second.returncode == 1
    assert f"locked by the running process {broker.pid}" in second.stderr


def test_a_killed_broker_comes_back_on_its_port(broker: BrokerProcess) -> None:
    connection = connect(broker.port)
    broker.kill()
    with pytest.raises(pika.exceptions.AMQPError):
        wait_for(lambda: connection.process_data_events(0.1))
    broker.start()
    connect(broker.port).close()


def test_a_port_in_use_is_named(broker: BrokerProcess, tmp_path: Path) -> None:
    address = ("--interface", "127.0.0.1", "--port", str(broker.port))
    second = qpidd(*address, "--data-dir", str(tmp_path / "other"))
    assert second.returncode == 1
    assert broker.address in second.stderr
    assert not (tmp_path / "other" / "lock").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nonsense"], "--nonsense"),
        (["--port", "x"], "option port: found 'x'"),
        (["--log-enable", "loud"], "log rule"),
        (["--user-file", "/nonexistent"], "user file"),
        (["--ssl-cert", "/nonexistent"], "certificate"),
        (["--interface", "203.0.113.1", "--port", "0"], "203.0.113.1"),
    ],
)
def test_what_stops_the_start(arguments: list[str], message: str) -> None:
    ended = qpidd("--no-data-dir", "yes", *arguments)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert message in ended.stderr
    assert "Traceback" not in ended.stderr


def test_version_and_help() -> None:
    assert qpidd("--version").stdout.startswith("qpidd-py ")
    shown = qpidd("--help").stdout
    assert "--ha-brokers-url" in shown, "the plug-in's options are there"


def test_daemon_check_and_quit(tmp_path: Path) -> None:
    options = ("--data-dir", str(tmp_path / "data"), "--interface", "127.0.0.1")
    assert qpidd("--check", *options).returncode == 1
    assert qpidd("--quit", *options).returncode == 1
    started = qpidd("--daemon", "--port", "0", "--log-to-file", str(tmp_path / "log"), *options)
    try:
        assert started.returncode == 0, started.stderr
        connect(int(started.stdout)).close()
        checked = qpidd("--check", *options)
        assert checked.returncode == 0
        assert os.getsid(int(checked.stdout)) != os.getsid(0)
    finally:
        stopped = qpidd("--quit", "--wait", "10", *options)
    assert stopped.returncode == 0
    assert qpidd("--check", *options).returncode == 1
    assert "stopping: SIGTERM" in (tmp_path / "log").read_text()


def test_a_daemon_that_cannot_start_says_why(broker: BrokerProcess, tmp_path: Path) -> None:
    address = ("--interface", "127.0.0.1", "--port", str(broker.port))
    started = qpidd("--daemon", "--log-to-file", str(tmp_path / "log"), "--no-data-dir", "yes", *address)
    assert started.returncode == 1
    assert broker.address in started.stderr


def test_the_pid_file(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker("--pid-dir", str(tmp_path / "run")).start()
    file = tmp_path / "run" / f"qpidd.{broker.port}.pid"
    assert int(file.read_text()) == broker.pid
    options = ("--pid-dir", str(tmp_path / "run"), "--port", str(broker.port))
    assert qpidd("--check", *options).stdout.strip() == str(broker.pid)
    broker.kill()
    assert qpidd("--check", *options).returncode == 1, "a stale file is no running broker"
    broker.start()
    assert broker.stop() == 0
    assert not file.exists()


def test_login(make_broker: MakeBroker, tmp_path: Path) -> None:
    add = [sys.executable, "-m", "qpidd_py.cli.qpid_passwd", "add", str(tmp_path / "users.yaml"), "anna"]
    subprocess.run(add, input="secret\n", text=True, check=True)
    broker = make_broker("--user-file", str(tmp_path / "users.yaml")).start()
    connect(broker.port, "anna", "secret").close()
    for user, password in (("anna", "wrong"), ("guest", "guest")):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            connect(broker.port, user, password)


def test_without_authentication(make_broker: MakeBroker) -> None:
    connect(make_broker("--auth", "no").start().port, "anybody", "anything").close()


def test_a_silent_client_is_cut_off(make_broker: MakeBroker) -> None:
    broker = make_broker("--max-negotiate-time", "200").start()
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as silent:
        assert silent.recv(100) == b""


def test_another_protocol_is_told_ours(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=30) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 100)
        assert stranger.recv(100) == b"AMQP\x00\x00\x09\x01"
        assert stranger.recv(100) == b""


def test_no_more_than_max_connections(make_broker: MakeBroker) -> None:
    broker = make_broker("--max-connections", "1").start()
    first = connect(broker.port)
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connect(broker.port)
    first.close()
    wait_for(lambda: connect(broker.port).close() is None)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tls")
    skip_without("openssl")
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost "
        "-days 2 -keyout key.pem -out cert.pem",
        shell=True,
        cwd=directory,
        capture_output=True,
        check=True,
    )
    file = directory / "both.pem"
    file.write_text((directory / "key.pem").read_text() + (directory / "cert.pem").read_text())
    return file


def test_tls(make_broker: MakeBroker, certificate: Path) -> None:
    broker = make_broker("--ssl-cert", str(certificate), "--ssl-port", "0", "--require-encryption").start()
    port = int(broker.log.split("TLS on 127.0.0.1:")[1].split()[0])
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    channel = connect(port, ssl_options=pika.SSLOptions(trusting)).channel()
    channel.confirm_delivery()
    channel.queue_declare("q")
    bodies = [bytes([number]) * size for number, size in enumerate((0, 1, 100, 70_000, 3_000_000))]
    for body in bodies:
        channel.basic_publish("", "q", body)
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in bodies] == bodies
    with pytest.raises(pika.exceptions.AMQPError):
        connect(broker.port)
    assert broker.stop() == 0
