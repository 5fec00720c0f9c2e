"""What qpid-send makes of its options."""

import itertools
import os
import random
from collections import Counter

import pytest

from client_lib.cli.production import EOS, Groups, Production, contents, lines
from client_lib.cli.send import make_parser


def options(*words: str):
    found = make_parser().parse_args(["-a", "q", *words])
    found.messages = 1 if found.messages is None else found.messages
    return found


def production(*words: str) -> Production:
    return Production(options(*words), itertools.count(1000).__next__, random.Random(1))


def test_numbers_and_times() -> None:
    made = production()
    assert [made.message(b"x").properties for _ in range(2)] == [{"sn": 1, "ts": 1000}, {"sn": 2, "ts": 1001}]
    last = made.end_of_stream()
    assert (last.body, last.properties) == (EOS, {"sn": 3})


def test_without_numbers_and_times() -> None:
    made = production("--sequence", "no", "--timestamp=no")
    assert made.message(b"x").properties == {} and made.end_of_stream().properties == {}


def test_properties() -> None:
    words = (
        "--ttl 1500 --priority 9 -P n=7 -P text=x -P yes=true --reply-to r --correlation-id c --user-id u --subject s"
    )
    message = production(
        *words.split(), "--content-type", "a/b", "--durable", "--sequence=no", "--timestamp=no"
    ).message("x")
    assert message.properties == {"n": 7, "text": "x", "yes": True}
    assert (message.ttl, message.priority, message.durable, message.content_type) == (1.5, 9, True, "a/b")
    assert (message.reply_to, message.correlation_id, message.user_id, message.subject) == ("r", "c", "u", "s")


def test_defaults() -> None:
    message = production().message(b"x")
    assert (message.ttl, message.priority, message.durable, message.id) == (None, None, False, None)
    assert production("--ttl", "0").message(b"x").ttl is None


def test_messages_do_not_share_properties() -> None:
    made = production("-P", "a=1")
    made.message(b"").properties["a"] = 2
    assert made.message(b"").properties["a"] == 1


def test_one_id_is_one_message() -> None:
    assert production("--id", "x").message(b"").id == "x"
    made = production("--id", "x", "-m", "0")
    assert [made.message(b"").id for _ in range(2)] == ["x:1", "x:2"]


@pytest.mark.parametrize(
    ("words", "content"),
    [
        ([], b"X" * 1024),
        (["--content-size", "3"], b"XXX"),
        (["--content-size", "0"], b""),
        (["--content-string", "hello"], "hello"),
        (["--content-string", ""], ""),
        (["-M", "a=1", "--content-map", "b=x"], {"a": 1, "b": "x"}),
    ],
)
def test_contents(words: list[str], content: object) -> None:
    source = contents(options(*words))
    assert [next(source), next(source)] == [content, content]


def test_lines_of_a_pipe() -> None:
    reader, writer = os.pipe()
    try:
        source = lines(reader, 0.0)
        assert next(source) is None
        os.write(writer, b"one\ntw")
        assert [next(source), next(source)] == [b"one", None]
        os.write(writer, b"o\n\nlast")
        assert [next(source), next(source)] == [b"two", b""]
        os.close(writer)
        writer = -1
        assert list(source) == [b"last"]
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)


def test_groups_in_turns() -> None:
    groups = Groups("G-", 2, False, 2, random.Random(1))
    assert [groups.next() for _ in range(7)] == ["G-0", "G-1", "G-0", "G-1", "G-2", "G-3", "G-2"]


def test_groups_of_random_size() -> None:
    groups = Groups("G-", 3, True, 1, random.Random(1))
    sizes = Counter(groups.next() for _ in range(300))
    assert {sizes[f"G-{n}"] for n in range(50)} == {1, 2, 3}


def test_group_header() -> None:
    made = production("--group-key", "g", "--group-prefix", "x", "--group-size", "1")
    assert [made.message(b"").properties["g"] for _ in range(2)] == ["x0", "x1"]
