"""Commands that read what others made go apart; what starts engines or servers has the whole machine."""

import pytest

from harness.cli.main import COMMANDS, READERS, _reads_strangers


@pytest.mark.parametrize(
    ("words", "apart"),
    [
        ("show runs/a", True),
        ("recover a.partial", True),
        ("site check --results r", True),
        ("site serve", False),
        ("site", False),
        ("calibrate runs/a --out x.toml", True),
        ("calibrate attention --gpu cpu", False),
        ("run --gpu l40s", False),
        ("show --help", False),
        ("--version", False),
        ("", False),
    ],
)
def test_what_reads_goes_apart(words: str, apart: bool) -> None:
    assert _reads_strangers(words.split()) is apart


def test_every_reader_is_a_command() -> None:
    assert {name.split()[0] for name in READERS} <= {command.name for command in COMMANDS}
