"""`bench calibrate`: from the step logs of runs to the step-time constants of their machine and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from harness.calibrate.fit import (
    FEW_STEPS,
    LEAST_RATIO,
    LEAST_STEPS,
    MIXED_CONSTANTS,
    Fitted,
    Floats,
    MixedFit,
    fit_line,
    fit_mixed,
)
from harness.calibrate.origin import Origin, origin_of
from harness.calibrate.steps import Steps, steps_of
from harness.core.errors import UserError
from harness.runs.run import Run, load_run
from policies.core import StepCosts

_PREFILL_RUNS = "add runs under eb:k=… or v0, whose prefill steps hold no decode (docs/calibrating.md)"
_DECODE_RUNS = "add runs under eb:k=… or v0 at several --concurrency (docs/calibrating.md)"
_MIXED_RUNS = "add runs under v1 at several --concurrency (docs/calibrating.md)"
# Step logs count whole nanoseconds.
_SHORTEST_S = 1e-9


@dataclass(frozen=True, slots=True)
class StepKindFit:
    """The fit of one kind of step, the loads that it covers and what to mistrust.

    `covers` maps what varied (tokens, requests, decode ratio) to its least and most; `constants` map a symbol to
    its value and the half width of its 95 % interval.
    """

    fitted: Fitted
    constants: dict[str, tuple[float, float]]
    covers: dict[str, tuple[float, float]]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fit as JSON values; an interval that is unknown is null."""
        return {
            "constants": {
                name: {"value": value, "half_width": half if np.isfinite(half) else None}
                for name, (value, half) in self.constants.items()
            },
            "covers": {name: list(ends) for name, ends in self.covers.items()},
            "steps": self.fitted.steps,
            "trimmed": self.fitted.trimmed,
            "r2": self.fitted.r2,
            "spread": self.fitted.spread,
            "explained": self.fitted.explained,
            "bend": self.fitted.bend,
            "bend_s": self.fitted.bend_s,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Calibration:
    """The constants that policies and the linear cost model take, and how each came about.

    `mixed` is None where mixed steps were too few or too alike: the form is additive then, and `why_additive`
    says so.
    """

    origin: Origin
    costs: StepCosts
    prefill: StepKindFit
    decode: StepKindFit
    mixed: StepKindFit | None
    why_additive: str


def calibrate(paths: Sequence[Path], kv_tokens: int | None = None) -> Calibration:
    """Fits model 1 to the steps of these runs, which must be of one kind, machine, model and engine version.

    `kv_tokens` stands in where the runs do not tell the capacity. Raises UserError where a run has no step log,
    the runs do not belong together, or a constant cannot be told.
    """
    runs = _distinct([load_run(path) for path in paths])
    origin = origin_of(runs, kv_tokens)
    steps = steps_of(runs)
    prefill, decode = steps.that(prefill=True, decode=False), steps.that(prefill=False, decode=True)
    both = steps.that(prefill=True, decode=True)
    _refuse_few(prefill, "prefill-only", _PREFILL_RUNS)
    _refuse_few(decode, "decode-only", _DECODE_RUNS)
    line_p = fit_line(prefill.prefill_tokens, prefill.seconds, "β_p", _PREFILL_RUNS)
    line_d = fit_line(decode.decodes, decode.seconds, "β_d", _DECODE_RUNS)
    (alpha_p, beta_p), (alpha_d, beta_d) = line_p.coefficients, line_d.coefficients
    _refuse_no_alpha_d(alpha_d, decode)
    mixed = fit_mixed(both.prefill_tokens, both.decodes, both.seconds, alpha_p) if _enough_mixed(both) else None
    if mixed is None:
        alpha_mb, a, b, c = max(alpha_p, alpha_d), beta_p, beta_d - beta_p, 0.0
    else:
        alpha_mb, a, b, c = mixed.alpha_s, mixed.a_s, mixed.b_s, mixed.c_s
    return Calibration(
        origin=origin,
        costs=StepCosts(alpha_p, beta_p, alpha_d, beta_d, alpha_mb, a, b, c),
        prefill=_line_report(line_p, "p", "tokens", prefill.prefill_tokens, _PREFILL_RUNS),
        decode=_with_contexts(_line_report(line_d, "d", "requests", decode.decodes, _DECODE_RUNS), decode),
        mixed=None if mixed is None else _mixed_report(mixed, both),
        why_additive=_why_additive(both) if mixed is None else "",
    )


def _distinct(runs: list[Run]) -> list[Run]:
    """Each run once, though it was named twice."""
    return list({run.path.resolve(): run for run in runs}.values())


def _refuse_few(steps: Steps, kind: str, remedy: str) -> None:
    if len(steps) < LEAST_STEPS:
        raise UserError(
            f"{len(steps)} {kind} steps in these runs, and {LEAST_STEPS} are the least that tell their cost: {remedy}"
        )


def _refuse_no_alpha_d(alpha_d_s: float, steps: Steps) -> None:
    if alpha_d_s < _SHORTEST_S:
        raise UserError(
            f"α_d comes out as {alpha_d_s:.3g} s, and with α_d = 0 the threshold θ0 would be 1: decode steps that hold "
            f"{steps.decodes.min():g} to {steps.decodes.max():g} requests do not show it: add runs under "
            "eb:k=… or v0 at a low --concurrency (docs/calibrating.md)"
        )


def _enough_mixed(steps: Steps) -> bool:
    return len(steps) >= 2 * LEAST_STEPS


def _why_additive(steps: Steps) -> str:
    """Why the cost of mixed steps is no fit of its own."""
    why = f"{len(steps)} mixed steps" + (" too alike to tell a, b apart" if _enough_mixed(steps) else "")
    return f"{why}: their cost is assumed additive: {_MIXED_RUNS}"


def _line_report(fitted: Fitted, letter: str, unit: str, load: Floats, remedy: str) -> StepKindFit:
    """The fit of α + β·load with its constants named, the loads that it covers and what to mistrust."""
    alpha, beta = zip(fitted.coefficients, fitted.half_widths, strict=True)
    constants = {f"α_{letter}": alpha, f"β_{letter}": beta}
    least, most = float(load.min()), float(load.max())
    warnings = _warnings(fitted, constants, remedy)
    if most < LEAST_RATIO * least:
        warnings.insert(0, f"{unit} from {least:,.0f} to {most:,.0f} only: too alike to tell β_{letter} well: {remedy}")
    if fitted.coefficients[0] == 0:
        warnings.append(f"α_{letter} came out below 0 and is held at 0: {remedy}")
    return StepKindFit(fitted, constants, {unit: (least, most)}, tuple(warnings))


def _with_contexts(decode: StepKindFit, steps: Steps) -> StepKindFit:
    """With its requests' contexts where they are known: β_d hides the reading of the KV cache, so it holds there."""
    known = steps.of_known_context()
    if not len(known):
        return decode
    low, high = np.percentile(known.context / known.decodes, (5, 95)).tolist()
    return replace(decode, covers=decode.covers | {"context a request (p5, p95)": (low, high)})


def _mixed_report(mixed: MixedFit, steps: Steps) -> StepKindFit:
    """The same of mixed steps; what was held and not fitted has no interval."""
    halves = dict(zip(mixed.free, mixed.fitted.half_widths, strict=True))
    values = zip(MIXED_CONSTANTS, (mixed.alpha_s, mixed.a_s, mixed.b_s, mixed.c_s), strict=True)
    constants = {name: (value, halves.get(name, 0.0)) for name, value in values}
    tokens = steps.prefill_tokens + steps.decodes
    ratio = steps.decodes / tokens
    lowest_r, highest_r = float(ratio.min()), float(ratio.max())
    covers = {"tokens": (float(tokens.min()), float(tokens.max())), "decode ratio r": (lowest_r, highest_r)}
    warnings = [mixed.held] if mixed.held else []
    if highest_r - lowest_r < 0.1:
        warnings.append(f"r from {lowest_r:.2f} to {highest_r:.2f} only: β_MB beyond is a guess: {_MIXED_RUNS}")
    warnings += _warnings(mixed.fitted, constants, _MIXED_RUNS)
    return StepKindFit(mixed.fitted, constants, covers, tuple(warnings))


def _warnings(fitted: Fitted, constants: dict[str, tuple[float, float]], remedy: str) -> list[str]:
    warnings = []
    if fitted.steps < FEW_STEPS:
        warnings.append(f"{fitted.steps} steps are few (below {FEW_STEPS}): {remedy}")
    for name, (value, half) in constants.items():
        # b and c may be about 0; what must be above 0 must be seen to be.
        if half > abs(value) and value and name not in ("b", "c"):
            warnings.append(f"{name} is less certain than it is large: {remedy}")
    if fitted.trimmed > 0.05 * fitted.steps:
        warnings.append(f"{fitted.trimmed:,} of {fitted.steps:,} steps were outliers and left out: something disturbs")
    if abs(fitted.bend - 1) > 0.1:
        warnings.append(
            f"this cost is no straight line: the fit gives {100 * fitted.bend:.0f} % of the measured time of steps of "
            f"about {fitted.bend_s * 1e3:.3g} ms: calibrate with loads like those to be run"
        )
    if abs(fitted.explained - 1) > 0.05:
        warnings.append(
            f"the fit gives {100 * fitted.explained:.0f} % of the measured time of these steps: its outliers count "
            "there"
        )
    return warnings
