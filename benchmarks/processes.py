"""Process figures from the kernel (Linux): CPU time, memory; free ports; bounded waiting."""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil


class BenchmarkError(Exception):
    """A measurement that is void: a broker did not start, or the load generator found a fault."""


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and kernel time of all threads of these processes, in seconds; to the nanosecond, unlike /proc/PID/stat."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            total += int(task.read_text().split()[0])
    return total / 1e9


def tree_cpu_seconds(root: int) -> float:
    """User and kernel time of a process and of its descendants, living or waited for."""
    top = psutil.Process(root)
    total = 0.0
    for process in [top, *top.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            total += sum(process.cpu_times()[:4])
    return total


def machine_cpu_seconds() -> float:
    """CPU time of the whole machine that was not idle, in seconds."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, _steal = fields
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes, summed."""
    return sum(psutil.Process(pid).memory_info().rss for pid in pids)


def fresh_memory_cost() -> float:
    """What the first touch of memory costs, in us/KiB: 0.1 on a plain machine, 2 where a host lends it to a guest."""
    size = 256 * 2**20
    with mmap.mmap(-1, size) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        begin = time.perf_counter()
        memory[::4096] = bytes(size // 4096)
        return (time.perf_counter() - begin) * 1e6 / (size / 1024)


def free_ports(number: int) -> list[int]:
    """Free TCP ports of the loopback interface; all different.  Below those that the system gives to outgoing
    connections: one of these may take a port before the server does that it was chosen for."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    for port in random.sample(range(min(10_000, first // 2), first), k=100 + number):
        with socket.socket() as sock, contextlib.suppress(OSError):
            sock.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == number:
            return found
    raise BenchmarkError(f"no {number} free ports below {first}")


def wait_until(condition: Callable[[], bool], timeout: float, what: str, interval: float = 0.05) -> None:
    """Polls every `interval` seconds. Raises BenchmarkError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise BenchmarkError(f"not within {timeout:g} s: {what}")
        time.sleep(interval)


def listens(port: int) -> bool:
    """Whether somebody accepts connections at this port of the loopback interface."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


def speaks_amqp(port: int) -> bool:
    """Whether a broker on the loopback interface answers the protocol header with connection.start."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
            sock.sendall(b"AMQP\x00\x00\x09\x01")
            return sock.recv(1) == b"\x01"
    except OSError:
        return False


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def stop_process(process: subprocess.Popen[bytes], timeout: float = 10) -> None:
    """SIGTERM, after `timeout` seconds SIGKILL. A process that was stopped before is no error."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
