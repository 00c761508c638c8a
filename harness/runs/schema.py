"""What run.json and summary.json must hold: a form for each key, checked when a run is read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.apart import reading
from harness.core.errors import UserError
from harness.core.runspec import SCHEMA_VERSION, RunSpec
from harness.core.sizes import MOST_JSON_BYTES
from harness.measure.metrics import METRICS
from harness.measure.summary import COUNTS
from harness.measure.verdict import LEVELS

# The most to be trusted first: what was timed comes before what was computed or only told.
KINDS = ("measured", "emulated", "simulated", "reported")
# The kind of what an engine's runs tell; a reported figure may be of any engine.
KIND_OF = {
    "simulated": "simulated",
    "tokenstep": "simulated",
    "emulated": "emulated",
    "vllm": "measured",
    "endpoint": "measured",
}
STATUSES = ("running", "complete", "interrupted", "failed")

# Beyond these no value is ours, and JSON writers, tables and terminals give up.
_DEEPEST = 50
_LARGEST = 2**63 - 1
_MOST_ROWS = 10**8


@dataclass(frozen=True, slots=True)
class ValueForm:
    """What a value must be, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]


def _one_of(names: tuple[str, ...]) -> ValueForm:
    return ValueForm(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def _whole(lowest: int, highest: int = _LARGEST) -> ValueForm:
    return ValueForm(
        f"a whole number of at least {lowest}", lambda value: type(value) is int and lowest <= value <= highest
    )


def _or_null(form: ValueForm) -> ValueForm:
    return ValueForm(f"{form.words}, or null", lambda value: value is None or form.fits(value))


def _all(form: ValueForm, words: str) -> ValueForm:
    return ValueForm(words, lambda value: isinstance(value, dict) and all(map(form.fits, value.values())))


def _list_of(form: ValueForm, words: str) -> ValueForm:
    return ValueForm(words, lambda value: isinstance(value, list) and all(map(form.fits, value)))


_TEXT = ValueForm("text", lambda value: isinstance(value, str))
_LINE = ValueForm("one line of text", lambda value: isinstance(value, str) and value.isprintable())
_NUMBER = ValueForm("a number", lambda value: type(value) in (int, float))
_OBJECT = ValueForm("an object of keys and values", lambda value: isinstance(value, dict))
_TEXTS = _list_of(_TEXT, "a list of texts")
# What is larger is no share, and its percent is no number.
_SHARE = ValueForm("a share, 0 or more", lambda value: type(value) in (int, float) and 0 <= value <= 1e6)
_BOOL = ValueForm("true or false", lambda value: isinstance(value, bool))
_COUNT = _whole(0)

# Dotted keys; what stands in a table and not in the file is passed over unless it is required.
_SPEC: dict[str, ValueForm] = {
    **{
        f"spec.{name}": _LINE
        for name in ("gpu", "model", "policy", "workload", "engine", "arrival", "cost_model", "lengths")
    },
    **{f"spec.{name}": _COUNT for name in ("requests", "seed", "repeat")},
    **{f"spec.{name}": _whole(1) for name in ("slots", "token_budget", "block_size", "max_model_len")},
    "spec.kv_tokens": _or_null(_COUNT),
    "spec.watermark": _NUMBER,
    "spec.max_duration_s": _or_null(_NUMBER),
    "spec.slo": _all(_NUMBER, "an object of limits in seconds"),
    "spec.client": _OBJECT,
    "spec.alpha": _or_null(_NUMBER),
    "spec.engine_args": _LINE,
    "spec.profile": _LINE,
    "spec.tp": _whole(1),
    "spec.replicas": _whole(1),
    "spec.router": _LINE,
    "spec.config": _OBJECT,
    "spec.host": _LINE,
    "spec.policy_costs": _LINE,
    "spec.policy_sha256": _LINE,
    "spec.sessions": _BOOL,
    "spec.think_s": _NUMBER,
    "spec.prefix_caching": _or_null(_NUMBER),
}
_MANIFEST: dict[str, ValueForm] = {
    "spec": _OBJECT,
    "digest": _LINE,
    "kind": _one_of(KINDS),
    "status": _one_of(STATUSES),
    "reason": _or_null(_TEXT),
    "started_utc": _LINE,
    "finished_utc": _or_null(_LINE),
    "planned": _OBJECT,
    "planned.requests": _COUNT,
    "provenance": _OBJECT,
    "provenance.trace": _OBJECT,
    "provenance.trace.window": _OBJECT,
    "provenance.trace.window.start": _COUNT,
    "provenance.trace.window.rows": _whole(0, _MOST_ROWS),
    "provenance.trace.window.of": _whole(1, _MOST_ROWS),
    "provenance.trace.window.order": _LINE,
    "provenance.trace_label": _LINE,
    "notes": _TEXTS,
    "degraded": _TEXTS,
    "clock": _OBJECT,
    "clock.origin_ns": _COUNT,
    "machine": _or_null(_OBJECT),
    "machine.elsewhere": _or_null(_SHARE),
    "machine.gpus": _list_of(_all(_or_null(_NUMBER), "an object of numbers"), "a list of cards with their numbers"),
    "client": _OBJECT,
    "client.cpu_share": _or_null(_SHARE),
    "client.wait_share": _or_null(_SHARE),
    "client.hosts": _list_of(_OBJECT, "a list of driving hosts"),
    "client.clock_error_s": _or_null(_NUMBER),
    **{f"client.{name}": _or_null(_COUNT) for name in ("echoed", "foreign", "beyond_usage")},
    "lengths": _OBJECT,
    "lengths.outlived": _COUNT,
    "lengths.ended": _COUNT,
    "prefix_cache": _or_null(_OBJECT),
    "prefix_cache.declared": _or_null(_SHARE),
    "prefix_cache.observed": _SHARE,
    "beside": _all(_all(_NUMBER, "metrics by name"), "an object of cost models with their metrics"),
    "off_grid": _OBJECT,
    "off_grid.share": _SHARE,
    "replicas": _list_of(_all(_NUMBER, "an object of numbers"), "a list of replicas with their numbers"),
    **_SPEC,
}
# What `bench recover` makes again from the tables.
_CONCLUDED: dict[str, ValueForm] = {
    "counts": ValueForm("an object of whole numbers", lambda value: isinstance(value, dict)),
    **{f"counts.{name}": _COUNT for name in COUNTS},
    "counts.finishes": _all(_COUNT, "an object of whole numbers"),
    "verdict": _OBJECT,
    "verdict.level": _one_of(LEVELS),
    "verdict.reasons": _TEXTS,
    "verdict.checks": _list_of(_OBJECT, "a list of checks"),
}
_SUMMARY: dict[str, ValueForm] = {
    "window": _or_null(_OBJECT),
    "window.start_s": _NUMBER,
    "window.end_s": _NUMBER,
    "window.rule": _LINE,
    "metrics": _OBJECT,
}
# A whole object that lacks one of these is not whole.
_TOGETHER = {
    "provenance.trace.window": ("start", "rows", "of", "order"),
    "lengths": ("outlived", "ended"),
    "prefix_cache": ("declared", "observed"),
    "off_grid": ("share",),
    "window": ("start_s", "end_s", "rule"),
    "verdict": ("level", "reasons"),
    "counts": ("requests", "completed", "failed"),
    "planned": ("requests",),
}
_ALWAYS = ("spec", "digest", "kind", "status")
_OF_OURS = ("reason", "started_utc", "planned", "provenance", "notes", "degraded")
_COPY = "take it from a copy, or run again"
_METRIC_TEXTS = ("unit",)


def read_json(path: Path, remedy: str, missing_ok: bool = False) -> dict[str, Any]:
    """Read a JSON file of a schema known here; UserError with the remedy where that fails."""
    reading(path)
    try:
        # A pipe would be waited for.
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{path}: not a regular file: {remedy}")
        if found.st_size > MOST_JSON_BYTES:
            size = f"{found.st_size / 2**20:,.0f} MiB, at most {MOST_JSON_BYTES >> 20} are read"
            raise UserError(f"{path}: cannot be read ({size}): {remedy}")
        value = json.loads(path.read_bytes(), parse_constant=_refuse_constant)
        refuse_odd_values(value)
    except FileNotFoundError:
        if missing_ok:
            return {}
        raise UserError(f"{path}: not there: {remedy}") from None
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read ({why}): {remedy}") from None
    schema = value.get("schema") if isinstance(value, dict) else None
    if type(schema) is not int or schema < 1:
        raise UserError(f"{path}: has no schema version: {remedy}")
    if schema > SCHEMA_VERSION:
        raise UserError(f"{path}: has schema {schema}, this schedbench reads up to {SCHEMA_VERSION}: upgrade it")
    return dict(value)


def check_manifest(path: Path, manifest: dict[str, Any]) -> RunSpec:
    """The spec of a manifest read from `path`; UserError where a key lacks, has another form, or was edited."""
    # Published figures come without what a run of ours writes down.
    needed = _ALWAYS if manifest.get("kind") == "reported" else _ALWAYS + _OF_OURS
    _check(path, manifest, _MANIFEST, needed, _COPY)
    values = manifest["spec"]
    try:
        spec = RunSpec.from_dict(values)
    except TypeError as error:
        raise UserError(f"{path}: not a run's manifest ({error}): {_COPY}, or upgrade schedbench") from None
    # Of what stands there and not of the spec as read: a field that came later has no part in an older digest.
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    if hashlib.sha256(canonical.encode()).hexdigest() != manifest["digest"]:
        raise UserError(f"{path}: run.json was edited: its spec does not match its digest: {_COPY}")
    return spec


def check_concluded(path: Path, manifest: dict[str, Any]) -> None:
    """UserError where counts or verdict have another form than `bench recover` gives them."""
    _check(path, manifest, _CONCLUDED, (), f"`bench recover {path.parent}` makes it again")


def check_summary(path: Path, summary: dict[str, Any]) -> None:
    """UserError where a summary has another form than `bench recover` gives it."""
    remedy = f"`bench recover {path.parent}` makes it again"
    _check(path, summary, _SUMMARY, ("metrics",), remedy)
    for name, values in summary["metrics"].items():
        key = f"metrics.{_shown(name)}"
        if not isinstance(values, dict):
            raise _wrong(path, key, values, "an object of values", remedy)
        if name in METRICS and METRICS[name].kind == "number" and "value" not in values:
            raise UserError(f"{path}: {key} has no value: {remedy}")
        for part, value in values.items():
            form = _LINE if part in _METRIC_TEXTS else _or_null(_NUMBER)
            if not form.fits(value):
                raise _wrong(path, f"{key}.{_shown(part)}", value, form.words, remedy)


def _check(
    path: Path, values: Mapping[str, Any], table: Mapping[str, ValueForm], needed: Collection[str], remedy: str
) -> None:
    for key in needed:
        if key not in values:
            raise UserError(f"{path}: {key} is missing: {remedy}")
    for key, form in table.items():
        is_there, value = _value_at(values, key)
        if not is_there:
            continue
        if not form.fits(value):
            raise _wrong(path, key, value, form.words, remedy)
        for part in _TOGETHER.get(key, ()) if value else ():
            if part not in value:
                raise UserError(f"{path}: {key}.{part} is missing: {remedy}")


def _value_at(values: Mapping[str, Any], key: str) -> tuple[bool, Any]:
    """Whether there is a value under a dotted key, and the value; what stands above it has been checked before."""
    value: Any = values
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _wrong(path: Path, key: str, value: Any, words: str, remedy: str) -> UserError:
    return UserError(f"{path}: {key} is {_shown(value)}: it must be {words}: {remedy}")


def _shown(value: Any) -> str:
    """A key or value as an error can hold it: a word as it is, all else in quotes and in ASCII."""
    text = value if isinstance(value, str) and value.isidentifier() else ascii(value)
    return text if len(text) <= 60 else f"{text[:50]}…"


def _refuse_constant(word: str) -> float:
    """ValueError for NaN and its like, which JSON does not have."""
    raise ValueError(f"{word} is no JSON number")


def refuse_odd_values(value: Any, depth: int = 0) -> None:
    """ValueError for what no run of ours holds: deep nesting, endless numbers, text that is not Unicode."""
    if depth > _DEEPEST:
        raise ValueError(f"nested more than {_DEEPEST} deep")
    if isinstance(value, dict):
        for key, inner in value.items():
            refuse_odd_values(key)
            refuse_odd_values(inner, depth + 1)
    elif isinstance(value, list):
        for item in value:
            refuse_odd_values(item, depth + 1)
    elif isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError("a text that is not valid Unicode") from None
    elif isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError("a number of more than 64 bits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that is not finite")


assert {f"spec.{field.name}" for field in dataclasses.fields(RunSpec)} == set(_SPEC)
