"""The compare page: two arms that the reader chooses, what differs first, then metric by metric."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from harness.measure.facts import metric_names
from harness.measure.metrics import METRICS
from harness.pages.boards import REMEMBERED, TUNED, Arm, Board, board_key, compare_arms
from harness.pages.charts import script_json
from harness.pages.facets import ranked_arms, settings_words
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.pages.traffic import gpu_label, workload_words
from harness.published.cache import JsonCache
from harness.published.detail import six_digits
from harness.report.reader import RunReader

# What stands first of a comparison: the rates and latencies that people decide by, and fairness.
KEY_ROWS = (
    *("output_throughput", "output_throughput_steady", "total_throughput", "request_throughput", "goodput"),
    *("ttft_s", "ttft_s_steady", "ttft_s.p99", "tpot_s", "tpot_s_steady", "itl_s.p99", "e2el_s", "gap_mean"),
)
# What makes an arm the best of its policy in a family.
BEST_BY = "total_throughput"
# Arms of a board that are held against each other, all pairs; beyond them only the baseline's pairs are computed.
MOST = 8
# Never a difference between arms: a repeat is an arm's own.
_REPEAT = ("seed", "repeat")


def write(site: Site, writer: Writer) -> None:
    """compare.html, what it knows of every arm, and what it asks for of each board and family."""
    families = families_of(site.boards)
    family_of_board = {board.id: family for family, boards in families.items() for board in boards}
    best = {family: best_of(boards) for family, boards in families.items()}
    writer.file("compare/index.js", script("index", index_document(site.boards, family_of_board, best)))
    for board in site.boards:
        writer.file(f"compare/{board.id}.js", script(board.id, board_document(site.cache, board)))
    for family, arms in best.items():
        pairs = compared_pairs(site.cache, RunReader(REMEMBERED), list(arms.values()), TUNED)
        writer.file(f"compare/{family}.js", script(family, {"pairs": pairs}))
    writer.page("compare.html", "compare.html.j2", boards=site.boards)


def script(name: str, value: Any) -> bytes:
    """A value as a script that a page opened from a file can load: it puts it under its name."""
    return f"(window.benchCompare ??= {{}})[{json.dumps(name)}] = {script_json(value)};\n".encode()


def families_of(boards: Sequence[Board]) -> dict[str, list[Board]]:
    """Boards that differ in nothing but slots and token budget, by a name; families of one are left out."""
    groups: dict[str, list[Board]] = {}
    for board in boards:
        key = board_key(board.first, without=TUNED)
        groups.setdefault("f" + hashlib.sha256(key.encode()).hexdigest()[:10], []).append(board)
    return {name: family for name, family in groups.items() if len(family) > 1}


def best_of(boards: Sequence[Board]) -> dict[str, Arm]:
    """Every policy's best arm in a family, by total throughput; an INVALID arm is none."""
    best: dict[str, Arm] = {}
    for board in boards:
        for arm in ranked_arms(board):
            if BEST_BY not in arm.values:
                continue
            if arm.label not in best or arm.values[BEST_BY].mean > best[arm.label].values[BEST_BY].mean:
                best[arm.label] = arm
    return dict(sorted(best.items()))


def index_document(
    boards: Sequence[Board], family_of_board: dict[str, str], best: dict[str, dict[str, Arm]]
) -> dict[str, Any]:
    """What the page knows without asking: every board with its arms, the metrics, each policy's best by family."""
    return {
        "metrics": [_metric_document(name) for name in metric_names() if not name.startswith("profit_")],
        "key": KEY_ROWS,
        "boards": [
            {
                "id": board.id,
                "name": f"{workload_words(board.spec.workload)} on {gpu_label(board.spec.gpu)} · {board.kind_words} · "
                f"{settings_words(board)}",
                "kind": board.kind_words,
                "baseline": next((arm.first.id for arm in board.arms if arm.policy == board.baseline), None),
                "family": family_of_board.get(board.id),
                "arms": [[arm.first.id, arm.label, arm.level, len(arm.runs)] for arm in board.arms],
            }
            for board in boards
        ],
        "best": {family: {label: arm.first.id for label, arm in arms.items()} for family, arms in best.items()},
    }


def _metric_document(name: str) -> list[str]:
    """A metric's name, label, unit and direction; a distribution's label says which of its statistics it is."""
    metric, statistic = METRICS[name.partition(".")[0]], name.partition(".")[2]
    label = f"{metric.label}, {statistic or 'mean'}" if metric.kind == "distribution" else metric.label
    return [name, label, metric.unit, metric.better]


def board_document(cache: JsonCache, board: Board, reader: RunReader | None = None) -> dict[str, Any]:
    """A board's arms with their spec and values, and every pair that was compared."""
    reader = reader or RunReader(REMEMBERED)
    # The baseline leads, so that its pairs are those that the board has already.
    arms = sorted(board.arms, key=lambda arm: arm.policy != board.baseline)
    pairs = compared_pairs(cache, reader, arms[:MOST])
    if board.baseline is not None:
        pairs |= compared_pairs(cache, reader, [arms[0], *arms[MOST:]], only_first=True)
    return {
        "arms": {
            arm.first.id: {
                "spec": _settings(arm),
                "values": {name: [value.mean, value.low, value.high] for name, value in arm.values.items()},
            }
            for arm in board.arms
        },
        "pairs": pairs,
    }


def _settings(arm: Arm) -> dict[str, str]:
    """What decided an arm, as text."""
    run = arm.first.run
    provenance = run.manifest.get("provenance", {})
    settings = {"kind": run.kind, **{name: value for name, value in run.known_spec.items() if name not in _REPEAT}}
    settings |= {name: provenance.get(name) for name in ("engine", "engine_version")}
    return {
        name: value if isinstance(value, str) else json.dumps(value, sort_keys=True)
        for name, value in settings.items()
        if value is not None
    }


def compared_pairs(
    cache: JsonCache, reader: RunReader, arms: Sequence[Arm], allow: Sequence[str] = (), only_first: bool = False
) -> dict[str, dict[str, Any]]:
    """Pairs of arms by `a b` (ids): B over A with interval, p and word a metric, why there is none, and the notes.

    Where an arm has no value of its own, both as they were compared follow.

    Each pair once: what B is to A says what A is to B, since intervals are symmetric in the logarithm.
    """
    pairs = {}
    for place, a in enumerate(arms[:1] if only_first else arms):
        for b in arms[place + 1 :]:
            comparison = compare_arms(a, b, cache, reader, allow)
            same_repeats = _repeat_numbers(a) == _repeat_numbers(b)
            rows = {}
            for name, values in comparison["changes"].items():
                # The two values only where the arms do not tell them: a page that holds everything twice is slow.
                arms_have_it = name in a.values and name in b.values and same_repeats
                rows[name] = [six_digits(value) for value in (values[:5] if arms_have_it else values)]
            pairs[f"{a.first.id} {b.first.id}"] = {
                "rows": rows,
                "refusal": comparison["refusal"],
                "notes": comparison["notes"],
            }
    return pairs


def _repeat_numbers(arm: Arm) -> list[int]:
    return [published.run.spec.repeat for published in arm.runs]
