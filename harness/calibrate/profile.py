"""What a calibration leaves: a profile file that `--gpu` takes, and the report on the terminal."""

from __future__ import annotations

import dataclasses
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.calibrate.constants import Calibration, Part
from harness.core.errors import UserError
from harness.core.text import spelled
from harness.profiles.files import Gpu, load_gpu
from harness.profiles.toml_table import SMALLEST

# Of a text in a profile.
_LONGEST = 900


def document(found: Calibration) -> dict[str, Any]:
    """The calibration as JSON values."""
    parts = {"prefill": found.prefill, "decode": found.decode, "mixed": found.mixed}
    return {
        "origin": dataclasses.asdict(found.origin),
        "constants": dataclasses.asdict(found.costs),
        "mixed_form": "additive" if found.mixed is None else "fitted",
        "why_additive": found.why_additive,
        **{name: None if part is None else part.to_dict() for name, part in parts.items()},
    }


def lines(found: Calibration) -> list[str]:
    """The report: runs, then constants, loads and trust of each kind of step, then what to mistrust."""
    origin = found.origin
    told = [f"{len(origin.runs)} {origin.kind} runs of {origin.model} on {origin.gpu}, {origin.engine}"]
    mistrust = list(origin.notes)
    for name, part in (("prefill", found.prefill), ("decode", found.decode), ("mixed", found.mixed)):
        if part is not None:
            told += [f"{name:8s}{constants_of(part)}", f"        {loads_of(part)}", f"        {trust_of(part)}"]
            mistrust += [f"{name}: {warning}" for warning in part.warnings]
    if found.why_additive:
        told.append(f"mixed   {found.why_additive}")
    return told + [f"  warning: {warning}" for warning in mistrust]


def constants_of(part: Part) -> str:
    """The constants with their intervals, milliseconds a step and microseconds a token or request."""
    shown = []
    for name, (value, half) in part.constants.items():
        size, unit = (1e3, "ms") if name.startswith("α") else (1e6, "µs")
        shown.append(f"{name} {value * size:.4g} {unit}" + (f" ± {half * size:.2g}" if half else ""))
    return ", ".join(shown)


def loads_of(part: Part) -> str:
    """How many steps over which loads."""
    ends = [f"{name} {_short(low)} … {_short(high)}" for name, (low, high) in part.covers.items()]
    return f"{part.found.steps:,} steps; {'; '.join(ends)}"


def trust_of(part: Part) -> str:
    """How well the line holds."""
    one = part.found
    return (
        f"R² {one.r2:.4f}, spread at the same load {100 * one.spread:.2g} %, {one.trimmed:,} outliers left out, "
        f"{100 * one.explained:.4g} % of the measured time explained"
    )


def write_profile(found: Calibration, path: Path, label: str | None = None) -> None:
    """Write the profile file, which is never written over another one. Raises UserError."""
    if path.suffix != ".toml":
        raise UserError(f"--out {spelled(path)}: name a file that ends in .toml, as --gpu takes it")
    if os.path.lexists(path):
        raise UserError(f"--out {spelled(path)}: is there already and is not written over: name another file")
    text = profile_of(found, label)
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


def profile_of(found: Calibration, label: str | None = None) -> str:
    """The profile as TOML: the data sheet where the runs' GPU has one, and the measured pair."""
    origin, costs = found.origin, found.costs
    gpu = _sheet_of(origin.profile)
    pair = f"pairs.{_text(origin.model)}"
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    source = f"bench calibrate, {today}: {len(origin.runs)} {origin.kind} runs, {origin.engine}, machine: "
    source += origin.machine
    # A profile of the user's own has the machine in its label already.
    own = origin.gpu if origin.profile != origin.gpu else f"{origin.gpu} ({origin.machine})"
    label = label or (gpu.label if gpu else own)
    out = [f"label = {_text(label)}", "aliases = []", *(_figures(gpu) if gpu else ())]
    out += [
        "",
        f"[{pair}]",
        f"kv_tokens = {{ value = {origin.kv_tokens}, source = {_text('the KV capacity of the runs below')} }}",
        "",
        f"[{pair}.steps]",
        'basis = "calibrated"',
        f"source = {_text(source)}",
        f"runs = {_texts(origin.runs)}",
        f"flags = {_texts([*origin.notes, *_about('prefill', found.prefill), *_about('decode', found.decode)])}",
        f"alpha_p_s = {_number(costs.alpha_p_s)}",
        f"beta_p_s_per_token = {_number(costs.beta_p_s)}",
        f"alpha_d_s = {_number(costs.alpha_d_s)}",
        f"beta_d_s_per_request = {_number(costs.beta_d_s)}",
        "",
        f"[{pair}.mixed]",
    ]
    if found.mixed is None:
        out += ['form = "additive"', f"source = {_text(found.why_additive)}", "flags = []"]
    else:
        out += [
            'form = "fitted"',
            f"source = {_text(source)}",
            f"flags = {_texts(_about('mixed', found.mixed))}",
            f"alpha_mb_s = {_number(costs.alpha_mb_s)}",
            f"a_s_per_token = {_number(costs.mixed_a_s)}",
            f"b_s_per_token = {_number(costs.mixed_b_s)}",
            f"c_s_per_token = {_number(costs.mixed_c_s)}",
        ]
    if origin.kind != "measured":
        out.append(f"degraded = {_text(f'fitted to {origin.kind} steps, not to a machine')}")
    return "\n".join(out) + "\n"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _about(name: str, part: Part) -> list[str]:
    return [f"{name}: {constants_of(part)}; {loads_of(part)}; {trust_of(part)}", *part.warnings]


def _sheet_of(name: str) -> Gpu | None:
    """The GPU of the runs where it is known and has a data sheet."""
    try:
        gpu = load_gpu(name)
    except UserError:
        return None
    return gpu if gpu.has_sheet else None


def _figures(gpu: Gpu) -> list[str]:
    out = []
    for key in ("memory_gb", "bandwidth_tb_s", "dense_bf16_tflops", "attention", "attention_efficiency"):
        value, source = getattr(gpu, key), _text(gpu.sources[key].removeprefix("none: "))
        if value is None:
            out.append(f"{key} = {{ none = {source} }}")
        else:
            shown = _text(value) if isinstance(value, str) else repr(value)
            out.append(f"{key} = {{ value = {shown}, source = {source} }}")
    return out


def _number(value: float) -> str:
    return "0.0" if abs(value) < SMALLEST else repr(float(f"{value:.9g}"))


def _text(value: str) -> str:
    # A JSON string is a TOML one.
    return json.dumps(spelled(value, _LONGEST), ensure_ascii=False)


def _texts(values: Any) -> str:
    return "[\n" + "".join(f"  {_text(one)},\n" for one in values) + "]"
