"""What `bench run` can be told, each with what holds where nothing is said."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from harness.core.errors import UserError
from harness.core.routers import ROUTERS
from harness.core.sizes import MOST_REQUESTS
from harness.core.text import nearest, shown


class Limits(NamedTuple):
    """What a number may be: from `low` (itself not where `above` is true) to `high`, None for no bound."""

    low: float | None = None
    high: float | None = None
    above: bool = False


# Of the fields of RunOptions that are numbers. `rates` are checked with the arrival that they belong to.
LIMITS = {
    "concurrencies": Limits(1, 10**9),
    "requests": Limits(1, MOST_REQUESTS),
    "tp": Limits(1, 64),
    "replicas": Limits(1, 64),
    "slots": Limits(1, 10**9),
    "token_budget": Limits(1, 10**9),
    "kv_tokens": Limits(1, 10**9),
    "block_size": Limits(1, 4096),
    "max_model_len": Limits(2),
    "watermark": Limits(0, 0.5),
    "prefix_caching": Limits(0, 1),
    "repeat": Limits(1, 1000),
    "aa": Limits(0, 100),
    "seed": Limits(0, 2**53),
    "alpha": Limits(0),
    "max_duration_s": Limits(0, above=True),
    "think_s": Limits(0),
    "vocabulary": Limits(256),
    "timeout_s": Limits(0, above=True),
    "first_token_timeout_s": Limits(0, above=True),
    "retries_429": Limits(0, 1000),
    "ready_timeout_s": Limits(0),
    "warmup": Limits(0),
    "processes": Limits(1, 64),
    "drivers": Limits(1, 1000),
}
CHOICES = {
    "api": ("completions", "chat"),
    "prompts": ("ids", "text", "dataset"),
    "accept": ("no_done", "no_usage"),
    "router": ROUTERS,
}

# Options of the command line whose name is not that of their field: several may be given, or seconds are meant.
FIELD_OF = {
    "gpu": "gpus",
    "field": "fields",
    "no_field": "no_fields",
    "policy": "policies",
    "url": "urls",
    "arm": "arms",
    "concurrency": "concurrencies",
    "rate": "rates",
    "workload": "workloads",
    "max_duration": "max_duration_s",
    "think_time": "think_s",
    "timeout": "timeout_s",
    "first_token_timeout": "first_token_timeout_s",
    "retry_429": "retries_429",
    "ready_timeout": "ready_timeout_s",
}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of `bench run`, by the names of the command line; None where a default depends on the rest.

    `gpus`, `policies` and `workloads` may hold several names in one text, apart by commas. `token_budget` and `slots`
    are B and N; each of several `slots` is a setting of its own for all policies. `arrival`, `rates` (requests/s) and
    `concurrencies` say together how requests come: each of several is a load of its own. Names that end in `_s` are
    seconds; `alpha` and `kv_tokens` are tokens. Those from `urls` on belong to engines that drive or start a server.
    """

    gpus: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    model: str | None = None
    engine: str = "auto"
    concurrencies: tuple[int, ...] = ()
    rates: tuple[float, ...] = ()
    arrival: str | None = None
    requests: int | None = None
    slots: tuple[int, ...] = (1024,)
    token_budget: int = 14336
    kv_tokens: int | None = None
    block_size: int | None = None
    max_model_len: int = 40960
    watermark: float = 0.0
    prefix_caching: float | None = None
    cost_model: str = "auto"
    alone: bool = False
    host: str = ""
    policy_costs: str = ""
    tp: int = 1
    replicas: int = 1
    router: str | None = None
    repeat: int | None = None
    aa: int = 0
    until: str | None = None
    headline: str | None = None
    seed: int = 0
    slo: str | None = None
    alpha: float | None = None
    max_duration_s: float | None = None
    lengths: str = "none"
    sessions: bool = False
    think_s: float = 0.0
    urls: tuple[str, ...] = ()
    arms: tuple[str, ...] = ()
    api: str = "completions"
    prompts: str = "ids"
    tokenizer: str = ""
    vocabulary: int | None = None
    path: str | None = None
    key_env: str | None = None
    header_env: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    no_fields: tuple[str, ...] = ()
    length_field: str = "max_tokens"
    accept: tuple[str, ...] = ()
    ca_file: str | None = None
    ignore_eos: bool = True
    timeout_s: float = 3600.0
    first_token_timeout_s: float | None = None
    retries_429: int = 0
    ready_timeout_s: float | None = None
    warmup: int = 4
    processes: int = 1
    drivers: int | None = None
    address: str | None = None
    engine_python: str | None = None
    engine_args: str = ""

    @property
    def gpu_names(self) -> list[str]:
        """The GPUs named, each once, in the order given."""
        return list(dict.fromkeys(gpu for text in self.gpus for gpu in names_in(text)))


def names_in(text: str) -> list[str]:
    """Names apart by commas; a comma in the name of a file that is there is part of it."""
    parts, names = text.split(","), []
    while parts:
        longest = range(len(parts), 1, -1)
        taken = next((n for n in longest if os.path.isfile(",".join(parts[:n]))), 1)
        names.append(",".join(parts[:taken]))
        del parts[:taken]
    return names


def read_options(given: Mapping[str, Any]) -> RunOptions:
    """Options by the names of the command line with underscores, as Python or TOML values; UserError where one is off.

    What may be given several times on the command line (`gpu`, `policy`, `workload`, `field` …) takes a text or a list
    of them, and so do `slots`.
    """
    kinds = _kinds()
    known = known_names()
    values = {}
    for name, value in given.items():
        if name not in known:
            raise UserError(f"no option {shown(name)}{nearest(str(name), known)} `bench run --help` lists them")
        field = FIELD_OF.get(name, name)
        values[field] = _read(name, field, value, kinds[field])
    return RunOptions(**values)


@functools.cache
def known_names() -> tuple[str, ...]:
    """The options of `bench run` by the names of the command line, with underscores."""
    command_line_names = {field: name for name, field in FIELD_OF.items()}
    return tuple(command_line_names.get(field.name, field.name) for field in dataclasses.fields(RunOptions))


@functools.cache
def _kinds() -> dict[str, Any]:
    """The type of each field of RunOptions."""
    return typing.get_type_hints(RunOptions)


def _read(name: str, field: str, value: Any, kind: Any) -> Any:
    """One value as its field holds it."""
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        (kind,) = (part for part in kind.__args__ if part is not type(None))
    if typing.get_origin(kind) is tuple:
        values = () if value is None else tuple(value) if isinstance(value, list | tuple) else (value,)
        return tuple(_read(name, field, one, typing.get_args(kind)[0]) for one in values)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        told = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise UserError(f"{name} is {shown(value)}: give {told}")
    if field in CHOICES and value not in CHOICES[field]:
        raise UserError(f"{name} is {shown(value)}: give one of {', '.join(CHOICES[field])}")
    if field in LIMITS or kind is float:
        _check_range(name, value, LIMITS.get(field, Limits()))
    return value


def _check_range(name: str, value: float, limits: Limits) -> None:
    low = -math.inf if limits.low is None else limits.low
    high = math.inf if limits.high is None else limits.high
    inside = low < value <= high if limits.above else low <= value <= high
    if not inside or not math.isfinite(value):
        least = f"above {limits.low:g}" if limits.above else f"at least {low:g}"
        most = "" if limits.high is None else f" and at most {high:g}"
        raise UserError(f"{name} is {value:g}: it must be finite, {least}{most}")
