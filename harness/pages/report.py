"""`bench report`: the boards of any runs as one file that opens offline, or as Markdown for a pull request."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harness.core.errors import UserError
from harness.core.text import one_line
from harness.pages.answers import answer_of
from harness.pages.assets import site_directory
from harness.pages.board import board_values
from harness.pages.boards import Arm, Board, boards_of
from harness.pages.facets import settings_words
from harness.pages.render import environment
from harness.pages.reported import reported_changes
from harness.pages.traffic import gpu_label, workload_words
from harness.published.cache import JsonCache
from harness.published.corpus import Corpus, PublishedRun, digest_of, id_of
from harness.report.comparable import end_of_path
from harness.report.flat import FlatRow, as_markdown
from harness.runs.run import load_run

# What a colleague's mail takes without a question.
LARGEST_BYTES = 2_000_000
SCRIPTS = ("charts.js", "profit.js", "site.js")


def html_report(paths: Sequence[Path]) -> bytes:
    """One page with all boards of the runs in these directories; UserError where it would be larger than LARGEST_BYTES.

    Styles and scripts are in it, so that it needs no other file; it links to none.
    """
    with tempfile.TemporaryDirectory() as kept:
        boards = _boards(paths, Path(kept))
        published = reported_changes(boards)
        parts = []
        for board in boards:
            prefix = f"{board.id}-" if len(boards) > 1 else ""
            parts.append((board, board_values(board, published.get(board.id, {}), prefix)))
        template = environment(standalone=True).get_template("report.html.j2")
        data = template.render(root="", parts=parts, style=_asset("site.css"), scripts=map(_asset, SCRIPTS)).encode()
    if len(data) > LARGEST_BYTES:
        size = f"{len(data) / 1e6:.1f} MB"
        raise UserError(
            f"{len(boards)} boards make a report of {size}, at most {LARGEST_BYTES / 1e6:g}: name fewer runs at once"
        )
    return data


def markdown_report(paths: Sequence[Path]) -> str:
    """A heading, the answer and the ranking of each board."""
    with tempfile.TemporaryDirectory() as kept:
        return "\n".join(_markdown(board) for board in _boards(paths, Path(kept)))


def _boards(paths: Sequence[Path], kept: Path) -> list[Board]:
    cache = JsonCache(kept)
    runs = [load_run(path) for path in paths]
    found = [PublishedRun(id_of(str(run.path)), end_of_path(run), run, digest_of(run.path), cache) for run in runs]
    return boards_of(Corpus(tuple(found), ()), cache)


def _asset(name: str) -> Markup:
    """A file of the site's own, to stand in the page as it is."""
    return Markup((site_directory() / "assets" / name).read_text(encoding="utf-8"))  # noqa: S704 - our own file


def _markdown(board: Board) -> str:
    title = f"{workload_words(board.spec.workload)} on {gpu_label(board.spec.gpu)}"
    lines = [f"### {_plain(title)}", "", f"{_plain(settings_words(board))} · {board.kind_words}", ""]
    first, *rest = answer_of(board).sentences
    lines += [f"**{_plain(first)}**{''.join(f' {_plain(one)}' for one in rest)}", ""]
    return "\n".join(lines) + "\n" + as_markdown([_row(board, arm) for arm in board.arms])


def _row(board: Board, arm: Arm) -> FlatRow:
    change = arm.changes.get(board.rate)
    told: dict[str, Any] = {"policy": arm.label, "repeats": len(arm.runs)}
    told |= {
        "change_percent": _percent(change.ratio if change else None),
        "low_percent": _percent(change.low if change else None),
        "high_percent": _percent(change.high if change else None),
        "word": change.word if change else "baseline" if arm.policy == board.baseline else None,
        "models": (change.support_word or None) if change else None,
    }
    columns = {"output_throughput": "output_tok_per_s", "goodput": "goodput_req_per_s", "ttft_s": "ttft_mean_s"}
    columns |= {"ttft_s.p99": "ttft_p99_s", "tpot_s": "tpot_mean_s"}
    for name, column in columns.items():
        value = arm.values.get(board.row(name)) if name != "goodput" or board.spec.slo else None
        told[column] = value.mean if value else None
    return told | {"verdict": arm.level}


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (ratio - 1)


def _plain(text: str) -> str:
    """A text that no Markdown reads as more than letters."""
    line = one_line(text.replace("\u00a0", " "))
    for letter in "\\`*_[]<>|#":
        line = line.replace(letter, f"\\{letter}")
    return line
