"""What a stranger wrote is shown on the terminal, and never obeyed."""

from __future__ import annotations

import io
import json
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.text import Text

from harness.core.console import plain_console
from harness.core.terminal import show_controls, stream_itself
from harness.core.text import visible

CLEAR = "\x1b[2J\x9b2J\u202e\x07\x7f"
SHOWN = "\\u001b[2J\\u009b2J\\u202e\\u0007\\u007f"


def screen_of(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    """What gets to the terminal from now on."""
    raw = io.BytesIO()
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True))
    show_controls()
    return raw


@given(st.text(max_size=20))
def test_a_visible_text_has_no_controls_and_is_the_same_json(text: str) -> None:
    shown = visible(text)
    # A space that breaks no line acts on nothing.
    assert all(letter.isprintable() or letter in "\n\t\u00a0" for letter in shown)
    assert shown == text or not text.isprintable()
    assert json.loads(visible(json.dumps({text: text}, ensure_ascii=False))) == {text: text}


def test_a_space_that_breaks_no_line_stays_one() -> None:
    assert visible("N\u00a01,024\u200b") == "N\u00a01,024\\u200b"


def test_print_echo_and_tables_show_what_a_terminal_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    print(CLEAR)
    click.echo(CLEAR, err=True, color=True)
    sys.stdout.writelines([CLEAR, "\n"])
    plain_console().print(CLEAR, Text(CLEAR))
    click.echo(json.dumps([CLEAR], ensure_ascii=False).encode())
    lines = screen.getvalue().decode().splitlines()
    # rich leaves bells out by itself.
    quiet = SHOWN.replace("\\u0007", "")
    assert lines[:3] == [SHOWN] * 3
    assert lines[3].replace("\\u0007", "") == f"{quiet} {quiet}"
    assert json.loads(lines[4]) == [CLEAR]
    assert lines[4].isprintable()


def test_a_progress_bar_has_the_stream_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = screen_of(monkeypatch)
    stream_itself(sys.stderr).write("\x1b[?25l")
    assert screen.getvalue() == b"\x1b[?25l"
    plain = io.StringIO()
    assert stream_itself(plain) is plain
