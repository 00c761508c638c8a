"""What the command line says of itself: its help texts, and an installation that is not whole."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from harness.cli import main


def commands(group: click.Group) -> Iterator[click.Command]:
    for command in group.commands.values():
        yield command
        if isinstance(command, click.Group):
            yield from commands(command)


def test_no_help_text_shows_a_default_of_nothing() -> None:
    empty = [
        option
        for command in commands(main.bench)
        for option in command.params
        if isinstance(option, click.Option) and option.default == ""
    ]
    assert {"engine_args", "allow"} <= {option.name for option in empty}
    assert not [option.name for option in empty if option.show_default is not False]


@pytest.mark.parametrize(("missing", "code"), [("pyarrow.parquet", 2), ("harness.core.gone", 3)])
def test_a_package_that_is_not_there_is_no_fault_of_ours(
    missing: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def call(**_: object) -> None:
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(main, "bench", call)
    monkeypatch.setattr("sys.argv", ["bench", "list"])
    monkeypatch.delenv("BENCH_DEBUG", raising=False)
    assert main._exit_code() == code
    said = capsys.readouterr().err
    assert ("lacks pyarrow.parquet: `make setup`" in said) == (code == 2)
    assert ("fault of bench itself" in said) == (code == 3)
