"""What the tools print: nothing that a peer has named controls the terminal of an administrator."""

from __future__ import annotations

import pytest

from qpidd_py.cli.output import clip, describe, plain, print_table

HOSTILE = "\x1b[2J\x1b]0;title\x07\r\n\u202e\x9b"
SHOWN = "\\x1b[2J\\x1b]0;title\\x07\\r\\n\\u202e\\x9b"


def test_text_of_a_peer() -> None:
    assert plain("orders ä €") == "orders ä €"
    assert plain(HOSTILE) == SHOWN and clip(HOSTILE, 100).rstrip() == SHOWN
    assert len(clip(HOSTILE, 8)) == 8 and clip(HOSTILE, 8).isprintable()


def test_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["queue", "messages"], [[HOSTILE, "3"], ["orders", "5"]])
    lines = capsys.readouterr().out.splitlines()
    assert lines[3:] == [f"{SHOWN}  3", f"{'orders':<{len(SHOWN)}}  5"]


def test_an_error() -> None:
    text = describe(ValueError(f"no exchange '{HOSTILE}'"))
    assert text.isprintable() and text.startswith("ValueError: no exchange '\\x1b[2J")
