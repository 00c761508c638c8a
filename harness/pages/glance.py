"""The answer at a glance: for each workload and GPU the largest gain that was shown, and its price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.core.runspec import RunSpec
from harness.measure.verdict import worst
from harness.pages.boards import Arm, Board, Change
from harness.pages.facets import kind_words, ranked, slo_text
from harness.pages.numbers import gpu_name, load_words

# What tells a gain's price.
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
    def level(self) -> str:
        """The worse verdict of the best arm and the baseline."""
        return worst(arm.level for arm in self.board.arms if arm is self.best or arm.policy == self.board.baseline)

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
    lines: dict[tuple[str, ...], Line] = {}
    cells: dict[tuple[str, ...], list[Board]] = {}
    gpus: dict[str, None] = {}
    for board in boards:
        if board.kind == "reported" or board.baseline is None or len(ranked(board)) < 2:
            continue
        spec = board.first.run.spec
        key = (kind_words(board), spec.workload, spec.model)
        lines.setdefault(key, Line(board.kind, *key, {}))
        gpu = gpu_name(spec.gpu)
        gpus[gpu] = None
        cells.setdefault((*key, gpu), []).append(board)
    for (*about, gpu), some in cells.items():
        lines[tuple(about)].answers[gpu] = [_answer(one, _load(one, some)) for one in some]
    return Glance(tuple(gpus), tuple(lines.values()))


# What tells the boards of a cell apart, where it does.
_APART: dict[str, Callable[[RunSpec], str]] = {
    "slots": lambda spec: f"N\u00a0{spec.slots}",
    "token_budget": lambda spec: f"B\u00a0{spec.token_budget}",
    "requests": lambda spec: f"{spec.requests:,} requests",
    "cost_model": lambda spec: "fitted step costs" if spec.cost_model == "auto" else f"{spec.cost_model} step costs",
    "tp": lambda spec: f"{spec.tp}\u00a0GPUs",
    "host": lambda spec: f"host {spec.host or 'as usual'}",
    "policy_costs": lambda spec: f"policies told {spec.policy_costs or 'the same'} step costs",
    "slo": lambda spec: f"SLO {slo_text(spec.slo)}" if spec.slo else "no SLO",
}


def _load(board: Board, cell: Sequence[Board]) -> str:
    """The load, and what else tells boards under the same load apart."""
    spec = board.first.run.spec
    others = [one.first.run.spec for one in cell if one.first.run.spec.arrival == spec.arrival]
    apart = [say(spec) for name, say in _APART.items() if any(getattr(o, name) != getattr(spec, name) for o in others)]
    return ", ".join([load_words(spec.arrival), *apart])


def _answer(board: Board, load: str) -> Answer:
    # Where requests have limits to meet, what met them is what counts.
    metric = "goodput" if board.first.run.spec.slo else "output_throughput"
    arms = ranked(board)
    # One repeat's gain is no match for the mean of three: those with the most repeats are held against each other.
    most = max(len(arm.entries) for arm in arms)
    told = [(one, arm) for arm in arms if len(arm.entries) == most and (one := arm.changes.get(metric)) is not None]
    gains = [(one.ratio or 0.0, arm) for one, arm in told if one.word == "better"]
    return Answer(board, load, metric, max(gains, key=lambda one: one[0])[1] if gains else None)
