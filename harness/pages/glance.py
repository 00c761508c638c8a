"""The answer at a glance: for each workload and GPU the largest gain that was shown, and its price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from harness.core.runspec import RunSpec
from harness.measure.verdict import worst
from harness.pages.boards import Arm, Board, Change
from harness.pages.facets import ranked_arms, slo_text
from harness.pages.numbers import load_words
from harness.runs.run import gpu_name

# What tells a gain's price.
PRICE = "ttft_s"


@dataclass(frozen=True, slots=True)
class GlanceAnswer:
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
class GlanceRow:
    """A workload of one kind and model, with its answers by GPU."""

    kind: str
    kind_words: str
    workload: str
    model: str
    answers: dict[str, list[GlanceAnswer]]


@dataclass(frozen=True, slots=True)
class Glance:
    """Rows over columns of GPUs."""

    gpus: tuple[str, ...]
    rows: tuple[GlanceRow, ...]


def glance(boards: Sequence[Board]) -> Glance:
    """Boards that hold arms against a baseline, reported ones left out: nothing of them was tested."""
    cells: dict[GlanceRowKey, dict[str, list[Board]]] = {}
    gpus: dict[str, None] = {}
    for board in boards:
        if board.kind == "reported" or board.baseline is None or len(ranked_arms(board)) < 2:
            continue
        gpu = gpu_name(board.spec.gpu)
        gpus[gpu] = None
        key = (board.kind, board.kind_words, board.spec.workload, board.spec.model)
        cells.setdefault(key, {}).setdefault(gpu, []).append(board)
    rows = []
    for key, by_gpu in cells.items():
        answers = {gpu: [_answer(board, _load(board, cell)) for board in cell] for gpu, cell in by_gpu.items()}
        rows.append(GlanceRow(*key, answers))
    return Glance(tuple(gpus), tuple(rows))


# Kind, kind in words, workload, model.
GlanceRowKey = tuple[str, str, str, str]

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
    spec = board.spec
    others = [other.spec for other in cell if other.spec.arrival == spec.arrival]
    apart = [
        words(spec)
        for name, words in _APART.items()
        if any(getattr(other, name) != getattr(spec, name) for other in others)
    ]
    return ", ".join([load_words(spec.arrival), *apart])


def _answer(board: Board, load: str) -> GlanceAnswer:
    # Where requests have limits to meet, what met them is what counts.
    metric = "goodput" if board.spec.slo else "output_throughput"
    arms = ranked_arms(board)
    # One repeat's gain is no match for the mean of three: those with the most repeats are held against each other.
    most = max(len(arm.runs) for arm in arms)
    better = [
        arm for arm in arms if len(arm.runs) == most and metric in arm.changes and arm.changes[metric].word == "better"
    ]
    return GlanceAnswer(
        board, load, metric, max(better, key=lambda arm: arm.changes[metric].ratio or 0.0, default=None)
    )
