"""The compare page: two arms that the reader chooses, what differs first, then metric by metric."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from harness.measure.metrics import METRICS
from harness.pages.boards import REMEMBERED, TUNED, Arm, Board, compared, decides
from harness.pages.charts import script_json
from harness.pages.facets import kind_words, ranked, settings_of
from harness.pages.numbers import gpu_name
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.published.cache import Keep
from harness.report.comparison import Reading, row_names

# What makes an arm the best of its policy in a family.
BEST_BY = "total_throughput"
# Arms of a board that are held against each other, all pairs; beyond them only the baseline's pairs are computed.
MOST = 8
# Never a difference between arms: a repeat is an arm's own.
_REPEAT = ("seed", "repeat")


def write(site: Site, writer: Writer) -> None:
    """compare.html, what it knows of every arm, and what it asks for of each board and family."""
    families = families_of(site.boards)
    names = {board.id: family for family, boards in families.items() for board in boards}
    best = {family: best_of(boards) for family, boards in families.items()}
    writer.file("compare/index.js", script("index", index(site.boards, names, best)))
    for board in site.boards:
        writer.file(f"compare/{board.id}.js", script(board.id, of_board(site.keep, board)))
    for family, arms in best.items():
        writer.file(
            f"compare/{family}.js",
            script(family, {"pairs": pairs(site.keep, Reading(REMEMBERED), list(arms.values()), TUNED)}),
        )
    writer.page("compare.html", "compare.html.j2", boards=[(board, kind_words(board)) for board in site.boards])


def script(name: str, value: Any) -> bytes:
    """A value as a script that a page opened from a file can load: it puts it under its name."""
    return f"(window.benchCompare ??= {{}})[{json.dumps(name)}] = {script_json(value)};\n".encode()


def families_of(boards: tuple[Board, ...]) -> dict[str, list[Board]]:
    """Boards that differ in nothing but slots and token budget, by a name; families of one are left out."""
    groups: dict[str, list[Board]] = {}
    for board in boards:
        key = decides(board.first, without=TUNED)
        groups.setdefault("f" + hashlib.sha256(key.encode()).hexdigest()[:10], []).append(board)
    return {name: some for name, some in groups.items() if len(some) > 1}


def best_of(boards: list[Board]) -> dict[str, Arm]:
    """Every policy's best arm in a family, by total throughput; an INVALID arm is none."""
    best: dict[str, Arm] = {}
    for board in boards:
        for arm in ranked(board):
            if BEST_BY not in arm.values:
                continue
            label = arm.first.run.spec.label
            if label not in best or arm.values[BEST_BY].mean > best[label].values[BEST_BY].mean:
                best[label] = arm
    return dict(sorted(best.items()))


def index(boards: tuple[Board, ...], families: dict[str, str], best: dict[str, dict[str, Arm]]) -> dict[str, Any]:
    """What the page knows without asking: every board with its arms, the metrics, each policy's best by family."""
    shown = [name for name in row_names() if not name.startswith("profit_")]
    return {
        "metrics": [
            [name, _label(name), METRICS[name.partition(".")[0]].unit, METRICS[name.partition(".")[0]].better]
            for name in shown
        ],
        "boards": [
            {
                "id": board.id,
                "name": _about(board),
                "kind": kind_words(board),
                "baseline": next((arm.first.id for arm in board.arms if arm.policy == board.baseline), None),
                "family": families.get(board.id),
                "arms": [[arm.first.id, arm.first.run.spec.label, arm.level, len(arm.entries)] for arm in board.arms],
            }
            for board in boards
        ],
        "best": {family: {label: arm.first.id for label, arm in arms.items()} for family, arms in best.items()},
    }


def _label(name: str) -> str:
    metric, _, statistic = name.partition(".")
    label = METRICS[metric].label
    if METRICS[metric].kind == "distribution":
        label += f", {statistic or 'mean'}"
    return label


def _about(board: Board) -> str:
    spec = board.first.run.spec
    return f"{spec.workload} on {gpu_name(spec.gpu)} · {kind_words(board)} · {settings_of(board)}"


def of_board(keep: Keep, board: Board, reading: Reading | None = None) -> dict[str, Any]:
    """A board's arms with their spec and values, and every pair that was compared."""
    reading = reading or Reading(REMEMBERED)
    # The baseline leads, so that its pairs are those that the board has already.
    arms = sorted(board.arms, key=lambda arm: arm.policy != board.baseline)
    found = pairs(keep, reading, arms[:MOST])
    if board.baseline is not None:
        found |= pairs(keep, reading, [arms[0], *arms[MOST:]], only_first=True)
    return {
        "arms": {
            arm.first.id: {
                "spec": _spec(arm),
                "values": {name: [one.mean, one.low, one.high] for name, one in arm.values.items()},
            }
            for arm in board.arms
        },
        "pairs": found,
    }


def _spec(arm: Arm) -> dict[str, Any]:
    """What decided an arm, as text."""
    run = arm.first.run
    provenance = run.manifest.get("provenance", {})
    told = {"kind": run.kind, **{k: v for k, v in run.told.items() if k not in _REPEAT}}
    told |= {name: provenance.get(name) for name in ("engine", "engine_version")}
    return {
        name: v if isinstance(v, str) else json.dumps(v, sort_keys=True) for name, v in told.items() if v is not None
    }


def pairs(
    keep: Keep, reading: Reading, arms: list[Arm], allow: tuple[str, ...] = (), only_first: bool = False
) -> dict[str, dict[str, Any]]:
    """Pairs of arms by `a b` (ids): B over A with interval, p and word a metric, why there is none, and the notes.

    Where an arm has no value of its own, both as they were compared follow.

    Each pair once: what B is to A says what A is to B, since intervals are symmetric in the logarithm.
    """
    found = {}
    for i, a in enumerate(arms[:1] if only_first else arms):
        for b in arms[i + 1 :]:
            one = compared(a, b, keep, reading, allow)
            rows = {}
            for name, values in one["changes"].items():
                # The two values only where the arms do not tell them: a page that holds everything twice is slow.
                told = name in a.values and name in b.values and _repeats(a) == _repeats(b)
                rows[name] = [_short(v) for v in (values[:5] if told else values)]
            found[f"{a.first.id} {b.first.id}"] = {"rows": rows, "refusal": one["refusal"], "notes": one["notes"]}
    return found


def _repeats(arm: Arm) -> list[int]:
    return [entry.run.spec.repeat for entry in arm.entries]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value
