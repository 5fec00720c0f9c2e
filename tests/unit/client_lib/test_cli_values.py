"""Values on the command lines of qpid-send and qpid-receive."""

import argparse
import logging

import pytest

from client_lib.cli import values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1e3", 1000.0),
        ("1e999", "1e999"),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("", ""),
        ("nan", "nan"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("²", "²"),
        ("1 ", "1 "),
    ],
)
def test_typed(text: str, value: object) -> None:
    found = values.typed(text)
    assert (type(found), found) == (type(value), value)


def test_name_value() -> None:
    assert values.name_value("a=b=c") == ("a", "b=c")
    assert values.name_value("a=") == ("a", "")


@pytest.mark.parametrize(
    ("take", "text", "said"),
    [
        (values.name_value, "a", "found 'a', expected NAME=VALUE"),
        (values.name_value, "=1", "found '=1', expected NAME=VALUE"),
        (values.whole("messages"), "x", "found 'x', expected messages, a whole number 0 or more"),
        (values.whole("messages"), "-1", "found '-1'"),
        (values.whole("messages"), "1.5", "found '1.5'"),
        (values.whole("messages"), "²", "found '²'"),
        (values.whole("messages"), "9" * 30, "found '999"),
        (values.whole("a priority", 0, 255), "256", "found '256', expected a priority, a whole number from 0 to 255"),
        (values.whole("messages", 1), "0", "1 or more"),
        (values.decimal("seconds"), "-0.1", "found '-0.1', expected seconds, a number, 0 or more"),
        (values.decimal("seconds"), "inf", "found 'inf'"),
        (values.decimal("seconds"), "nan", "found 'nan'"),
        (values.yes_no, "maybe", "found 'maybe', expected yes or no"),
        (values.option_map, "{reconnect", "expected a map like {reconnect:true,heartbeat:5}"),
        (values.option_map, "reconnect", "at character 0"),
        (values.log_rule, "loud+", "found 'loud+', expected LEVEL or LEVEL+ with one of trace, debug, info"),
    ],
)
def test_refused(take, text: str, said: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        take(text)
    assert said in str(caught.value)


def test_taken() -> None:
    assert values.whole("n")("0") == 0 and values.whole("n", 0, 255)("255") == 255
    assert values.decimal("s")("0.5") == 0.5
    assert [values.yes_no(text) for text in ("yes", "No", "1", "off")] == [True, False, True, False]
    assert values.option_map("{reconnect:true, heartbeat:5}") == {"reconnect": True, "heartbeat": 5}
    assert [values.log_rule(text) for text in ("info+", "debug+:ha", "notice", "ERROR")] == [
        logging.INFO, logging.DEBUG, logging.INFO, logging.ERROR,
    ]  # fmt: skip
