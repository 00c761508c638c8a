"""What a board is about, for all pages that list boards: filters, words, and the pages that it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.pages.boards import Arm, Board
from harness.pages.numbers import load_words
from harness.pages.traffic import gpu_label, model_label, slo_words, workload_words
from harness.runs.run import Run, gpu_name

# What boards can be filtered by: the name in the URL, and what it is called.
FILTERS = {"gpu": "GPU", "model": "Model", "workload": "Workload", "load": "Load", "kind": "Kind", "slo": "Limits"}

# The load or workload of a reported run whose source has none.
NOT_TOLD = "not told"

# Arms in one chart: as many as the palette tells apart.
MOST = 8

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
    """A filter with the values that the boards have, each with what it is called."""

    name: str
    label: str
    values: tuple[tuple[str, str], ...]


def facets_of(board: Board) -> dict[str, str]:
    """What the filters see of a board."""
    spec = board.spec
    limits = ",".join(f"{name}={limit:g}" for name, limit in sorted(spec.slo.items())) or "none"
    values = (gpu_name(spec.gpu), spec.model, spec.workload, spec.arrival, board.kind, limits)
    return dict(zip(FILTERS, values, strict=True))


def filters_of(boards: Sequence[Board]) -> list[Filter]:
    """Every filter with the values that occur, in the order of the boards."""
    facets = [(facets_of(board), _facet_words(board)) for board in boards]
    return [
        Filter(name, label, tuple({values[name]: words[name] for values, words in facets}.items()))
        for name, label in FILTERS.items()
    ]


def _facet_words(board: Board) -> dict[str, str]:
    """What people call what the filters see."""
    spec = board.spec
    limits = slo_words(spec.slo) or "none"
    loads = load_words(spec.arrival)
    words = (gpu_label(spec.gpu), model_label(spec.model), workload_words(spec.workload), loads, board.kind, limits)
    return dict(zip(FILTERS, words, strict=True))


def settings_words(board: Board) -> str:
    """The settings that all arms of a board share, as far as they are known."""
    spec = board.first.run.known_spec
    words = [
        model_label(spec["model"]),
        "load not told" if spec["arrival"] == NOT_TOLD else load_words(spec["arrival"]),
    ]
    if "requests" in spec:
        words.append(f"{spec['requests']:,} requests")
    if spec.get("tp", 1) > 1:
        words.append(f"{spec['tp']} GPUs")
    if spec.get("replicas", 1) > 1:
        words.append(f"{spec['replicas']} replicas, {spec['router']}")
    # Of a server that runs already nobody told either.
    if board.kind != "reported" and spec["engine"] != "endpoint":
        words += [f"N\u00a0{spec['slots']:,}", f"B\u00a0{spec['token_budget']:,}"]
    if spec.get("cost_model", "auto") != "auto":
        words.append(f"{spec['cost_model']} step costs")
    if spec.get("host"):
        words.append(f"host {spec['host']}")
    if spec.get("policy_costs"):
        words.append(f"policies told {spec['policy_costs']} step costs")
    if spec.get("slo"):
        words.append(slo_words(spec["slo"]))
    if board.steady:
        words.append("start and end left out")
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


def drawn_arms(board: Board) -> list[Arm]:
    """The arms that charts hold, in the order of the ranking: the baseline and the first, at most MOST."""
    ranked = ranked_arms(board)
    kept = sorted(ranked, key=lambda arm: arm.policy != board.baseline)[:MOST]
    return [arm for arm in ranked if arm in kept]
