"""The one α that the gaps of both arms are held against."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.measure.fairness import COLUMNS, OVER_ALPHA, alpha_of
from harness.runs.run import Run

# Metrics that need an α, by what they count.
_OVER_ALPHA = {
    variant: {f"{name}{timed}{variant}" for name in OVER_ALPHA for timed in ("", "_time")} for variant in COLUMNS
}


@dataclass(frozen=True, slots=True)
class CommonAlpha:
    """The α that the gaps of both arms are held against, None without one; `without` are the metrics that need one."""

    alpha: float | None
    without: frozenset[str]
    note: str | None


def common_alpha(runs: Sequence[Run], alpha: float | None) -> CommonAlpha:
    """One α for all runs: the one given, else the one that runs have; none where they have several."""
    if alpha is not None:
        return CommonAlpha(alpha, frozenset(), None)
    own = sorted({own_alpha for run in runs if (own_alpha := alpha_of(run.spec)) is not None})
    if len(own) == 1:
        # A policy's own α bounds decode counts or KV footprints, and not both.
        unbounded = [variant for variant in COLUMNS if all(alpha_of(run.spec, variant) is None for run in runs)]
        return CommonAlpha(own[0], frozenset().union(*(_OVER_ALPHA[variant] for variant in unbounded)), None)
    note = None
    if own:
        listed = ", ".join(f"{own_alpha:g}" for own_alpha in own)
        note = f"the arms have α of {listed}: no {' or '.join(OVER_ALPHA)} without one --alpha for both"
    return CommonAlpha(None, frozenset().union(*_OVER_ALPHA.values()), note)
