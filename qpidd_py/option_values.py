"""Values of options: each parser makes of a text what an option is, and raises ValueError(what it expected).

The names of the parsers are the placeholders in `--help`.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple


class Address(NamedTuple):
    """Where a broker listens; `str()` gives HOST:PORT, with brackets around an IPv6 host, and `ssl:` before it if that
    port speaks TLS."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"ssl:{place}" if self.tls else place


TAG_MAX: Final = 64
TAG: Final = re.compile(rf"[!-+\--~]{{1,{TAG_MAX}}}")
"""A name of a broker on routes: no blanks, no commas."""


def tag(value: str) -> str:
    if value and not TAG.fullmatch(value):
        raise ValueError(f"1 to {TAG_MAX} characters without commas and blanks")
    return value


def as_tag(name: str) -> str:
    """A name that an administrator has given for something else; empty if it cannot be a tag."""
    return name if TAG.fullmatch(name) else ""


def text(value: str) -> str:
    return value


def boolean(value: str) -> bool:
    word = value.strip().lower()
    if word in ("yes", "true", "on", "1"):
        return True
    if word in ("no", "false", "off", "0"):
        return False
    raise ValueError("yes or no")


def integer(value: str) -> int:
    if not re.fullmatch(r"[0-9]+", value):
        raise ValueError("a whole number, 0 or more")
    return int(value)


def port_number(value: str) -> int:
    if not re.fullmatch(r"[0-9]+", value) or int(value) > 65535:
        raise ValueError("a port number, 0 to 65535")
    return int(value)


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(s|ms|us|ns|)")
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def duration(value: str, unit: str = "s") -> float:
    """Seconds; a plain number counts in `unit`."""
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError("a number with s, ms, us or ns, such as 2, 0.5 or 250ms")
    return float(match[1]) * _SECONDS[match[2] or unit]


def milliseconds(value: str) -> float:
    """Seconds; a plain number counts milliseconds, as the original has it for a few options."""
    return duration(value, "ms")


_SIZE = re.compile(r"([0-9]+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_OCTETS = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def size(value: str) -> int:
    """Octets."""
    match = _SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError("a number of octets, or with k, M or G, such as 65536 or 64k")
    return int(match[1]) * _OCTETS[match[2].lower()]


@dataclass(frozen=True)
class Amount:
    """So many octets, or a share of a whole that is not known yet; `str()` gives it as an administrator writes it."""

    octets: int = 0
    percent: int = 0

    def of(self, whole: int) -> int:
        """Octets."""
        return whole * self.percent // 100 if self.percent else self.octets

    def __str__(self) -> str:
        return f"{self.percent}%" if self.percent else str(self.octets)


def amount(value: str) -> Amount:
    match = re.fullmatch(r"([0-9]+)\s*%", value.strip())
    if match is not None and 1 <= int(match[1]) <= 100:
        return Amount(percent=int(match[1]))
    try:
        return Amount(octets=size(value))
    except ValueError:
        raise ValueError("a number of octets, or with k, M, G or %, such as 600M or 40%") from None


@dataclass(frozen=True)
class SyncEvery:
    """How long what was written may wait for the disk, in seconds: 0 is before it counts, infinity is for ever."""

    seconds: float = 0.0

    def __str__(self) -> str:
        if not self.seconds:
            return "batch"
        return "os" if math.isinf(self.seconds) else f"interval:{self.seconds * 1000:g}"


def sync_every(value: str) -> SyncEvery:
    if value in ("batch", "os"):
        return SyncEvery(0.0 if value == "batch" else math.inf)
    match = re.fullmatch(r"interval:([1-9][0-9]{0,5})", value)
    if match is None:
        raise ValueError("batch, os, or interval: and milliseconds, such as interval:100")
    return SyncEvery(int(match[1]) / 1000)


class OneOf:
    """A parser with a list of words, for help and shell completion."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words

    def __call__(self, value: str) -> str:
        if value not in self.words:
            raise ValueError("one of " + ", ".join(self.words))
        return value


def one_of(*words: str) -> Callable[[str], str]:
    return OneOf(words)


def path(value: str) -> Path:
    if not value:
        raise ValueError("a path")
    return Path(value).expanduser()


_HOST_PORT = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\[\]:,\s]+))(?::(?P<port>[0-9]+))?")


def address(value: str, default_port: int = 5672) -> Address:
    """One `host[:port]`; `amqp:`, `tcp:` and `ssl:` before it are allowed as in the original's URLs."""
    plain = re.sub(r"^(amqp:(//)?)?(tcp:)?", "", value.strip())
    tls = plain.startswith("ssl:")
    match = _HOST_PORT.fullmatch(plain.removeprefix("ssl:"))
    port = int((match and match["port"]) or (5671 if tls else default_port))
    if match is None or port > 65535:
        raise ValueError("an address HOST or HOST:PORT, ssl: before it for TLS")
    return Address(match["six"] or match["host"], port, tls)


def addresses(value: str) -> tuple[Address, ...]:
    """A comma separated list of addresses; empty text (or `none`) is an empty list."""
    if value.strip() in ("", "none"):
        return ()
    rest = re.sub(r"^amqp:(//)?", "", value.strip())
    try:
        return tuple(address(part) for part in rest.split(","))
    except ValueError:
        raise ValueError("a comma separated list HOST:PORT,HOST:PORT, ssl: before an address for TLS") from None


def known_hosts(value: str) -> str:
    """A list of addresses that fits a short string; empty text (or `none`) is none."""
    if not addresses(value):
        return ""
    if len(value.encode()) > 255:
        raise ValueError("at most 255 octets")
    return value.strip()
