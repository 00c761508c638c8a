"""What a calibration leaves: a profile file that `--gpu` takes, and the report on the terminal."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.calibrate.constants import Calibration, StepKindFit
from harness.core.errors import UserError
from harness.core.text import spelled
from harness.profiles.figures import Gpu
from harness.profiles.files import load_gpu
from harness.profiles.toml_table import SMALLEST

# Of a text in a profile.
_LONGEST = 900


def document(calibration: Calibration) -> dict[str, Any]:
    """The calibration as JSON values."""
    return {
        "origin": dataclasses.asdict(calibration.origin),
        "constants": dataclasses.asdict(calibration.costs),
        "mixed_form": "additive" if calibration.mixed is None else "fitted",
        "why_additive": calibration.why_additive,
        **{name: None if fit is None else fit.to_dict() for name, fit in _by_kind(calibration).items()},
    }


def report(calibration: Calibration) -> list[str]:
    """The report: runs, then constants, loads and trust of each kind of step, then what to mistrust."""
    origin = calibration.origin
    lines = [f"{len(origin.runs)} {origin.kind} runs of {origin.model} on {origin.gpu}, {origin.engine}"]
    mistrust = list(origin.notes)
    for name, fit in _by_kind(calibration).items():
        if fit is not None:
            lines += [f"{name:8s}{constants_of(fit)}", f"        {loads_of(fit)}", f"        {trust_of(fit)}"]
            mistrust += [f"{name}: {warning}" for warning in fit.warnings]
    if calibration.why_additive:
        lines.append(f"mixed   {calibration.why_additive}")
    return lines + [f"  warning: {warning}" for warning in mistrust]


def _by_kind(calibration: Calibration) -> dict[str, StepKindFit | None]:
    return {"prefill": calibration.prefill, "decode": calibration.decode, "mixed": calibration.mixed}


def constants_of(fit: StepKindFit) -> str:
    """The constants with their intervals, milliseconds a step and microseconds a token or request."""
    shown = []
    for name, (value, half) in fit.constants.items():
        size, unit = (1e3, "ms") if name.startswith("α") else (1e6, "µs")
        shown.append(f"{name} {value * size:.4g} {unit}" + (f" ± {half * size:.2g}" if half else ""))
    return ", ".join(shown)


def loads_of(fit: StepKindFit) -> str:
    """How many steps over which loads."""
    ends = [f"{name} {_short(low)} … {_short(high)}" for name, (low, high) in fit.covers.items()]
    return f"{fit.fitted.steps:,} steps; {'; '.join(ends)}"


def trust_of(fit: StepKindFit) -> str:
    """How well the fit holds."""
    fitted = fit.fitted
    return (
        f"R² {fitted.r2:.4f}, spread at the same load {100 * fitted.spread:.2g} %, {fitted.trimmed:,} outliers left "
        f"out, {100 * fitted.explained:.4g} % of the measured time explained"
    )


def write_profile(calibration: Calibration, path: Path, label: str | None = None) -> None:
    """Write the profile file, which is never written over another one. Raises UserError."""
    if path.suffix != ".toml":
        raise UserError(f"--out {spelled(path)}: name a file that ends in .toml, as --gpu takes it")
    if os.path.lexists(path):
        raise UserError(f"--out {spelled(path)}: is there already and is not written over: name another file")
    text = profile_of(calibration, label)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UserError(f"--out {spelled(path)}: cannot be written ({error.strerror or error})") from None
    try:
        load_gpu(str(path))
    except UserError:
        path.unlink()
        raise


def profile_of(calibration: Calibration, label: str | None = None) -> str:
    """The profile as TOML: the data sheet where the runs' GPU has one, and the measured pair."""
    origin = calibration.origin
    gpu = _sheet_of(origin.profile)
    # A profile of the user's own has the machine in its label already.
    own = origin.gpu if origin.profile != origin.gpu else f"{origin.gpu} ({origin.machine})"
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    source = f"bench calibrate, {today}: {len(origin.runs)} {origin.kind} runs, {origin.engine}, machine: "
    source += origin.machine
    pair = f"pairs.{_text(origin.model)}"
    lines = [
        f"label = {_text(label or (gpu.label if gpu else own))}",
        "aliases = []",
        *(_figures(gpu) if gpu else ()),
        "",
        f"[{pair}]",
        f"kv_tokens = {{ value = {origin.kv_tokens}, source = {_text('the KV capacity of the runs below')} }}",
        "",
        f"[{pair}.steps]",
        *_steps(calibration, source),
        "",
        f"[{pair}.mixed]",
        *_mixed(calibration, source),
    ]
    return "\n".join(lines) + "\n"


def _steps(calibration: Calibration, source: str) -> list[str]:
    """The table of prefill-only and decode-only steps."""
    origin, costs = calibration.origin, calibration.costs
    about = [*_about("prefill", calibration.prefill), *_about("decode", calibration.decode)]
    return [
        'basis = "calibrated"',
        f"source = {_text(source)}",
        f"runs = {_texts(origin.runs)}",
        f"flags = {_texts([*origin.notes, *about])}",
        f"alpha_p_s = {_number(costs.alpha_p_s)}",
        f"beta_p_s_per_token = {_number(costs.beta_p_s)}",
        f"alpha_d_s = {_number(costs.alpha_d_s)}",
        f"beta_d_s_per_request = {_number(costs.beta_d_s)}",
    ]


def _mixed(calibration: Calibration, source: str) -> list[str]:
    """The table of mixed steps, fitted or additive."""
    costs, kind = calibration.costs, calibration.origin.kind
    if calibration.mixed is None:
        lines = ['form = "additive"', f"source = {_text(calibration.why_additive)}", "flags = []"]
    else:
        lines = [
            'form = "fitted"',
            f"source = {_text(source)}",
            f"flags = {_texts(_about('mixed', calibration.mixed))}",
            f"alpha_mb_s = {_number(costs.alpha_mb_s)}",
            f"a_s_per_token = {_number(costs.mixed_a_s)}",
            f"b_s_per_token = {_number(costs.mixed_b_s)}",
            f"c_s_per_token = {_number(costs.mixed_c_s)}",
        ]
    if kind != "measured":
        lines.append(f"degraded = {_text(f'fitted to {kind} steps, not to a machine')}")
    return lines


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _about(name: str, fit: StepKindFit) -> list[str]:
    return [f"{name}: {constants_of(fit)}; {loads_of(fit)}; {trust_of(fit)}", *fit.warnings]


def _sheet_of(name: str) -> Gpu | None:
    """The GPU of the runs where it is known and has a data sheet."""
    try:
        gpu = load_gpu(name)
    except UserError:
        return None
    return gpu if gpu.has_sheet else None


def _figures(gpu: Gpu) -> list[str]:
    """The figures of a data sheet with their sources."""
    lines = []
    for key in ("memory_gb", "bandwidth_tb_s", "dense_bf16_tflops", "attention", "attention_efficiency"):
        value, source = getattr(gpu, key), _text(gpu.sources[key].removeprefix("none: "))
        if value is None:
            lines.append(f"{key} = {{ none = {source} }}")
        else:
            shown = _text(value) if isinstance(value, str) else repr(value)
            lines.append(f"{key} = {{ value = {shown}, source = {source} }}")
    return lines


def _number(value: float) -> str:
    return "0.0" if abs(value) < SMALLEST else repr(float(f"{value:.9g}"))


def _text(value: str) -> str:
    # A JSON string is a TOML one.
    return json.dumps(spelled(value, _LONGEST), ensure_ascii=False)


def _texts(values: Any) -> str:
    return "[\n" + "".join(f"  {_text(value)},\n" for value in values) + "]"
