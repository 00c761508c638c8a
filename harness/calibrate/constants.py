"""`bench calibrate`: from the step logs of runs to the step-time constants of their machine and model."""

from __future__ import annotations

import hashlib
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
    Mixed,
    line,
    mixed,
)
from harness.core.errors import UserError
from harness.runs.run import Run, load_run
from harness.runs.tables import read_table
from policies.core import StepCosts

_PREFILL_RUNS = "add runs under eb:k=… or v0, whose prefill steps hold no decode (docs/calibrating.md)"
_DECODE_RUNS = "add runs under eb:k=… or v0 at several --concurrency (docs/calibrating.md)"
_MIXED_RUNS = "add runs under v1 at several --concurrency (docs/calibrating.md)"
# Step logs count whole nanoseconds.
_SHORTEST_S = 1e-9
_COLUMNS = ("duration_s", "prefill_tokens", "decode_requests", "footprint_sum", "producing")


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of step: the fit, the loads that it covers and what to mistrust.

    `covers` maps what varied (tokens, requests, decode ratio) to its least and most; `constants` map a symbol to
    its value and the half width of its 95 % interval.
    """

    found: Fitted
    constants: dict[str, tuple[float, float]]
    covers: dict[str, tuple[float, float]]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON values; an interval that is unknown is null."""
        return {
            "constants": {
                name: {"value": value, "half_width": half if np.isfinite(half) else None}
                for name, (value, half) in self.constants.items()
            },
            "covers": {name: list(ends) for name, ends in self.covers.items()},
            "steps": self.found.steps,
            "trimmed": self.found.trimmed,
            "r2": self.found.r2,
            "spread": self.found.spread,
            "explained": self.found.explained,
            "bend": self.found.bend,
            "bend_s": self.found.bend_s,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class Origin:
    """What the runs have in common, and which they are (`<directory> <digest of its step log>`).

    `gpu` is the GPU's name, `profile` what its profile is read by: the same, or a file's path.
    """

    kind: str
    gpu: str
    model: str
    engine: str
    machine: str
    kv_tokens: int
    runs: tuple[str, ...]
    profile: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """The constants that policies and the linear cost model take, and how each came about.

    `mixed` is None where mixed steps were too few or too alike: the form is additive then, and `why_additive`
    says so.
    """

    origin: Origin
    costs: StepCosts
    prefill: Part
    decode: Part
    mixed: Part | None
    why_additive: str


def calibrate(paths: Sequence[Path], kv_tokens: int | None = None) -> Calibration:
    """Fits model 1 to the steps of these runs, which must be of one kind, machine, model and engine version.

    `kv_tokens` stands in where the runs do not tell the capacity. Raises UserError where a run has no step log,
    the runs do not belong together, or a constant cannot be told.
    """
    runs = _distinct([load_run(path) for path in paths])
    origin = _origin(runs, kv_tokens)
    seconds, prefill, decodes, context = _steps(runs)
    only_prefill, only_decode = (prefill > 0) & (decodes == 0), (prefill == 0) & (decodes > 0)
    both = (prefill > 0) & (decodes > 0)
    for which, name, remedy in (
        (only_prefill, "prefill-only", _PREFILL_RUNS),
        (only_decode, "decode-only", _DECODE_RUNS),
    ):
        if which.sum() < LEAST_STEPS:
            raise UserError(
                f"{int(which.sum())} {name} steps in these runs, and {LEAST_STEPS} are the least that tell their "
                f"cost: {remedy}"
            )
    alpha_beta_p = line(prefill[only_prefill], seconds[only_prefill], "β_p", _PREFILL_RUNS)
    alpha_beta_d = line(decodes[only_decode], seconds[only_decode], "β_d", _DECODE_RUNS)
    (alpha_p, beta_p), (alpha_d, beta_d) = alpha_beta_p.coefficients, alpha_beta_d.coefficients
    if alpha_d < _SHORTEST_S:
        raise UserError(
            f"α_d comes out as {alpha_d:.3g} s, and with α_d = 0 the threshold θ0 would be 1: decode steps that hold "
            f"{decodes[only_decode].min():g} to {decodes[only_decode].max():g} requests do not show it: add runs under "
            "eb:k=… or v0 at a low --concurrency (docs/calibrating.md)"
        )
    part_p = _line_part(alpha_beta_p, "p", "tokens", prefill[only_prefill], _PREFILL_RUNS)
    part_d = _line_part(alpha_beta_d, "d", "requests", decodes[only_decode], _DECODE_RUNS)
    known = only_decode & (context > 0)
    if known.any():
        # β_d hides the reading of the KV cache, so it holds at about these contexts.
        low, high = np.percentile(context[known] / decodes[known], (5, 95)).tolist()
        part_d = replace(part_d, covers=part_d.covers | {"context a request (p5, p95)": (low, high)})
    how = _mixed_part(prefill[both], decodes[both], seconds[both], alpha_p)
    if how is None:
        count = int(both.sum())
        why = f"{count} mixed steps" if count < 2 * LEAST_STEPS else f"{count} mixed steps too alike to tell a, b apart"
        alpha_mb, a, b, c = max(alpha_p, alpha_d), beta_p, beta_d - beta_p, 0.0
        part_mb, why_additive = None, f"{why}: their cost is assumed additive: {_MIXED_RUNS}"
    else:
        one, part_mb = how
        alpha_mb, a, b, c, why_additive = one.alpha_s, one.a_s, one.b_s, one.c_s, ""
    return Calibration(
        origin=origin,
        costs=StepCosts(alpha_p, beta_p, alpha_d, beta_d, alpha_mb, a, b, c),
        prefill=part_p,
        decode=part_d,
        mixed=part_mb,
        why_additive=why_additive,
    )


def _distinct(runs: list[Run]) -> list[Run]:
    """Each run once, though it was named twice."""
    return list({run.path.resolve(): run for run in runs}.values())


def _origin(runs: list[Run], kv_tokens: int | None) -> Origin:
    told = [_told(run) for run in runs]
    for name in told[0]:
        values = list(dict.fromkeys(one[name] for one in told))
        if len(values) > 1:
            raise UserError(
                f"these runs differ in {name} ({', '.join(map(str, values[:4]))}): a profile is for one: "
                "name the runs of one of them"
            )
    first = told[0]
    capacities = {run.path: capacity for run in runs if (capacity := _capacity(run))}
    # A cache made small on purpose says nothing of the machine.
    own = {path: size for path, size in capacities.items() if _spec_of(runs, path).kv_tokens is None} or capacities
    notes = []
    if kv_tokens is None:
        if not own:
            raise UserError("none of these runs tells its KV capacity: give it with --kv-tokens")
        kv_tokens = max(own.values())
        if len(set(own.values())) > 1:
            notes.append(f"the runs' KV capacities differ ({min(own.values()):,} to {kv_tokens:,}): the largest stands")
        elif all(run.spec.kv_tokens is not None for run in runs):
            notes.append(f"every run had --kv-tokens: the profile's {kv_tokens:,} are theirs, not the machine's own")
    if first["kind"] != "measured":
        notes.append(f"these runs are {first['kind']}: the constants are those of a model, not of a machine")
    return Origin(
        kind=first["kind"],
        gpu=first["GPU"],
        model=first["model"].rstrip("/"),
        engine=first["engine"],
        machine=first["machine"],
        kv_tokens=kv_tokens,
        runs=tuple(f"{run.path.resolve().name} steps:{_digest(run.path)}" for run in runs),
        profile=runs[0].profile,
        notes=tuple(notes),
    )


def _told(run: Run) -> dict[str, str]:
    """What runs of one calibration must agree in."""
    provenance = run.manifest["provenance"]
    host = provenance.get("host", {})
    engine = " ".join(str(provenance[key]) for key in ("engine", "engine_version") if provenance.get(key))
    # A virtual run costs the same on every host.
    machine = f"{host.get('cpu', 'unknown')}, {host.get('cores', '?')} cores" if run.kind == "measured" else "any"
    return {
        "kind": run.kind,
        "GPU": run.spec.gpu,
        "model": run.spec.model,
        "engine": engine or "unknown",
        "machine": machine,
    }


def _capacity(run: Run) -> int | None:
    """KV tokens as the engine had them."""
    provenance = run.manifest["provenance"]
    for key, size in (("kv_cache_tokens", 1), ("kv_blocks", run.spec.block_size)):
        value = provenance.get(key)
        if type(value) is int and value > 0:
            return value * size
    return run.spec.kv_tokens


def _spec_of(runs: list[Run], path: Path) -> Any:
    return next(run.spec for run in runs if run.path == path)


def _digest(path: Path) -> str:
    with (path / "steps.parquet").open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


def _steps(runs: list[Run]) -> tuple[Floats, Floats, Floats, Floats]:
    """Seconds, prefill tokens, decodes and Σ of contexts (0 where unknown) of every step that took time."""
    parts: list[list[Floats]] = []
    for run in runs:
        table = read_table(run.path, "steps", _COLUMNS)
        if not table.num_rows:
            raise UserError(
                f"{run.path}: has no step log ({run.spec.engine}), so nothing can be fitted to it: run with an engine "
                "that records its steps (--engine vllm)"
            )
        parts.append([_floats(table, name) for name in _COLUMNS])
    seconds, prefill, decodes, footprint, producing = (np.concatenate(one) for one in zip(*parts, strict=True))
    # What stands in the log is after the step: each request has grown by its token.
    context = np.where(producing == decodes, footprint - producing, 0.0)
    took = seconds > 0
    return seconds[took], prefill[took], decodes[took], context[took]


def _floats(table: Any, name: str) -> Floats:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(table.column(name), 0).to_numpy(), dtype=np.float64)


def _line_part(found: Fitted, letter: str, unit: str, load: Floats, remedy: str) -> Part:
    constants = dict(
        zip((f"α_{letter}", f"β_{letter}"), zip(found.coefficients, found.half_widths, strict=True), strict=True)
    )
    least, most = float(load.min()), float(load.max())
    warnings = _warnings(found, constants, remedy)
    if most < LEAST_RATIO * least:
        warnings.insert(0, f"{unit} from {least:,.0f} to {most:,.0f} only: too alike to tell β_{letter} well: {remedy}")
    if found.coefficients[0] == 0:
        warnings.append(f"α_{letter} came out below 0 and is held at 0: {remedy}")
    return Part(found, constants, {unit: (least, most)}, tuple(warnings))


def _warnings(found: Fitted, constants: dict[str, tuple[float, float]], remedy: str) -> list[str]:
    warnings = []
    if found.steps < FEW_STEPS:
        warnings.append(f"{found.steps} steps are few (below {FEW_STEPS}): {remedy}")
    for name, (value, half) in constants.items():
        # b and c may be about 0; what must be above 0 must be seen to be.
        if half > abs(value) and value and name not in ("b", "c"):
            warnings.append(f"{name} is less certain than it is large: {remedy}")
    if found.trimmed > 0.05 * found.steps:
        warnings.append(f"{found.trimmed:,} of {found.steps:,} steps were outliers and left out: something disturbs")
    if abs(found.bend - 1) > 0.1:
        warnings.append(
            f"this cost is no straight line: the fit gives {100 * found.bend:.0f} % of the measured time of steps of "
            f"about {found.bend_s * 1e3:.3g} ms: calibrate with loads like those to be run"
        )
    if abs(found.explained - 1) > 0.05:
        warnings.append(
            f"the fit gives {100 * found.explained:.0f} % of the measured time of these steps: its outliers count there"
        )
    return warnings


def _mixed_part(prefill: Floats, decodes: Floats, seconds: Floats, alpha_p: float) -> tuple[Mixed, Part] | None:
    one = mixed(prefill, decodes, seconds, alpha_p) if len(seconds) >= 2 * LEAST_STEPS else None
    if one is None:
        return None
    halves = dict(zip(one.free, one.found.half_widths, strict=True))
    values = zip(MIXED_CONSTANTS, (one.alpha_s, one.a_s, one.b_s, one.c_s), strict=True)
    constants = {name: (value, halves.get(name, 0.0)) for name, value in values}
    ratio = decodes / (prefill + decodes)
    covers = {
        "tokens": (float((prefill + decodes).min()), float((prefill + decodes).max())),
        "decode ratio r": (float(ratio.min()), float(ratio.max())),
    }
    warnings = [one.held] if one.held else []
    if covers["decode ratio r"][1] - covers["decode ratio r"][0] < 0.1:
        warnings.append(f"r from {ratio.min():.2f} to {ratio.max():.2f} only: β_MB beyond is a guess: {_MIXED_RUNS}")
    return one, Part(one.found, constants, covers, tuple(warnings + _warnings(one.found, constants, _MIXED_RUNS)))
