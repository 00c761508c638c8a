"""Profiles as they lie in TOML files: GPUs, models, and the step-time fits of their pairs, found and checked."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.text import nearest, shown, spelled
from harness.profiles.figures import Fit, Gpu, Model, Price
from harness.profiles.linear import lowest_beta_mb
from harness.profiles.roofline import flops_of_beta
from harness.profiles.toml_table import Table, read_toml
from policies.core import StepCosts

FOLDER = Path(__file__).parent / "gpus"
MODELS = "models"
# What has a price, and where it stands: an hour of a GPU in its file, a token in its model's table.
GPU_HOUR = "gpu_hour"
TOKEN_PRICES = ("prompt_token", "output_token")
_DATE = re.compile(r"\d{4}-(0[1-9]|1[0-2])(-\d{2})?")
_CURRENCY = re.compile(r"[A-Z]{3}")
ATTENTION = ("fa2", "fa3", "b300")
_DEAREST = 1e6  # of anything that is priced
# What a data sheet tells, and what a profile with measured pairs alone goes without.
_SHEET = ("memory_gb", "bandwidth_tb_s", "dense_bf16_tflops", "attention", "attention_efficiency")
_LONGEST_S = 10.0  # of a step's constants
ASSUMED_MIXED = "the cost of mixed steps of this pair is assumed, not measured (no published fit)"


def gpu_names() -> tuple[str, ...]:
    """The GPUs that come with the project, sorted."""
    return _gpus_in(FOLDER)


@functools.cache
def _gpus_in(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.toml") if path.stem != MODELS))


def model_names() -> tuple[str, ...]:
    """The models that come with the project, by full id, sorted."""
    return tuple(sorted(_models()))


def load_gpu(name: str) -> Gpu:
    """A GPU by name or alias (case, spaces and dashes do not count), or from a file that ends in .toml."""
    if name.endswith(".toml"):
        return _gpu_file(Path(name))
    names, plain = gpu_names(), _plain(name)
    if plain in names:
        return known_gpu(plain)
    for known in names:
        if plain in map(_plain, known_gpu(known).aliases):
            return known_gpu(known)
    if plain == "cpu":
        raise UserError(
            "--gpu cpu is real vLLM on this machine's processor: it goes with --engine vllm; simulate a GPU"
        )
    raise UserError(
        f"no GPU named {name!r}{nearest(plain, names)} Use one of {', '.join(names)} or a profile file (.toml)"
    )


def load_model(name: str) -> Model:
    """A model by its full id (`Qwen/Qwen3-8B`) or the last part of it, in any case."""
    models = _models()
    full_name = spelled_as(name, models)
    if full_name:
        return models[full_name]
    candidates = (*models, *(full.rpartition("/")[2] for full in models))
    raise UserError(f"no model named {name!r}{nearest(name, candidates)} Use one of {', '.join(models)}")


def spelled_as(name: str, models: Iterable[str]) -> str | None:
    """The model that a name means, by its full id or its last part in any case; None where it is none of these."""
    plain = name.rstrip("/").lower()
    return next((full for full in models if plain in (full.lower(), full.rpartition("/")[2].lower())), None)


def _plain(name: str) -> str:
    """A GPU's name in small letters and digits, its maker left out."""
    return re.sub(r"[^a-z0-9]", "", name.lower()).removeprefix("nvidia").removeprefix("geforce")


@functools.cache
def _models() -> dict[str, Model]:
    path = FOLDER / f"{MODELS}.toml"
    root = Table(path.name, read_toml(path))
    return {name: _model(name, root.table(name)) for name in root.values}


def _model(name: str, table: Table) -> Model:
    counts = {
        key: table.positive(key, int)
        for key in (
            "parameters",
            "embedding_parameters",
            "vocab_size",
            "hidden_size",
            "layers",
            "query_heads",
            "kv_heads",
            "head_size",
            "dtype_bytes",
            "max_model_len",
            "weights_bytes",
        )
    }
    model = Model(
        name=name,
        parameters_per_token=table.positive("parameters_per_token", float),
        moe=table.figure("moe", bool),
        sources=table.sources,
        prices=_prices(table, TOKEN_PRICES),
        **counts,
    )
    table.finish()
    return model


@functools.cache
def known_gpu(name: str) -> Gpu:
    """The GPU that comes with the project under this file name, checked, read once."""
    return _gpu_file(FOLDER / f"{name}.toml")


def _gpu_file(path: Path) -> Gpu:
    """The GPU of a profile file, checked; errors name the file as the user wrote it, or by its name alone."""
    root = Table(path.name if path.parent == FOLDER else spelled(path), read_toml(path))
    fits, kv_tokens = _pairs(root)
    sheet = _sheet(root, fits) if not fits or any(root.has(key) for key in _SHEET) else {}
    if not sheet:
        for model in (model for model in fits if model not in kv_tokens):
            key = f'pairs."{model}".kv_tokens'
            raise UserError(f"{root.where(key)} is missing: without memory_gb the profile must say it")
    gpu = Gpu(
        name=path.stem,
        label=root.get("label", str),
        aliases=root.strings("aliases"),
        sources=root.sources,
        fits=fits,
        kv_tokens=kv_tokens,
        prices=_prices(root, (GPU_HOUR,)),
        link_gb_s=root.positive("link_gb_s", float, 1e5, 1e-3) if root.has("link_gb_s") else None,
        **dict.fromkeys((*_SHEET, "flops")) | sheet,
    )
    root.finish()
    return gpu


def _pairs(root: Table) -> tuple[dict[str, Fit], dict[str, int]]:
    """The fits of the pairs by model, and the KV capacities, tokens, of those that say it."""
    fits: dict[str, Fit] = {}
    kv_tokens: dict[str, int] = {}
    if root.has("pairs"):
        pairs = root.table("pairs")
        for model in pairs.values:
            pair = pairs.table(model)
            if pair.has("kv_tokens"):
                kv_tokens[model] = pair.positive("kv_tokens", int, 1e9)
            if pair.has("steps") or pair.has("mixed"):
                fits[model] = _fit(pair)
            pair.finish()
    return fits, kv_tokens


def _prices(table: Table, names: tuple[str, ...]) -> dict[str, Price]:
    """The prices of a profile, each with currency, date and source; empty where it has none."""
    if not table.has("prices"):
        return {}
    prices = table.table("prices")
    known = {name: _price(prices.table(name)) for name in names if prices.has(name)}
    prices.finish()
    return known


def _price(table: Table) -> Price:
    price = Price(
        value=table.get("value", float),
        currency=table.get("currency", str),
        date=table.get("date", str, '`date = "YYYY-MM"`, when that was the price'),
        source=table.get("source", str, '`source = "…"`, whose price it is'),
    )
    if not 0 <= price.value <= _DEAREST:
        raise UserError(f"{table.where('value')} is {price.value:g}: it must be 0 to {_DEAREST:g}")
    if not _CURRENCY.fullmatch(price.currency):
        raise UserError(f"{table.where('currency')} is {shown(price.currency)}: write three letters, such as USD")
    if not _DATE.fullmatch(price.date):
        raise UserError(f"{table.where('date')} is {shown(price.date)}: write YYYY-MM or YYYY-MM-DD")
    if not price.source.strip():
        raise UserError(f"{table.where('source')} is empty: say whose price it is")
    table.finish()
    return price


def _sheet(root: Table, fits: Mapping[str, Fit]) -> dict[str, Any]:
    """The figures of a data sheet, all of them: a part of one would pass for a whole."""
    attention = root.figure("attention", str)
    if attention not in ATTENTION:
        raise UserError(f"{root.where('attention')} is {shown(attention)}: use one of {', '.join(ATTENTION)}")
    tflops, flops = _peak(root, fits)
    return {
        "memory_gb": root.positive("memory_gb", float, 1e5),
        "bandwidth_tb_s": root.positive("bandwidth_tb_s", float, 1e4, 1e-3),
        "dense_bf16_tflops": tflops,
        "flops": flops,
        "attention": attention,
        "attention_efficiency": root.positive("attention_efficiency", float, 1, 1e-3),
    }


def _peak(root: Table, fits: Mapping[str, Fit]) -> tuple[float | None, float | None]:
    """The dense bf16 peak as the data sheet has it (TFLOPS) and as the roofline uses it (FLOP/s)."""
    key = "dense_bf16_tflops"
    if not (root.has(key) and isinstance(root.values[key], dict) and "none" in root.values[key]):
        value = root.positive(key, float, 1e6, 1e-2)
        return value, value * 1e12
    table = root.table(key)
    root.sources[key] = f"none: {table.get('none', str)}"
    flops = None
    if table.has("inferred_from"):
        model = load_model(table.get("inferred_from", str))
        if model.moe or model.name not in fits:
            raise UserError(
                f"{table.where('inferred_from')} is {model.name}: name a dense model with steps in this file"
            )
        flops = flops_of_beta(fits[model.name].costs.beta_p_s, model.parameters_per_token)
        root.sources[key] += f"; F inferred from the β_p of {model.name}"
    table.finish()
    return None, flops


def _fit(pair: Table) -> Fit:
    """The fit of a pair: its constants checked, and where they are from."""
    steps, mixed = pair.table("steps"), pair.table("mixed")
    basis, form = steps.get("basis", str), mixed.get("form", str)
    if basis not in ("published", "calibrated"):
        raise UserError(f"{steps.where('basis')} is {shown(basis)}: use published or calibrated")
    if form not in ("fitted", "additive"):
        raise UserError(f"{mixed.where('form')} is {shown(form)}: use fitted or additive")
    alpha_p, beta_p, alpha_d, beta_d = _line_constants(steps)
    if form == "additive":
        alpha_mb, a, b, c = max(alpha_p, alpha_d), beta_p, beta_d - beta_p, 0.0
    else:
        # The publication does not fit α_MB: it defaults to α_p there.
        alpha_mb = mixed.seconds("alpha_mb_s", _LONGEST_S) if mixed.has("alpha_mb_s") else alpha_p
        a, b, c = (mixed.seconds(f"{letter}_s_per_token", _LONGEST_S) for letter in "abc")
    if alpha_mb < 0 or lowest_beta_mb(a, b, c) <= 0:
        raise UserError(f"{mixed.where('a_s_per_token')}: β_MB(r) must be above 0 for r in [0, 1]: recalibrate")
    degraded = [ASSUMED_MIXED] if form == "additive" else []
    if mixed.has("degraded"):
        degraded.append(mixed.get("degraded", str))
    fit = Fit(
        basis="published" if basis == "published" else "calibrated",
        costs=StepCosts(alpha_p, beta_p, alpha_d, beta_d, alpha_mb, a, b, c),
        mixed_form="fitted" if form == "fitted" else "additive",
        sources={"steps": steps.get("source", str), "mixed": mixed.get("source", str)},
        flags=steps.strings("flags") + mixed.strings("flags"),
        degraded=tuple(degraded),
        runs=steps.strings("runs") if steps.has("runs") else (),
    )
    steps.finish()
    mixed.finish()
    return fit


def _line_constants(steps: Table) -> tuple[float, float, float, float]:
    """α_p, β_p, α_d, β_d of steps that only prefill and of those that only decode: s, s/token, s, s/request."""
    alpha_p, alpha_d = steps.seconds("alpha_p_s", _LONGEST_S), steps.seconds("alpha_d_s", _LONGEST_S)
    beta_p, beta_d = (steps.seconds(key, _LONGEST_S) for key in ("beta_p_s_per_token", "beta_d_s_per_request"))
    if alpha_d == 0:
        raise UserError(f"{steps.where('alpha_d_s')} is 0: α_d = 0 would make θ0 = 1: recalibrate")
    for key, value in (("beta_p_s_per_token", beta_p), ("alpha_d_s", alpha_d), ("beta_d_s_per_request", beta_d)):
        if value <= 0:
            raise UserError(f"{steps.where(key)} is {value:g}: it must be above 0: recalibrate")
    if alpha_p < 0:
        raise UserError(f"{steps.where('alpha_p_s')} is {alpha_p:g}: it must not be negative: recalibrate")
    return alpha_p, beta_p, alpha_d, beta_d
