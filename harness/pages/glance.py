"""The answer at a glance: for each workload and GPU the largest gain that was shown, and its price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import Arm, Board, Change
from harness.pages.facets import kind_words, ranked
from harness.pages.words import gpu_name, load_words

# What makes a winner: with limits that requests must meet what met them, else tokens. And what tells its price.
GAINS = ("goodput", "output_throughput")
PRICE = "ttft_s"


@dataclass(frozen=True, slots=True)
class Answer:
    """A board in one line: the arm that gains most in `metric`, None where none was shown to gain."""

    board: Board
    load: str
    metric: str
    best: Arm | None

    @property
    def gain(self) -> Change:
        """The best arm's change in `metric` against the baseline."""
        assert self.best is not None
        return self.best.changes[self.metric]

    @property
    def price(self) -> Change | None:
        """The change in PRICE against the baseline."""
        return None if self.best is None else self.best.changes.get(PRICE)


@dataclass(frozen=True, slots=True)
class Line:
    """A workload of one kind and model, with its answers by GPU."""

    kind: str
    words: str
    workload: str
    model: str
    answers: dict[str, list[Answer]]


@dataclass(frozen=True, slots=True)
class Glance:
    """Lines over columns of GPUs."""

    gpus: tuple[str, ...]
    lines: tuple[Line, ...]


def glance(boards: Sequence[Board]) -> Glance:
    """Boards that hold arms against a baseline, reported ones left out: nothing of them was tested."""
    told = [board for board in boards if board.kind != "reported" and board.baseline and len(ranked(board)) > 1]
    budgets: dict[tuple[str, ...], set[int]] = {}
    for board in told:
        budgets.setdefault(_but_budget(board), set()).add(board.first.run.spec.token_budget)
    lines: dict[tuple[str, ...], Line] = {}
    gpus: dict[str, None] = {}
    for board in told:
        spec = board.first.run.spec
        key = (kind_words(board), spec.workload, spec.model)
        line = lines.setdefault(key, Line(board.kind, *key, {}))
        gpu = gpu_name(spec.gpu)
        gpus[gpu] = None
        load = f"{load_words(spec.arrival)}, N\u00a0{spec.slots}"
        # Where slots do not tell boards apart.
        load += f", B\u00a0{spec.token_budget}" if len(budgets[_but_budget(board)]) > 1 else ""
        line.answers.setdefault(gpu, []).append(_answer(board, load))
    return Glance(tuple(gpus), tuple(lines.values()))


def _but_budget(board: Board) -> tuple[str, ...]:
    spec = board.first.run.spec
    return (board.kind, spec.gpu, spec.model, spec.workload, spec.arrival, str(spec.slots))


def _answer(board: Board, load: str) -> Answer:
    metric = next(name for name in GAINS if name != "goodput" or board.first.run.spec.slo)
    told = [(one, arm) for arm in ranked(board) if (one := arm.changes.get(metric)) is not None]
    gains = [(one.ratio or 0.0, arm) for one, arm in told if one.word == "better"]
    return Answer(board, load, metric, max(gains, key=lambda one: one[0])[1] if gains else None)
