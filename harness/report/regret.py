"""Regret: what a policy loses, cell by cell, against the best in hindsight, and what that comes to over all cells."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from harness.core.errors import UserError
from harness.measure.statistics import weighted_percentile
from harness.runs.run import Run

# What makes runs different without making their cells so: repeats of a policy are averaged.
_OF_A_RUN = ("policy", "seed", "repeat")
# Of the policy, not of the cell: what it was told.
_OF_A_POLICY = ("lengths", "policy_costs")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a policy gave in a cell: output tok/s, and the share of requests within the limits where there are any."""

    output_tok_s: float
    good: float | None = None


# Cell -> policy -> outcome.
Cells = Mapping[str, Mapping[str, Outcome]]


@dataclass(frozen=True, slots=True)
class Regret:
    """A policy over its `cells`; shares, of output tok/s.

    `mean` of the regret 1 − tok/s ÷ that of the best in hindsight, below 0 where the policy is better than those;
    `positive` the mean with these as 0; `p95`; `worst` and the cell that it is in. `over` is the mean gain over the
    reference and `below` the share of cells in which it is more than 1 % below it; `good` the mean share of requests
    within the limits.
    """

    policy: str
    cells: int
    mean: float
    positive: float
    p95: float
    worst: float
    worst_in: str
    over: float | None
    below: float | None
    good: float | None

    def to_dict(self) -> dict[str, Any]:
        """JSON values by the names above."""
        return {name: getattr(self, name) for name in self.__slots__}


BELOW = 0.01


def cells_of(runs: Sequence[Run], across: Sequence[str] = ()) -> dict[str, dict[str, Outcome]]:
    """The outcomes of runs; a cell is all of a spec but its policy and seed, and but the fields named in `across`.

    These become part of the policy's name where they are not what most runs have: `v1 [token_budget=4096]`. UserError
    for a name that is no field, and where nothing was measured.
    """
    specs = [run.spec.to_dict() for run in runs]
    usual: dict[str, Any] = {}
    for name in across:
        if any(name not in spec for spec in specs):
            raise UserError(f"--across {name}: a run has no such option; it has {', '.join(sorted(specs[0]))}")
        usual[name] = Counter(json.dumps(spec[name], sort_keys=True) for spec in specs).most_common(1)[0][0]
    found: dict[str, dict[str, list[Outcome]]] = defaultdict(lambda: defaultdict(list))
    for run, spec in zip(runs, specs, strict=True):
        own = {name: spec.pop(name) for name in across}
        first_seed = spec["seed"] - spec["repeat"]
        for name in (*_OF_A_RUN, *_OF_A_POLICY):
            del spec[name]
        different = [
            f"{name}={value}" for name, value in own.items() if json.dumps(value, sort_keys=True) != usual[name]
        ]
        label = run.spec.label + (f" [{', '.join(different)}]" if different else "")
        found[json.dumps(spec | {"seed": first_seed}, sort_keys=True)][label].append(_outcome(run))
    short = _short_names(list(found))
    return {short[cell]: {label: _mean(outcomes) for label, outcomes in arms.items()} for cell, arms in found.items()}


def _outcome(run: Run) -> Outcome:
    metrics = run.summary["metrics"]
    output = metrics.get("output_throughput", {}).get("value")
    if not output:
        raise UserError(f"{run.path}: no output throughput was measured: leave the run out")
    good, rate = (metrics.get(name, {}).get("value") for name in ("goodput", "request_throughput"))
    return Outcome(output, None if good is None or not rate else good / rate)


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    good = [outcome.good for outcome in outcomes if outcome.good is not None]
    return Outcome(fmean(outcome.output_tok_s for outcome in outcomes), fmean(good) if good else None)


def _short_names(cells: Sequence[str]) -> dict[str, str]:
    """Each cell by those of its fields in which cells differ."""
    specs = [json.loads(cell) for cell in cells]
    differing = [name for name in specs[0] if len({json.dumps(spec[name]) for spec in specs}) > 1] if specs else []
    return {
        cell: " ".join(str(spec[name]) for name in differing) or "one cell"
        for cell, spec in zip(cells, specs, strict=True)
    }


def regrets(cells: Cells, hindsight: Sequence[str] = (), reference: str = "v1") -> list[Regret]:
    """The regret of every policy, the least mean first.

    The best in hindsight is the best of `hindsight` in a cell, of all policies where none is named. UserError where
    a cell has none of them.
    """
    losses: dict[str, list[tuple[float, str, Outcome]]] = defaultdict(list)
    for cell, arms in cells.items():
        known = [outcome.output_tok_s for name, outcome in arms.items() if not hindsight or name in hindsight]
        if not known:
            raise UserError(f"{cell}: none of {', '.join(hindsight)} ran there: name others with --hindsight")
        for name, outcome in arms.items():
            losses[name].append((1 - outcome.output_tok_s / max(known), cell, outcome))
    rows = [_regret(policy, told, cells, reference) for policy, told in losses.items()]
    return sorted(rows, key=lambda row: row.mean)


def _regret(policy: str, told: Sequence[tuple[float, str, Outcome]], cells: Cells, reference: str) -> Regret:
    lost = [loss for loss, _, _ in told]
    worst, worst_in, _ = max(told, key=lambda one: one[0])
    gains = [
        outcome.output_tok_s / cells[cell][reference].output_tok_s - 1
        for _, cell, outcome in told
        if reference in cells[cell]
    ]
    good = [outcome.good for _, _, outcome in told if outcome.good is not None]
    return Regret(
        policy,
        len(told),
        fmean(lost),
        fmean(max(0.0, loss) for loss in lost),
        weighted_percentile(np.sort(np.array(lost)), None, 95),
        worst,
        worst_in,
        fmean(gains) if gains else None,
        sum(gain < -BELOW for gain in gains) / len(gains) if gains else None,
        fmean(good) if good else None,
    )
