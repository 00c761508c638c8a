"""The policies that admit in batches: their options, and how each is made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from policies.core import Policy, PolicyError, floor_share
from policies.entry import PolicyEntry, Setting
from policies.online.adaptive import Adaptive
from policies.online.batches import Batches
from policies.online.controller import ControlOptions, FixedController, OnlineController
from policies.online.ebplus import EBPlus
from policies.online.exclusive import Exclusive
from policies.online.forecast import ForecastGate
from policies.online.mixed import Mixed
from policies.options import Option, count, share, word

EB_PAPER = "arXiv 2606.00516"
OURS = "this project (docs/policies.md)"
# The rule of v0 on a host as slow as vLLM's first engine: virtual engines alone can have another host.
V0_ENGINE = "v0-engine"

_DEFAULT = ControlOptions()
_CONTROL = (
    share("theta_min", _DEFAULT.theta_min, "lowest threshold θ*"),
    share("theta_max", _DEFAULT.theta_max, "highest threshold θ*"),
    share("theta_init", _DEFAULT.theta_init, f"threshold until {_DEFAULT.min_completions} requests have completed"),
    share("epsilon", _DEFAULT.epsilon, "accepted probability of exceeding the KV cache, in N*"),
    count("update_every", _DEFAULT.update_every, "completions between updates"),
    count("window", _DEFAULT.window, "completions that the estimates look back on"),
    word(
        "correction",
        _DEFAULT.correction,
        "none",
        "first_order or none: the correction Δθ for an increasing hazard",
    ),
    word(
        "gate",
        "forecast",
        "paper",
        "forecast or paper: whether a forecast from the lengths seen keeps KV free, or N* and a reserve",
    ),
)


# With a fixed k only the estimate behind the KV reserve is left to shape.
_WITH_FIXED_K = ("update_every", "window", "gate")


def _control(values: Mapping[str, Any]) -> ControlOptions:
    control = ControlOptions(**{option.name: values[option.name] for option in _CONTROL})
    if control.theta_min > control.theta_max:
        raise PolicyError(f"theta_min={control.theta_min} is above theta_max={control.theta_max}: swap them")
    return control


def _online(values: dict[str, Any], setting: Setting) -> OnlineController:
    if setting.costs is None:
        raise PolicyError("this policy needs the step costs of a GPU and model: name both, or give a fixed k (eb:k=32)")
    return OnlineController(_control(values), setting.costs)


def _gate(values: Mapping[str, Any]) -> ForecastGate | None:
    return ForecastGate() if values["gate"] == "forecast" else None


def _eb(values: dict[str, Any], setting: Setting) -> Policy:
    k, theta = values["k"], values["theta"]
    if k is not None and theta is not None:
        raise PolicyError("eb takes k or theta, not both")
    if theta is not None:
        k = max(1, floor_share(theta, setting.slots))
    if k is None:
        return Exclusive(_online(values, setting), _gate(values))
    for option in _CONTROL:
        if option.name not in _WITH_FIXED_K and values[option.name] != option.default:
            raise PolicyError(
                f"eb: {option.name} shapes the online threshold and does nothing with a fixed k: leave out one"
            )
    if k > setting.slots:
        raise PolicyError(
            f"eb: k={k} is above the {setting.slots} slots: it could never be reached; lower k or raise --slots"
        )
    return Exclusive(FixedController(k, _control(values)), _gate(values))


def _ebplus(values: dict[str, Any], setting: Setting) -> Policy:
    controller = _online(values, setting)
    assert setting.costs is not None
    rest = values["delta"], values["smoothing"], values["cooldown"]
    return EBPlus(controller, setting.costs, *rest, _gate(values))


def _v0(values: dict[str, Any], setting: Setting) -> Policy:
    return Exclusive(FixedController(1, ControlOptions()))


def _v1(values: dict[str, Any], setting: Setting) -> Policy:
    return Mixed(budget=values["budget"])


def _mb(values: dict[str, Any], setting: Setting) -> Policy:
    if values["k"] > setting.slots:
        raise PolicyError(
            f"mb: k={values['k']} is above the {setting.slots} slots: it could never be reached; "
            "lower k or raise --slots"
        )
    return Batches(values["k"])


def _adaptive(values: dict[str, Any], setting: Setting) -> Policy:
    return Adaptive(setting.slots, values["ttft"])


BATCHING = (
    PolicyEntry(
        "v0",
        "prefill first, alone, as soon as a slot is free: EB with k = 1",
        f"{EB_PAPER}; vLLM v0",
        (),
        _v0,
    ),
    PolicyEntry(
        V0_ENGINE,
        "vLLM's first engine: the rule of v0 on a host that takes 5 ms a step and 100 µs a running sequence",
        "vLLM RFC 6913, RFC 6854, PR 8050",
        (),
        _v0,
    ),
    PolicyEntry(
        "v1",
        "mixed batching: prefill chunks and decodes share each step, first come first served",
        "vLLM v1",
        (count("budget", None, "tokens of a step, below the engine's own (max_num_batched_tokens): chunk sizes"),),
        _v1,
    ),
    PolicyEntry(
        "eb",
        "exclusive batching: prefill and decode take turns, with a fixed k or the online k*",
        f"{EB_PAPER}, EB(k) and EB(k*)",
        (
            count(
                "k",
                None,
                "free slots that trigger a prefill phase; without it (and theta) k* is found online",
            ),
            share("theta", None, "the same as a share of the slots: k = floor(theta·N)"),
            *_CONTROL,
        ),
        _eb,
    ),
    PolicyEntry(
        "ebplus",
        "mixed or exclusive batching with k*, whichever the crossover inequality favours",
        f"{EB_PAPER}, EB+",
        (
            Option(
                "delta",
                float,
                0.0,
                "s/token added to the side of mixed batching: above 0 favours TTFT, below throughput",
                math.isfinite,
                "a finite number",
            ),
            Option(
                "smoothing",
                float,
                0.1,
                "weight of one step in the smoothed number of running requests",
                lambda x: 0 < x <= 1,
                "above 0 and at most 1",
            ),
            count("cooldown", 3, "updates in a row that must favour the other mode before it changes"),
            *_CONTROL,
        ),
        _ebplus,
    ),
    PolicyEntry(
        "mb",
        "mixed batching in batches: admission waits for k free slots and k that wait, and for the KV forecast",
        OURS,
        (count("k", 1, "free slots, and waiting requests, that start an admission"),),
        _mb,
    ),
    PolicyEntry(
        "adaptive",
        "mixed or exclusive batching and its k by what its own steps took: nothing is calibrated beforehand",
        OURS,
        (
            Option(
                "ttft",
                float,
                1.0,
                "s; half of it is the longest wait for others",
                lambda x: 0 < x < math.inf,
                "above 0",
            ),
        ),
        _adaptive,
    ),
)
