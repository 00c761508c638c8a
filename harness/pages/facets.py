"""What a board is about, for all pages that list boards: filters, words, and the pages that it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import Arm, Board
from harness.pages.numbers import load_words
from harness.runs.run import Run, gpu_name

# What boards can be filtered by: the name in the URL, and what it is called.
FILTERS = {"gpu": "GPU", "model": "Model", "workload": "Workload", "load": "Load", "kind": "Kind", "slo": "SLO"}

# The load or workload of a reported run whose source has none.
NOT_TOLD = "not told"

# What reported figures are shown of, where there are some.
REPORTED = {
    "request_throughput": "Requests/s",
    "output_throughput": "Output tok/s",
    "total_throughput": "Total tok/s",
    "ttft_s": "TTFT mean",
    "tpot_s": "TPOT mean",
    "tpot_s.p99": "TPOT p99",
    "itl_s": "ITL mean",
    "profit_tokenstep": "Profit, token-step",
    "gap_mean": "Gap mean, tokens",
}


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter with the values that the boards have."""

    name: str
    label: str
    values: tuple[str, ...]


def slo_text(slo: dict[str, float]) -> str:
    """Service levels as text: `ttft_s=1, tpot_s=0.05`, or none."""
    return ", ".join(f"{name}={limit:g}" for name, limit in sorted(slo.items())) or "none"


def facets_of(board: Board) -> dict[str, str]:
    """What the filters see of a board."""
    spec = board.spec
    values = (gpu_name(spec.gpu), spec.model, spec.workload, spec.arrival, board.kind, slo_text(spec.slo))
    return dict(zip(FILTERS, values, strict=True))


def filters_of(boards: Sequence[Board]) -> list[Filter]:
    """Every filter with the values that occur, in the order of the boards."""
    facets = [facets_of(board) for board in boards]
    return [
        Filter(name, label, tuple(dict.fromkeys(values[name] for values in facets))) for name, label in FILTERS.items()
    ]


def settings_words(board: Board) -> str:
    """The settings that all arms of a board share, as far as they are known."""
    spec = board.first.run.known_spec
    words = [spec["model"], "load not told" if spec["arrival"] == NOT_TOLD else load_words(spec["arrival"])]
    if "requests" in spec:
        words.append(f"{spec['requests']:,} requests")
    if spec.get("tp", 1) > 1:
        words.append(f"{spec['tp']} GPUs")
    if board.kind != "reported":
        words += [f"N\u00a0{spec['slots']}", f"B\u00a0{spec['token_budget']}"]
    if spec.get("cost_model", "auto") != "auto":
        words.append(f"{spec['cost_model']} step costs")
    if spec.get("host"):
        words.append(f"host {spec['host']}")
    if spec.get("policy_costs"):
        words.append(f"policies told {spec['policy_costs']} step costs")
    if spec.get("slo"):
        words.append(f"SLO {slo_text(spec['slo'])}")
    return " · ".join(words)


def source_of(run: Run) -> tuple[str, str | None]:
    """Where a reported run's figures were published, and its address where that is known."""
    provenance = run.manifest.get("provenance", {})
    words = [str(provenance[name]) for name in ("paper", "set") if provenance.get(name)]
    paper = re.fullmatch(r"arXiv (\d{4}\.\d{4,5})", words[0]) if words else None
    return ", ".join(words) or "a source that is not told", f"https://arxiv.org/abs/{paper[1]}" if paper else None


def reported_columns(arms: Sequence[Arm]) -> dict[str, str]:
    """The columns of a table of reported figures: name and label of what at least one of its arms has."""
    return {name: label for name, label in REPORTED.items() if any(name in arm.values for arm in arms)}


def ranked_arms(board: Board) -> list[Arm]:
    """The arms that curves may show: those that are not INVALID, and none that was only reported."""
    return [arm for arm in board.arms if arm.level != "INVALID" and board.kind != "reported"]


def has_curves(board: Board) -> bool:
    """Whether there are distributions to draw."""
    return any(arm.first.detail["curves"] for arm in ranked_arms(board))


def has_sums(board: Board) -> bool:
    """Whether there is a profit to compute: a run with records."""
    return any(arm.first.detail["sums"] for arm in ranked_arms(board))


def is_drift(board: Board) -> bool:
    """Whether the workload changes on the way, and a step log shows what the policies made of it."""
    drifting = board.spec.workload.startswith("drift:") or board.first.detail["marks"]
    return bool(drifting) and any(arm.first.detail["course"] for arm in ranked_arms(board))


# A page a board, where the board has what it shows: directory and label.
PAGES = {"latency": ("Latency", has_curves), "frontier": ("Frontier", has_sums), "drift": ("Drift", is_drift)}


def pages_of(board: Board) -> list[tuple[str, str]]:
    """The pages of a board: label and path under the site."""
    return [(label, f"{name}/{board.id}.html") for name, (label, has_page) in PAGES.items() if has_page(board)]
