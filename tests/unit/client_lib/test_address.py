"""The notation of addresses: what is read, and where errors point."""

import pytest

from client_lib import InvalidOption, MalformedAddress
from client_lib.addresses.address import (
    Address,
    Binding,
    Declare,
    LinkSection,
    Mode,
    NodeSection,
    NodeType,
    Policy,
    Reliability,
    Side,
    Subscribe,
    parse,
)
from client_lib.addresses.text import DEPTH_MAX, scan, write_value


def test_a_name_alone_says_nothing_else() -> None:
    assert parse("orders") == Address("orders")


@pytest.mark.parametrize(
    ("text", "name", "subject"),
    [
        ("orders", "orders", None),
        ("  orders  ", "orders", None),
        ("amq.topic/a.b.#", "amq.topic", "a.b.#"),
        ("q/", "q", ""),
        ("q/a/b", "q", "a/b"),
        ("q / a ;{}", "q", "a"),
        ("my queue/two words", "my queue", "two words"),
        ("'a;b'/\"c/d\"", "a;b", "c/d"),
        (r"'it\'s'", "it's", None),
        (r"a\;b", "a;b", None),
        (r"a\x41\u00e9", "aAé", None),
        (r"'tab\there'", "tab\there", None),
        (r"a\tb", "atb", None),
        ("a'b c'd", "ab cd", None),
        ("{x}:y,z[1]", "{x}:y,z[1]", None),
        ("#", "#", None),
        ("#reply; {}", "#reply", None),
        ("größe", "größe", None),
    ],
)
def test_names_and_subjects(text: str, name: str, subject: str | None) -> None:
    assert scan(text) == (name, subject, {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("+2", 2),
        (".5", 0.5),
        ("2.5e3", 2500.0),
        ("true", True),
        ("False", False),
        ("None", None),
        ("null", None),
        ("'true'", "true"),
        ("'1'", "1"),
        ("orders.#", "orders.#"),
        ("at-most-once", "at-most-once"),
        ("1.2.3", "1.2.3"),
        ("{}", {}),
        ("[]", []),
        ("[1, [a, {b: c}]]", [1, ["a", {"b": "c"}]]),
        ("{'a b': 1, c.d: [ ]}", {"a b": 1, "c.d": []}),
        ("-9223372036854775808", -(1 << 63)),
    ],
)
def test_values(text: str, value: object) -> None:
    found = scan(f"q; {{x: {text}}}")[2]["x"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("", 0, "expected a name, found the end"),
        ("  /x", 2, "expected a name, found '/'"),
        ("; {}", 0, "expected a name"),
        ("''", 0, "expected a name"),
        ("q;", 2, "expected { of the options, found the end"),
        ("q; x", 3, "expected { of the options, found 'x'"),
        ("q; {", 4, "expected the name of an option, found the end"),
        ("q; {:1}", 4, "expected the name of an option"),
        ("q; {a}", 5, "expected : after 'a', found '}'"),
        ("q; {a:}", 6, "expected a value, found '}'"),
        ("q; {a:1", 7, "expected , or } of the map, found the end"),
        ("q; {a:1 b:2}", 8, "expected , or } of the map, found 'b'"),
        ("q; {a:1,}", 8, "expected the name of an option"),
        ("q; {a:[1}", 8, "expected , or ] of the list, found '}'"),
        ("q; {a:[1,]}", 9, "expected a value"),
        ("q; {a:1, a:2}", 9, "option 'a' is given twice"),
        ("q; {} x", 6, "expected the end, found 'x'"),
        ("q/'x", 2, "this ' is never closed"),
        ('q; {a: "x}', 7, 'this " is never closed'),
        ("q\\", 2, "expected a character after \\"),
        (r"q\x4", 3, "expected two hexadecimal digits"),
        (r"'\u12'", 3, "expected four hexadecimal digits"),
        (r"'\ud800'", 1, "half of a surrogate pair"),
        ("q; {a: 9223372036854775808}", 7, "expected a number of 64 bits"),
        ("q; {a: " + "9" * 5000 + "}", 7, "expected a number of 64 bits"),
        ("q; {a: 1e999}", 7, "expected a number of 64 bits"),
        ("q" * 256, 0, "a name of more than 255 octets"),
        ("q/" + "é" * 128, 0, "a subject of more than 255 octets"),
    ],
)
def test_errors_point_at_the_character(text: str, position: int, expected: str) -> None:
    with pytest.raises(MalformedAddress) as caught:
        parse(text)
    assert caught.value.position == position
    assert expected in str(caught.value)


def test_nesting_is_bounded() -> None:
    deep = "q; {a: " + "[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1) + "}"
    scan(deep)
    with pytest.raises(MalformedAddress, match="inside each other"):
        scan("q; {a: " + "[" * 100_000)


FULL = """
orders/eu.#; {
  create: always, delete: receiver, assert: sender, mode: browse,
  node: {type: topic, durable: True, x-declare: {type: fanout, auto-delete: true, durable: false, exclusive: false,
         'alternate-exchange': lost, arguments: {'x-max-length': 10, deep: [1, {a: 2.5}]}},
         x-bindings: [{exchange: amq.topic, queue: q, key: a.*, arguments: {x-match: any}}, {}]},
  link: {name: mine, durable: true, reliability: at-most-once, x-declare: {arguments: {x-expires: 60000}},
         x-bindings: [{key: b}], x-subscribe: {exclusive: true, arguments: {x-priority: 5}}}
}
"""


def test_every_option_is_read() -> None:
    declare = Declare("fanout", False, True, False, "lost", {"x-max-length": 10, "deep": [1, {"a": 2.5}]})
    bindings = (Binding("amq.topic", "q", "a.*", {"x-match": "any"}), Binding())
    node = NodeSection(NodeType.TOPIC, True, declare, bindings)
    link = LinkSection(
        "mine",
        True,
        Reliability.AT_MOST_ONCE,
        Declare(arguments={"x-expires": 60000}),
        (Binding(key="b"),),
        Subscribe(True, {"x-priority": 5}),
    )
    wanted = Address("orders", "eu.#", Policy.ALWAYS, Policy.RECEIVER, Policy.SENDER, Mode.BROWSE, node, link)
    assert parse(FULL) == wanted
    assert parse(str(wanted)) == wanted


def test_underscores_stand_for_hyphens_in_x_declare() -> None:
    assert parse("q; {node: {x-declare: {auto_delete: true}}}").node.x_declare.auto_delete is True


def test_numbers_may_be_names() -> None:
    address = parse("q; {node: {x-bindings: [{exchange: 17, key: 2.5}]}}")
    assert address.node.x_bindings == (Binding("17", None, "2.5"),)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("creat: always", "unknown option creat; known are create, delete, assert, mode, node, link"),
        ("node: {typ: queue}", "unknown option node.typ; known are type, durable, x-declare, x-bindings"),
        (
            "link: {x-subscribe: {no-ack: true}}",
            "unknown option link.x-subscribe.no-ack; known are exclusive, arguments",
        ),
        ("node: {x-bindings: [{}, {to: x}]}", "unknown option node.x-bindings[1].to"),
        ("node: {x-declare: {typ: a}}", "unknown option node.x-declare.typ; known are type, durable, auto-delete"),
        ("create: sometimes", "create is 'sometimes', expected one of always, sender, receiver, never"),
        ("mode: steal", "mode is 'steal', expected one of consume, browse"),
        ("node: 1", "node is 1, expected a map"),
        ("node: {durable: 1}", "node.durable is 1, expected true or false"),
        ("node: {durable: none}", "node.durable is None, expected true or false"),
        ("node: {x-declare: {type: 5}}", "node.x-declare.type is 5, expected a text"),
        ("node: {x-declare: {arguments: []}}", "node.x-declare.arguments is [], expected a map"),
        ("node: {x-bindings: {}}", "node.x-bindings is {}, expected a list of maps"),
        ("node: {x-bindings: [1]}", "node.x-bindings[0] is 1, expected a map"),
        ("link: {name: []}", "link.name is [], expected a text"),
        ("link: {selector: 'a > 1'}", "link.selector cannot be had over AMQP 0-9-1"),
        ("link: {timeout: 5}", "link.timeout cannot be had over AMQP 0-9-1; say x-declare: {arguments: {x-expires"),
        ("link: {filter: x}", "link.filter is of AMQP 1.0"),
        ("node: {properties: {}}", "node.properties is of AMQP 1.0; say x-declare"),
        ("link: {reliability: best}", "expected one of unreliable, at-most-once, at-least-once"),
    ],
)
def test_options_that_are_refused(options: str, text: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse(f"q; {{{options}}}")
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("policy", "sender", "receiver"),
    [("always", True, True), ("sender", True, False), ("receiver", False, True), ("never", False, False)],
)
def test_policies_say_whom_they_concern(policy: str, sender: bool, receiver: bool) -> None:
    assert (Policy(policy).applies(Side.SENDER), Policy(policy).applies(Side.RECEIVER)) == (sender, receiver)


@pytest.mark.parametrize("value", [float("inf"), float("nan"), object(), b"x"])
def test_what_has_no_notation_is_not_written(value: object) -> None:
    with pytest.raises(ValueError, match="cannot be written"):
        write_value(value)


def test_a_text_that_looks_like_something_else_is_quoted() -> None:
    assert [write_value(text) for text in ("None", "true", "1", "", "a b")] == [
        '"None"',
        '"true"',
        '"1"',
        '""',
        '"a b"',
    ]
