"""When a policy wins: over all boards its change against the baseline, by decode ratio, slots and GPU."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.text import percent
from harness.pages.boards import Arm, Board, Change
from harness.pages.charts import Chart, Series
from harness.pages.numbers import change, load_words
from harness.pages.traffic import gpu_label, held, load_of, workload_words
from harness.report.support import DISAGREE
from harness.report.words import BETTER, WORSE


@dataclass(frozen=True, slots=True)
class Win:
    """A policy on a board: its change, and what may explain it. `ratio` is output tokens over all tokens."""

    board: Board
    arm: Arm
    change: Change
    ratio: float | None
    running: float | None
    load: str


def wins_of(results: Sequence[tuple[Board, Arm]]) -> list[Win]:
    """The arms that were held against a baseline of another policy; INVALID and reported ones are none."""
    return [
        Win(board, arm, arm.changes[board.rate], decode_ratio(arm), held(arm)[0], load_of(board))
        for board, arm in results
        if board.kind != "reported"
        and arm.level != "INVALID"
        and board.rate in arm.changes
        and arm.changes[board.rate].ratio is not None
    ]


def decode_ratio(arm: Arm) -> float | None:
    """Output tokens over prompt and output tokens of the arm's completed requests, first repeat; None without any."""
    sums = arm.first.detail["sums"]
    total = sums["prompt_tokens"] + sums["output_tokens"] if sums else 0
    return sums["output_tokens"] / total if total else None


def wins_sentence(name: str, wins: Sequence[Win]) -> str:
    """On how many boards the policy was shown to be better, worse, or neither, and under which loads."""
    if not wins:
        return f"{name} was held against no other policy here."
    words = Counter(win.change.word for win in wins)
    loads = Counter(win.load for win in wins if win.change.word == BETTER)
    where = f" ({', '.join(f'{count} {load}' for load, count in loads.most_common())})" if loads else ""
    disagree = f", on {words[DISAGREE]} the models of step costs disagree" if words[DISAGREE] else ""
    arms = "arm" if len(wins) == 1 else "arms"
    logs = [math.log(win.change.ratio) for win in wins if win.change.ratio]
    mean = f" The geometric mean of its changes is {change(math.exp(math.fsum(logs) / len(logs)))}." if logs else ""
    return (
        f"Of {len(wins)} {arms} here, in the rate that decides against the baseline: "
        f"better in {words[BETTER]}{where}, worse in {words[WORSE]}{disagree}, of the others nothing was shown.{mean}"
    )


def wins_charts(wins: Sequence[Win]) -> list[Chart]:
    """The change over the decode ratio and over the requests that run, a GPU a cloud."""
    axes = (
        ("by-ratio", "Gain by decode ratio", "decode ratio r = output tokens / all tokens", "ratio", False),
        ("by-running", "Gain by requests that run", "requests running, mean", "running", True),
    )
    charts = []
    for name, title, x_title, what, log in axes:
        known = [win for win in wins if getattr(win, what) is not None and (not log or getattr(win, what) > 0)]
        if known:
            charts.append(_chart(name, title, x_title, what, log, known))
    return charts


def _chart(name: str, title: str, x_title: str, what: str, log: bool, wins: Sequence[Win]) -> Chart:
    series = []
    for style, gpu in enumerate(sorted({gpu_label(win.board.spec.gpu) for win in wins})):
        cloud = [win for win in wins if gpu_label(win.board.spec.gpu) == gpu]
        x = [getattr(win, what) for win in cloud]
        y = [100 * ((win.change.ratio or 1.0) - 1) for win in cloud]
        hollow = all(win.board.kind != "measured" for win in cloud)
        series.append(Series(gpu, x, y, style, "markers", [_words(win) for win in cloud], hollow=hollow))
    rows = tuple(_row(win, getattr(win, what)) for win in wins)
    headers = ("GPU", "workload", "policy", x_title, "change", "word")
    note = "an arm a point, open where nothing was measured; above 0 it gains"
    y_title = "change in the rate that decides, %"
    return Chart(name, title, x_title, y_title, tuple(series), headers, rows, note, x_log=log)


def _row(win: Win, x: float) -> tuple[Any, ...]:
    spec, change = win.board.spec, f"{percent(win.change.ratio or 1.0)} %"
    return gpu_label(spec.gpu), workload_words(spec.workload), win.arm.label, x, change, win.change.word


def _words(win: Win) -> str:
    spec = win.board.spec
    return " · ".join((win.arm.label, workload_words(spec.workload), load_words(spec.arrival), win.change.word))
