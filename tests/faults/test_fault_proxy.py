"""The fault proxy does what it says: an echo server behind it, and a client's socket before it."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.fault_proxy import Entrance, FaultProxy, Way
from tests.support.frame_counter import PROTOCOL_HEADER, FrameCounter
from tests.support.wait import stays, wait_for

GREETING = b"AMQP\0\0\x09\x01"
FRAME = b"\x01\x00\x01\x00\x00\x00\x05hello\xce"


class Echo:
    """Returns what it gets; `closed` says how its connections ended, "" at the end of a stream."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        end = ""
        try:
            while data := sock.recv(65536):
                self.received += data
                sock.sendall(data)
        except OSError as error:
            end = type(error).__name__
        sock.close()
        self.closed.append(end)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.port) as found:
        yield found


@contextmanager
def dialled(proxy: FaultProxy, timeout: float = 5.0) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout) as sock:
        yield sock


def read(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := sock.recv(count - len(data))):
        data += piece
    return data


def asked(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return read(sock, len(data))


def silent(sock: socket.socket, seconds: float = 0.1) -> bool:
    sock.settimeout(seconds)
    try:
        return not sock.recv(1) and False
    except TimeoutError:
        return True
    finally:
        sock.settimeout(5.0)


def test_passes_both_ways_and_the_end(proxy: FaultProxy, echo: Echo) -> None:
    data = bytes(range(256)) * 4000
    with dialled(proxy) as sock:
        threading.Thread(target=sock.sendall, args=(data,), daemon=True).start()
        assert read(sock, len(data)) == data
        assert proxy.connections == 1
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
    wait_for(lambda: echo.closed == [""] and not proxy.connections)


def test_a_server_that_refuses_resets_the_client(proxy: FaultProxy) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy.move(nobody.getsockname()[1])
        with pytest.raises(ConnectionResetError), dialled(proxy) as sock:
            sock.recv(1)


def test_moves_to_another_server(proxy: FaultProxy, echo: Echo) -> None:
    other = Echo()
    with dialled(proxy) as old:
        assert asked(old, b"1") == b"1"
        proxy.move(other.port)
        with dialled(proxy) as new:
            assert asked(new, b"2") + asked(old, b"3") == b"23"
    assert (echo.received, other.received) == (b"13", b"2")
    other.close()


def test_refuses_and_opens_again_on_the_same_port(proxy: FaultProxy) -> None:
    with dialled(proxy) as before:
        asked(before, b"x")
        proxy.let(Entrance.REFUSE)
        with pytest.raises(ConnectionRefusedError), dialled(proxy):
            pass
        assert asked(before, b"still there") == b"still there"
        proxy.let(Entrance.OPEN)
        with dialled(proxy) as sock:
            assert asked(sock, b"again") == b"again"


def test_accepts_and_says_nothing(proxy: FaultProxy) -> None:
    proxy.let(Entrance.HANG)
    with dialled(proxy) as sock:
        sock.sendall(GREETING)
        assert silent(sock)
        proxy.let(Entrance.OPEN)
        assert silent(sock)
        assert proxy.cut() == 1
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_a_lost_syn_is_sent_again(proxy: FaultProxy, echo: Echo) -> None:
    for _ in range(2):
        proxy.let(Entrance.DROP)
        with pytest.raises(TimeoutError), dialled(proxy, 0.3):
            pass
        with socket.socket() as late:
            late.settimeout(30.0)
            began = time.monotonic()
            threading.Timer(0.2, proxy.let, (Entrance.OPEN,)).start()
            late.connect(("127.0.0.1", proxy.port))
            assert time.monotonic() - began > 0.2
            assert asked(late, b"late") == b"late"
    assert echo.received == b"latelate"


def test_resets_at_the_entrance(proxy: FaultProxy) -> None:
    proxy.let(Entrance.RESET)
    with pytest.raises(ConnectionResetError), dialled(proxy) as sock:
        sock.recv(1)


@pytest.mark.parametrize("reset", [True, False])
def test_cut(proxy: FaultProxy, echo: Echo, reset: bool) -> None:
    with dialled(proxy) as sock:
        asked(sock, b"x")
        assert proxy.cut(reset) == 1
        if reset:
            with pytest.raises(ConnectionResetError):
                sock.recv(1)
        else:
            assert sock.recv(1) == b""
    wait_for(lambda: echo.closed == ["ConnectionResetError" if reset else ""] and not proxy.connections)


@pytest.mark.parametrize("way", [Way.TO_SERVER, Way.TO_CLIENT, Way.BOTH])
def test_what_is_held_comes_later(proxy: FaultProxy, echo: Echo, way: Way) -> None:
    with dialled(proxy) as sock:
        asked(sock, b"x")
        proxy.hold(way)
        sock.sendall(b"yz")
        assert silent(sock)
        assert echo.received == (b"xyz" if way is Way.TO_CLIENT else b"x")
        proxy.release(way)
        assert read(sock, 2) == b"yz"


@pytest.mark.parametrize("way", [Way.TO_SERVER, Way.TO_CLIENT, Way.BOTH])
def test_what_vanishes_never_comes_and_no_end_is_told(proxy: FaultProxy, echo: Echo, way: Way) -> None:
    sock = socket.create_connection(("127.0.0.1", proxy.port), 5.0)
    asked(sock, b"x")
    proxy.vanish(way)
    sock.sendall(b"y")
    assert silent(sock)
    proxy.heal()
    assert silent(sock)
    assert echo.received == (b"xy" if way is Way.TO_CLIENT else b"x")
    with dialled(proxy) as new:
        assert asked(new, b"z") == b"z"
    wait_for(lambda: len(echo.closed) == 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    if way is Way.TO_CLIENT:
        wait_for(lambda: len(echo.closed) == 2)
    else:
        assert stays(lambda: len(echo.closed) == 1, 0.1)


def test_slow_and_late(proxy: FaultProxy) -> None:
    with dialled(proxy) as sock:
        proxy.slow(Way.TO_CLIENT, rate=50_000)
        began = time.monotonic()
        assert len(asked(sock, bytes(20_000))) == 20_000
        assert time.monotonic() - began > 0.3
        proxy.slow(Way.BOTH, delay=0.25)
        began = time.monotonic()
        asked(sock, b"x")
        assert time.monotonic() - began > 0.5
        proxy.slow(Way.BOTH, delay=60.0)
        proxy.heal()
        began = time.monotonic()
        asked(sock, b"x")
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("reset", [False, True])
def test_snap_on_the_way_to_the_server(proxy: FaultProxy, echo: Echo, reset: bool) -> None:
    with dialled(proxy) as sock, dialled(proxy) as other:
        asked(sock, GREETING + FRAME)
        snap = proxy.snap(Way.TO_SERVER, frame=2, octets=9, reset=reset)
        sock.sendall(FRAME * 3)
        assert snap.done.wait(30)
        if not reset:
            assert (FRAME + FRAME[:9]).startswith(read(sock, 100))
            wait_for(lambda: echo.received == GREETING + 2 * FRAME + FRAME[:9])
        else:
            with pytest.raises(ConnectionResetError):
                read(sock, 100)
        assert asked(other, GREETING + FRAME * 5) == GREETING + FRAME * 5


def test_snap_on_the_way_to_the_client(proxy: FaultProxy, echo: Echo) -> None:
    with dialled(proxy) as sock:
        snap = proxy.snap(Way.TO_CLIENT, frame=2, octets=100)
        sock.sendall(FRAME * 3)
        assert read(sock, 100) == FRAME + FRAME[:-1]
        assert snap.done.wait(30)
    wait_for(lambda: not proxy.connections)


def test_a_snap_that_is_taken_back(proxy: FaultProxy) -> None:
    with dialled(proxy) as sock:
        snap = proxy.snap(Way.BOTH, frame=2)
        proxy.unsnap()
        assert asked(sock, GREETING + 4 * FRAME) == GREETING + 4 * FRAME
        assert not snap.done.is_set()


def test_translates_for_the_client(proxy: FaultProxy) -> None:
    proxy.translate({"127.0.0.1:10000": "127.0.0.1:20000"})
    with dialled(proxy) as sock:
        assert asked(sock, b"at 127.0.0.1:10000.") == b"at 127.0.0.1:20000."
    with pytest.raises(ValueError, match="'long' is not as long as 'longer'"):
        proxy.translate({"longer": "long"})


def pieces_of(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


@pytest.mark.parametrize("size", [1, 2, 7, 13, 100])
@pytest.mark.parametrize(
    ("frame", "octets", "passed"),
    [(1, 1, 1), (1, 6, 6), (1, 12, 12), (1, 13, 12), (2, 3, 16), (3, 99, 38)],
)
def test_frame_counter_cuts_inside_the_frame(size: int, frame: int, octets: int, passed: int) -> None:
    counter, found = FrameCounter(PROTOCOL_HEADER), 0
    counter.arm(frame, octets)
    for piece in pieces_of(GREETING + FRAME * 4, size):
        end = counter.feed(piece)
        found += len(piece) if end is None else end
        if end is not None:
            break
    assert found == PROTOCOL_HEADER + passed


def test_frame_counter_counts_from_the_arming_and_forgets() -> None:
    counter = FrameCounter()
    assert counter.feed(FRAME + FRAME[:3]) is None
    counter.arm(1, 2)
    assert counter.feed(FRAME[3:] + FRAME[:1]) is None
    counter.disarm()
    assert counter.feed(FRAME[1:] * 1 + FRAME) is None
    assert counter.frames == 4
    counter.arm(1, 2)
    assert counter.feed(FRAME) == 2
    with pytest.raises(ValueError, match="frame 0 and octets 1"):
        counter.arm(0, 1)
