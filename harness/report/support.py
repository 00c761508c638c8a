"""How far a simulated gain is to be believed: whether all cost models say the same, and how far off they were."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.runs.run import Run

SUPPORTED, LIKELY, DISAGREE = "sign supported", "likely", "models disagree"
WORDS = (SUPPORTED, LIKELY, DISAGREE)
# All models agree beyond so many points: of the published signs so many were then right (docs/fidelity.md).
CLEAR, AGREED = 5.0, 2.0
# 80 % of the errors of the mean of roofline and kernels against published gains lie within it, points: 6.8 and 8.1 are
# what docs/fidelity.md finds, without and with the experiment that nobody can run again.
BAND = 10.0
_OF_THE_BAND = ("roofline", "kernels")
_KEYS = {
    "output_throughput": "value",
    "ttft_s": "mean",
    "tpot_s": "mean",
    "output_throughput_steady": "value",
    "ttft_s_steady": "mean",
    "tpot_s_steady": "mean",
}


@dataclass(frozen=True, slots=True)
class Support:
    """A change under each cost model, %; the word that they allow; and the band that published gains suggest, %.

    `band` is None without roofline and kernels, and of latencies, whose published changes were not scored.
    """

    changes: dict[str, float]
    word: str
    band: tuple[float, float] | None

    def to_dict(self) -> dict[str, Any]:
        """The support as the JSON document has it."""
        return {"changes_percent": self.changes, "word": self.word, "band_percent": self.band and list(self.band)}


def support_of(changes: Mapping[str, float], of_throughput: bool = True) -> Support:
    """What changes by cost model allow: three must agree beyond 5 points, two or three beyond 2 for `likely`."""
    least = min(map(abs, changes.values()))
    agree = len({math.copysign(1, change) for change in changes.values()}) == 1 and least > AGREED
    word = DISAGREE
    if agree:
        word = SUPPORTED if len(changes) > 2 and least > CLEAR else LIKELY
    band = None
    if of_throughput and all(model in changes for model in _OF_THE_BAND):
        middle = sum(changes[model] for model in _OF_THE_BAND) / len(_OF_THE_BAND)
        band = (middle - BAND, middle + BAND)
    return Support(dict(changes), word, band)


def supports(pairs: Sequence[tuple[Run, Run]]) -> dict[str, Support]:
    """By metric the support of B against A over simulated pairs; empty where a run was not held against others."""
    if not all(isinstance(run.manifest.get("beside"), dict) for pair in pairs for run in pair):
        return {}
    found = {}
    for metric in _KEYS:
        values = [(_values(a, metric), _values(b, metric)) for a, b in pairs]
        models = set.intersection(*({*a} & {*b} for a, b in values))
        changes = {model: _change([(a[model], b[model]) for a, b in values]) for model in sorted(models)}
        changes = {model: change for model, change in changes.items() if math.isfinite(change)}
        if changes:
            found[metric] = support_of(changes, metric.startswith("output_throughput"))
    return found


def _values(run: Run, metric: str) -> dict[str, float]:
    """The metric by cost model: the run's own from its summary, the others' from beside it."""
    own = run.manifest["provenance"].get("cost_model", {}).get("name")
    value = run.summary.get("metrics", {}).get(metric, {}).get(_KEYS[metric])
    told = {model: values.get(metric) for model, values in run.manifest["beside"].items()}
    return {str(model): float(one) for model, one in {**told, own: value}.items() if one is not None and one > 0}


def _change(pairs: Sequence[tuple[float, float]]) -> float:
    """The change of the means of B against those of A, %."""
    a, b = (math.fsum(values) for values in zip(*pairs, strict=True))
    return 100 * (b / a - 1)
