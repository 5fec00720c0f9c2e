"""What was written is read again, in all three grammars; an error's position is where the text went wrong."""

import itertools
import string
from urllib.parse import quote

from hypothesis import assume, example, given
from hypothesis import strategies as st

from client_lib.errors import UrlError
from client_lib.urls.option_map import parse_option_map
from client_lib.urls.url import Endpoint, parse_urls, read_urls

NAMES = st.from_regex(r"[a-z0-9]([a-z0-9_-]{0,8}[a-z0-9])?(\.[a-z]{1,5}){0,2}", fullmatch=True)
HOSTS = NAMES | st.ip_addresses(v=4).map(str) | st.ip_addresses(v=6).map(str)
PORTS = st.integers(1, 65535)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
LOGINS = st.tuples(st.none(), st.none()) | st.tuples(TEXTS, st.none() | TEXTS)
TRANSPORTS = st.sampled_from(["tcp", "ssl"])


@st.composite
def addresses(draw: st.DrawFn, virtual_hosts: bool = False) -> Endpoint:
    username, password = draw(LOGINS)
    virtual_host = draw(st.none() | TEXTS) if virtual_hosts else None
    return Endpoint(draw(HOSTS), draw(PORTS), username, password, virtual_host, draw(TRANSPORTS))


def escaped(text: str) -> str:
    return quote(text, safe="")


def book(address: Endpoint) -> str:
    login = ""
    if address.username is not None:
        login = escaped(address.username) + ("" if address.password is None else "/" + escaped(address.password)) + "@"
    return f"amqp:{login}{address.transport}:{address}"


def uri(address: Endpoint) -> str:
    login, virtual_host = "", ""
    if address.username is not None:
        login = escaped(address.username) + ("" if address.password is None else ":" + escaped(address.password)) + "@"
    if address.virtual_host is not None:
        virtual_host = "/" + escaped(address.virtual_host)
    return f"{'amqps' if address.tls else 'amqp'}://{login}{address}{virtual_host}"


@given(st.lists(st.tuples(addresses(), st.sampled_from([book, uri])), min_size=1, max_size=5))
def test_lists_of_both(written: list) -> None:
    text = ",".join(write(address) for address, write in written)
    assert parse_urls(text) == list(dict.fromkeys(address for address, _ in written))


@given(addresses(virtual_hosts=True))
def test_uris(address: Endpoint) -> None:
    assert parse_urls(uri(address)) == [address]


@given(addresses())
def test_what_an_address_prints_is_where_it_is(address: Endpoint) -> None:
    assert parse_urls(str(address))[0].same_place(address)


@given(
    st.lists(st.tuples(HOSTS, PORTS, TRANSPORTS), min_size=1, max_size=4),
    LOGINS,
    st.none() | TEXTS,
    st.none() | st.integers(1, 99),
)
def test_jms(places: list, login: tuple, virtual_host: str | None, cycles: int | None) -> None:
    wanted = [Endpoint(host, port, login[0], login[1], virtual_host, transport) for host, port, transport in places]
    brokers = ";".join(f"{address.transport}://{address}" for address in wanted)
    who = ":".join(escaped(part) for part in login if part is not None)
    head = f"amqp://{who + '@' if who else ''}/{escaped(virtual_host or '')}"
    failover = "roundrobin" + (f"?cyclecount='{cycles}'" if cycles else "")
    found = read_urls(f"{head}?brokerlist='{brokers}'&failover='{failover}'")
    assert found.addresses == list(dict.fromkeys(wanted))
    assert found.options == ({"reconnect_limit": cycles} if cycles else {})


# -- errors

VALID = (
    "n1",
    "n1:5672,n2:1,[::1]:5673",
    "amqp:user/pass@tcp:n1:5672,ssl:n2,n3",
    "amqp://user:pass@n1:5672/v%2Fh?heartbeat=5&connection_timeout=100",
    "amqps://n1?cacertfile=/ca.pem&verify=verify_peer&auth_mechanism=plain,amqp://n2/v",
    "amqp://u:p@c/v?brokerlist='tcp://h1:5672?retries='3'&ssl='true';tcp://[::1]:1'&failover='roundrobin?cyclecount='2''",
    "brokerlist='h1;ssl://h2?connectdelay='5''&failover='nofailover'",
)
ALPHABET = string.ascii_lowercase + "012389:/@,;?&='%[] _-.\u00e9"
WAYS_ON = (
    "",
    "n1",
    "1",
    "n1:1",
    "1]",
    "::1]",
    "@n1",
    "//n1",
    "://n1",
    ":1",
    "=1",
    "%40",
    "0",
    "41",
    "/",
    "tcp://n1",
    "amqp:n1",
)
PARAMETERS = ("heartbeat=1", "eartbeat=1", "=1", "=verify_peer", "verify_peer", "=plain", "plain", "=x", "cacertfile=x")
VALUES_QUOTED = ("'h", "'1'", "'true'", "'PLAIN'", "'roundrobin", "'nofailover")
QUOTED = (
    *(head + value for value in VALUES_QUOTED for head in ("", "=", "&brokerlist=", "brokerlist=", "?brokerlist=")),
    *(value[1:] for value in VALUES_QUOTED),
    *("cyclecount='1'", "failover='nofailover", "retries='1'", "ssl='true'", "/?brokerlist='h", "h"),
)
CLOSED = [
    way + quote + more for way in (*WAYS_ON, *QUOTED) for quote in ("'", "''") for more in ("", "&brokerlist='h'")
]


def accepted(text: str) -> bool:
    try:
        parse_urls(text)
    except UrlError:
        return False
    return True


def can_go_on(prefix: str) -> bool:
    """Whether something can stand behind `prefix` that makes it a URL.  A JMS URL that has both settings takes no third
    one, and the error says so at its name, behind the &."""
    prefixes = (prefix, prefix[:-1]) if prefix.endswith("'&") else (prefix,)
    ways = itertools.product(prefixes, itertools.chain(WAYS_ON, PARAMETERS, CLOSED))
    return any(accepted(prefix + way) for prefix, way in ways)


@st.composite
def broken(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 2))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 3)))
        text = text[:start] + draw(st.text(ALPHABET, max_size=2)) + text[end:]
    return text


@given(broken())
@example("amqp://user:pass@n1:5672/v%2Fh?heartbeat=5&connection_timeout=")
@example("brokerlist='h1;ssl://h2?connectdelay='5''&failover='nofailover'&")
def test_what_stands_before_an_error_was_right(text: str) -> None:
    try:
        parse_urls(text)
    except UrlError as error:
        assert 0 <= error.position <= len(text) == len(error.text)
        assert can_go_on(text[: error.position]), f"{error}: nothing can follow {text[: error.position]!r}"


@given(st.text(ALPHABET, max_size=40) | st.text(max_size=30))
def test_anything_is_an_address_or_an_error_within_the_text(text: str) -> None:
    try:
        parse_urls(text)
    except UrlError as error:
        assert 0 <= error.position <= len(text) == len(error.text)


@given(
    st.sampled_from(["amqp://user:{}@", "amqps://n1,amqp://user:{}@", "user/{}@", "n1,amqp:user/{}@", "n1:1,user/{}@"]),
    st.text(string.ascii_letters + string.digits + "+;!$*", max_size=12).map("Zq8".__add__),
    st.text(ALPHABET, max_size=20),
)
def test_no_error_shows_a_password(head: str, secret: str, rest: str) -> None:
    assume(secret.lower() not in (head + rest).lower())
    try:
        found = parse_urls(head.format(secret) + rest)
    except UrlError as error:
        assert secret not in str(error)
    else:
        assert secret not in repr(found) + str(found)


# -- option maps

SCALARS = st.booleans() | st.none() | st.integers() | TEXTS | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))


def written(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(key)}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written, value)) + "]"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return repr(value)


@given(st.dictionaries(TEXTS, VALUES, max_size=4))
def test_maps(value: dict) -> None:
    assert parse_option_map(written(value)) == value


@given(st.text("{}[]:,'\"\\ab1-. ", max_size=20))
def test_maps_fail_within_the_text(text: str) -> None:
    try:
        assert isinstance(parse_option_map(text), dict)
    except UrlError as error:
        assert 0 <= error.position <= len(text)
