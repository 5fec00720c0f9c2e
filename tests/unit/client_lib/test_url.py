"""The address grammar, and where its errors point."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client_lib.errors import UrlError
from client_lib.url import DEFAULT_PORT, Address, parse_url, parse_urls, primary_in_refusal


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("node1", Address("node1")),
        (" node1 ", Address("node1")),
        ("node1:5673", Address("node1", 5673)),
        ("10.0.0.1:1", Address("10.0.0.1", 1)),
        ("[::1]:5673", Address("::1", 5673)),
        ("[fe80::1%eth0]", Address("fe80::1%eth0")),
        ("amqp://node1", Address("node1")),
        ("AMQP://u@node1:2", Address("node1", 2, "u")),
        ("amqp://u:p%40ss@node1:2/my%2Fhost", Address("node1", 2, "u", "p@ss", "my/host")),
        ("amqp://u:p@w@node1/", Address("node1", DEFAULT_PORT, "u", "p@w")),
    ],
)
def test_one_address(text: str, address: Address) -> None:
    assert parse_url(text) == address


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("", 0),
        ("a,,b", 2),
        ("a, :1", 3),
        ("node1:", 6),
        ("node1:x", 6),
        ("node1:0", 6),
        ("node1:65536", 6),
        ("node 1", 4),
        ("a,b:99999999", 4),
        ("http://a", 0),
        ("amqp://:p@a", 7),
        ("[::1", 4),
        ("[zz]", 1),
        ("[::1]x", 5),
    ],
)
def test_errors_point_at_the_character(text: str, position: int) -> None:
    with pytest.raises(UrlError) as error:
        parse_urls(text)
    assert error.value.position == position


def test_lists_and_repetitions() -> None:
    assert parse_urls(["a,b:1", Address("c"), "a"]) == [Address("a"), Address("b", 1), Address("c")]
    with pytest.raises(UrlError):
        parse_urls([])


hosts = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?(\.[a-z]{1,5})?", fullmatch=True)
texts = st.text(min_size=1, max_size=8)


@given(hosts, st.integers(1, 65535), st.none() | texts, st.none() | texts)
def test_what_was_written_is_read(host: str, port: int, username: str | None, password: str | None) -> None:
    from urllib.parse import quote

    credentials = ""
    if username is not None:
        credentials = quote(username, safe="") + ("" if password is None else ":" + quote(password, safe="")) + "@"
    wanted = Address(host, port, username, password if username is not None else None)
    assert parse_url(f"amqp://{credentials}{host}:{port}") == wanted
    assert parse_url(str(wanted)).same_place(wanted)


@given(st.text(max_size=30))
def test_anything_else_is_a_url_error(text: str) -> None:
    try:
        parse_urls(text)
    except UrlError as error:
        assert 0 <= error.position <= len(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("CONNECTION_FORCED - n2 is a backup (ready); the primary is 10.0.0.1:5680", Address("10.0.0.1", 5680)),
        ("CONNECTION_FORCED - n2 is a backup (ready); the primary is [::1]:5680.", Address("::1", 5680)),
        ("CONNECTION_FORCED - n2 is a backup (ready); the primary is not known", None),
        ("CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'", None),
        ("the primary is :::", None),
    ],
)
def test_refusals(text: str, address: Address | None) -> None:
    assert primary_in_refusal(text) == address
