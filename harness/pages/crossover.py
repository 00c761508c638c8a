"""The crossover map: where exclusive batching should beat mixed batching, and where it did."""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from harness.core.text import percent
from harness.pages.boards import Arm, Board, Change
from harness.pages.charts import Chart, Series, script_json
from harness.pages.facets import ranked_arms
from harness.pages.numbers import is_own_profile
from harness.pages.traffic import gpu_label, held, workload_words
from harness.profiles.files import gpu_names, load_gpu
from harness.profiles.pair import Pair, load_pair
from harness.published.cache import JsonCache
from harness.report.words import NOT_TESTED
from policies.core import PolicyError, StepCosts
from policies.online.threshold import crossover, theta0

MIXED = "v1"
# Throughput of total tokens, as the paper compares them.
METRIC = "total_throughput"
THETA_MIN, THETA_MAX = 0.01, 0.8  # the policies' own clip
DEFAULT_MODEL = "Qwen/Qwen3-8B"
TOKEN_BUDGET = 14336
RATIOS = tuple(round(0.02 + 0.04 * i, 2) for i in range(25))
# Tokens a request, prompt and output; and requests running. The defaults are the paper's 512 + 256 and a middling load.
SIZES = (256, 768, 4096)
SIZE = 768
RUNNING = (16, 32, 64, 128, 256, 512, 1024)
AT_RUNNING = 128
SYMBOLS = {"measured": 0, "emulated": 2, "simulated": 1, "reported": 6}
# Who won: the words on the page and the place in the palette.
WON = {"exclusive": 2, "mixed": 1, "no difference shown": 7, NOT_TESTED: 7}


@dataclass(frozen=True, slots=True)
class GpuBoundary:
    """What form 6 says of one GPU: by size of a request, the requests running where both are equal, at RATIOS.

    More of them favour exclusive batching; 0 says that it always wins, None that it never does.
    """

    gpu: str
    bandwidth_tb_s: float
    basis: str
    equal: dict[int, list[float | None]]


@dataclass(frozen=True, slots=True)
class CrossoverPoint:
    """A board with both: the exclusive arm held against v1, and what form 6 says at its own lengths and load."""

    board: Board
    arm: Arm
    change: Change
    ratio: float
    bandwidth_tb_s: float | None
    prompt_mean: float
    output_mean: float
    running: float | None
    predicted: str | None

    @property
    def won(self) -> str:
        """exclusive, mixed, or why neither."""
        return {"better": "exclusive", "worse": "mixed"}.get(self.change.word, self.change.word)

    @property
    def agrees(self) -> bool | None:
        """Whether the prediction holds, None where there is none or the data show no winner."""
        if self.predicted is None or self.won not in ("exclusive", "mixed"):
            return None
        return self.predicted == self.won


def crossover_values(boards: Sequence[Board], cache: JsonCache) -> dict[str, Any]:
    """What the map's template is given."""
    model = _usual_model(boards)
    boundaries = _kept_boundaries(model, cache)
    if not boundaries:
        model = DEFAULT_MODEL
        boundaries = _kept_boundaries(model, cache)
    points = [point for point in map(point_of, boards) if point is not None]
    return {
        "model": model,
        "boundaries": boundaries,
        "points": points,
        "chart": chart_of(boundaries, points, model),
        "sizes": SIZES,
        "size": SIZE,
        "running": RUNNING,
        "at_running": AT_RUNNING,
        "ratios": RATIOS,
        "data": script_json({"ratios": RATIOS, "rows": [_boundary_document(boundary) for boundary in boundaries]}),
    }


def _usual_model(boards: Sequence[Board]) -> str:
    """The model of most boards, the last by name of equals."""
    models = Counter(board.spec.model for board in boards)
    return max(models, key=lambda model: (models[model], model), default=DEFAULT_MODEL)


def _boundary_document(boundary: GpuBoundary) -> list[Any]:
    return [boundary.bandwidth_tb_s, {str(size): values for size, values in boundary.equal.items()}]


def _kept_boundaries(model: str, cache: JsonCache) -> list[GpuBoundary]:
    """The same as `boundaries_of`, which nothing but the code and the model decide."""
    key = hashlib.sha256(f"boundaries of {model}".encode()).hexdigest()
    kept = cache.get_or_make(key, lambda: [_boundary_values(one) for one in boundaries_of(model)])
    return [
        GpuBoundary(gpu, bandwidth, basis, dict(zip(SIZES, equal, strict=True)))
        for gpu, bandwidth, basis, equal in kept
    ]


def _boundary_values(boundary: GpuBoundary) -> list[Any]:
    return [boundary.gpu, boundary.bandwidth_tb_s, boundary.basis, list(boundary.equal.values())]


@functools.cache
def boundaries_of(model: str) -> tuple[GpuBoundary, ...]:
    """The boundary of each GPU whose step costs for this model are known, by bandwidth."""
    boundaries = []
    for name in gpu_names():
        try:
            pair = load_pair(name, model)
            if pair.gpu.bandwidth_tb_s is None:
                continue
            equal = {size: [_equal(pair, ratio, size) for ratio in RATIOS] for size in SIZES}
        except UserError:
            continue
        boundaries.append(GpuBoundary(name, pair.gpu.bandwidth_tb_s, pair.basis, equal))
    return tuple(sorted(boundaries, key=lambda boundary: boundary.bandwidth_tb_s))


def _equal(pair: Pair, ratio: float, size: int) -> float | None:
    """The requests running at which both sides of form 6 are equal: the right side falls as 1/N_obs."""
    mu_o = ratio * size
    costs = pair.policy_constants(size - mu_o, mu_o, TOKEN_BUDGET)
    left, right = crossover(_theta(mu_o, costs), size - mu_o, mu_o, 1.0, 0.0, costs)
    if left <= 0:
        # A mixed step is no dearer than the two it stands for: with a gain besides it never loses.
        return None if right > left else 0.0
    return float(f"{max(0.0, right / left):.4g}")


def _theta(mu_o: float, costs: StepCosts) -> float:
    return min(THETA_MAX, max(THETA_MIN, theta0(1 / mu_o, costs.alpha_p_s, costs.alpha_d_s)))


def point_of(board: Board) -> CrossoverPoint | None:
    """The board's point: EB as its own threshold sets it, else EB+, else EB with a threshold given; None without."""
    if board.baseline != MIXED:
        return None
    arms = [arm for arm in ranked_arms(board) if arm.policy.partition(":")[0] in ("eb", "ebplus")]
    arms = [arm for arm in arms if METRIC in arm.changes and arm.changes[METRIC].ratio is not None]
    arm = min(arms, key=lambda arm: (arm.policy != "eb", arm.policy != "ebplus", arm.policy), default=None)
    sums = arm.first.detail["sums"] if arm is not None else None
    if arm is None or not sums or not sums["completed"]:
        return None
    mu_l, mu_o = sums["prompt_tokens"] / sums["completed"], sums["output_tokens"] / sums["completed"]
    running, _ = held(arm)
    return CrossoverPoint(
        board=board,
        arm=arm,
        change=arm.changes[METRIC],
        ratio=mu_o / (mu_l + mu_o) if mu_l + mu_o else 0.0,
        bandwidth_tb_s=_bandwidth(arm),
        prompt_mean=mu_l,
        output_mean=mu_o,
        running=running,
        predicted=_predicted(arm, mu_l, mu_o, running),
    )


def _bandwidth(arm: Arm) -> float | None:
    """The memory bandwidth of the arm's GPU, TB/s: as the run knew it, else as the profile has it now."""
    profile = arm.first.run.manifest.get("provenance", {}).get("profile")
    if isinstance(profile, dict) and isinstance(profile.get("gpu"), dict):
        bandwidth = profile["gpu"].get("bandwidth_tb_s")
        if isinstance(bandwidth, int | float):
            return float(bandwidth)
    spec = arm.first.run.spec
    try:
        return None if is_own_profile(spec) else load_gpu(spec.gpu).bandwidth_tb_s
    except UserError:
        return None


def _predicted(arm: Arm, mu_l: float, mu_o: float, running: float | None) -> str | None:
    """What form 6 says with the constants that the policy ran with."""
    constants = arm.first.run.manifest.get("provenance", {}).get("policy_constants")
    if not isinstance(constants, dict) or not running or mu_o <= 0:
        return None
    try:
        costs = StepCosts(**constants)
        left, right = crossover(_theta(mu_o, costs), mu_l, mu_o, running, 0.0, costs)
    except (TypeError, PolicyError):
        return None
    return "mixed" if left < right else "exclusive"


def chart_of(boundaries: Sequence[GpuBoundary], points: Sequence[CrossoverPoint], model: str) -> Chart:
    """The map: a line a GPU where each way of batching should win, and the boards as points over it."""
    series = [
        _boundary_line(boundaries, "predicted: exclusive wins", True, 0),
        _boundary_line(boundaries, "predicted: mixed wins", False, 2),
        *_clouds(points),
        _gpu_names(boundaries),
    ]
    table: list[tuple[Any, ...]] = [
        (
            workload_words(point.board.spec.workload),
            gpu_label(point.board.spec.gpu),
            point.board.kind_words,
            point.arm.label,
            point.ratio,
            point.bandwidth_tb_s,
            _percent(point.change),
            point.won,
        )
        for point in points
    ]
    headers = ("workload", "GPU", "kind", "policy", "r", "TB/s", f"total tok/s against {MIXED}", "won")
    return Chart(
        "map",
        f"Decode ratio and bandwidth: who should win, and who did ({model})",
        "decode ratio r = output tokens / total tokens of a request",
        "memory bandwidth of the GPU, TB/s",
        tuple(series),
        headers,
        tuple(table),
        note=f"lines: form 6 with each profile’s constants, {SIZE} total tokens a request, {AT_RUNNING} running; "
        "points: runs of lengths and loads of their own, which the choices above do not move (the table predicts each "
        "with its own); colour and words say who won, the shape says the kind, the label the change in total tokens/s",
        y_log=True,
    )


def _boundary_line(boundaries: Sequence[GpuBoundary], name: str, exclusive: bool, dash: int) -> Series:
    """Each GPU's line where exclusive batching should win, or where it should not."""
    x: list[float | None] = []
    y: list[float | None] = []
    for boundary in boundaries:
        for ratio, equal in zip(RATIOS, boundary.equal[SIZE], strict=True):
            wins = equal is not None and equal < AT_RUNNING
            x.append(ratio)
            y.append(boundary.bandwidth_tb_s if wins == exclusive else None)
        x.append(None)
        y.append(None)
    return Series(name, x, y, 7, "lines", look={"colour": "quiet", "width": 3, "dash": dash})


def _gpu_names(boundaries: Sequence[GpuBoundary]) -> Series:
    """The GPUs' names at the ends of their lines."""
    bandwidths = [boundary.bandwidth_tb_s for boundary in boundaries]
    names = [gpu_label(boundary.gpu) for boundary in boundaries]
    return Series("GPUs", [1.0] * len(names), bandwidths, 7, "names", labels=names, look={"quiet": True})


def _clouds(points: Sequence[CrossoverPoint]) -> list[Series]:
    """The boards as points, a series for who won and a kind of number."""
    clouds = []
    for won, style in WON.items():
        for kind, symbol in SYMBOLS.items():
            cloud = [
                point for point in points if point.won == won and point.board.kind == kind and point.bandwidth_tb_s
            ]
            if cloud:
                name = f"{won} won, {kind}" if won in ("exclusive", "mixed") else f"{won}, {kind}"
                clouds.append(_cloud(name, cloud, style, symbol, points))
    return clouds


def _cloud(
    name: str, cloud: Sequence[CrossoverPoint], style: int, symbol: int, points: Sequence[CrossoverPoint]
) -> Series:
    """Boards as points; one that lies close to another of `points` has no label: it could be read as the other's."""
    text, labels = [], []
    for point in cloud:
        spec, change = point.board.spec, _percent(point.change)
        words = (point.arm.label, gpu_label(spec.gpu), workload_words(spec.workload), point.board.kind_words, change)
        text.append(" · ".join(words))
        labels.append("" if sum(_is_near(point, other) for other in points) > 1 else change)
    x, y = [point.ratio for point in cloud], [point.bandwidth_tb_s for point in cloud]
    return Series(name, x, y, style, "markers", text, labels=labels, look={"symbol": symbol})


def _is_near(point: CrossoverPoint, other: CrossoverPoint) -> bool:
    """Whether the labels of two points would stand over each other; a point is near itself."""
    return abs(other.ratio - point.ratio) < 0.06 and other.bandwidth_tb_s == point.bandwidth_tb_s


def _percent(change: Change) -> str:
    return "–" if change.ratio is None else f"{percent(change.ratio)} %"
