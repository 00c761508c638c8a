"""Every policy by name: its options, where it comes from, and how to make one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from policies import options
from policies.core import Policy, PolicyError, StepCosts, floor_share
from policies.online.controller import ControlOptions, FixedController, OnlineController
from policies.online.ebplus import EBPlus
from policies.online.exclusive import Exclusive
from policies.online.guard import PLAN, GuardOptions
from policies.online.isjl import Isjl
from policies.online.mixed import Mixed
from policies.online.orders import Ranked, expected
from policies.options import LARGEST, Option, count, share, word

EB_PAPER = "arXiv 2606.00516"
FAIR_PAPER = "arXiv 2608.02244"
# What a policy does with the output lengths that `--lengths` makes known.
IGNORED, USED, NEEDED = "ignored", "used", "needed"

# Settings of vLLM's own scheduler, which no engine of ours can run.
STOCK, INTERVAL = "stock", "v1-interval"
VLLM_OWN = (STOCK, INTERVAL)
# The rule of v0 on a host as slow as vLLM's first engine: virtual engines alone can have another host.
V0_ENGINE = "v0-engine"


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy is made for: the engine's slots N and the step costs, None where no profile gives them."""

    slots: int
    costs: StepCosts | None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A policy by name; `make` gets its typed options and what it is made for."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    make: Callable[[dict[str, Any], Setting], Policy]
    lengths: str = IGNORED


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
)


# With a fixed k only the estimate behind the KV reserve is left to shape.
_WITH_FIXED_K = ("update_every", "window")


def _control(values: Mapping[str, Any]) -> ControlOptions:
    control = ControlOptions(**{option.name: values[option.name] for option in _CONTROL})
    if control.theta_min > control.theta_max:
        raise PolicyError(f"theta_min={control.theta_min} is above theta_max={control.theta_max}: swap them")
    return control


def _online(values: dict[str, Any], setting: Setting) -> OnlineController:
    if setting.costs is None:
        raise PolicyError("this policy needs the step costs of a GPU and model: name both, or give a fixed k (eb:k=32)")
    return OnlineController(_control(values), setting.costs)


def _eb(values: dict[str, Any], setting: Setting) -> Policy:
    k, theta = values["k"], values["theta"]
    if k is not None and theta is not None:
        raise PolicyError("eb takes k or theta, not both")
    if theta is not None:
        k = max(1, floor_share(theta, setting.slots))
    if k is None:
        return Exclusive(_online(values, setting))
    for option in _CONTROL:
        if option.name not in _WITH_FIXED_K and values[option.name] != option.default:
            raise PolicyError(
                f"eb: {option.name} shapes the online threshold and does nothing with a fixed k: leave out one"
            )
    if k > setting.slots:
        raise PolicyError(
            f"eb: k={k} is above the {setting.slots} slots: it could never be reached; lower k or raise --slots"
        )
    return Exclusive(FixedController(k, _control(values)))


def _ebplus(values: dict[str, Any], setting: Setting) -> Policy:
    controller = _online(values, setting)
    assert setting.costs is not None
    return EBPlus(controller, setting.costs, values["delta"], values["smoothing"], values["cooldown"])


def _v0(values: dict[str, Any], setting: Setting) -> Policy:
    return Exclusive(FixedController(1, ControlOptions()))


def _v1(values: dict[str, Any], setting: Setting) -> Policy:
    return Mixed()


def _sjf(values: dict[str, Any], setting: Setting) -> Policy:
    return Mixed(Ranked(expected))


def _ljf(values: dict[str, Any], setting: Setting) -> Policy:
    # Nobody starts beside one that is a token further: ISJL with α = 0.
    return Isjl(GuardOptions(0, plan=0.0, exclusive=True))


def _isjl(values: dict[str, Any], setting: Setting) -> Policy:
    return Isjl(
        GuardOptions(
            values["alpha"],
            values["footprint"] == "kv",
            values["plan"],
            values["max_wait"],
            values["guard"] == "lenient",
            values["prefill"] == "exclusive",
        )
    )


def _vllm_alone(values: dict[str, Any], setting: Setting) -> Policy:
    raise PolicyError("this is a setting of vLLM's own scheduler and no policy of ours: it goes with --engine vllm")


POLICIES: dict[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
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
            (),
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
            "sjf",
            "shortest job first: mixed batching, the least expected output first",
            "classical",
            (),
            _sjf,
            NEEDED,
        ),
        PolicyEntry(
            "ljf",
            "longest job first, batch after batch: nobody starts while anyone decodes, so all have equal progress",
            f"{FAIR_PAPER}, LJF",
            (),
            _ljf,
            NEEDED,
        ),
        PolicyEntry(
            "isjl",
            "no two that decode together are ever more than alpha tokens apart: long ones first, shorts before them",
            f"{FAIR_PAPER}, ISJL",
            (
                Option(
                    "alpha",
                    int,
                    None,
                    "the largest gap, tokens",
                    lambda x: 0 <= x <= LARGEST,
                    f"a whole number of 0 to {LARGEST}",
                    required=True,
                ),
                word("footprint", "decode", "kv", "decode or kv: gaps in output tokens, or in prompt plus output"),
                Option(
                    "plan",
                    float,
                    PLAN,
                    "share of alpha that shorts may take before a long one",
                    lambda x: 0 <= x <= 1,
                    "0 to 1",
                    needs_lengths=True,
                ),
                count("max_wait", 5000, "decode steps after which a waiting request lets nobody past"),
                word("guard", "strict", "lenient", "strict or lenient: whether a late long one waits or starts"),
                word("prefill", "mixed", "exclusive", "mixed or exclusive: whether decoding goes on during prefill"),
            ),
            _isjl,
            USED,
        ),
        PolicyEntry(
            STOCK,
            "vLLM untouched: what our scheduler and its log cost is the difference to v1 (--engine vllm)",
            "vLLM",
            (),
            _vllm_alone,
        ),
        PolicyEntry(
            INTERVAL,
            "vLLM's own mixed batching, prefill only every n-th step (--engine vllm, vLLM 0.33 or newer)",
            "vLLM, prefill_schedule_interval",
            (count("n", 4, "steps from one that may prefill to the next"),),
            _vllm_alone,
        ),
    )
}

ALIASES = {"fcfs": "v1"}


# Schedules made of all requests at once: no engine that meets them one by one can follow them.
OFFLINE_ONLY = ("isjl-best", "isjl-paper")

Entry = TypeVar("Entry")


def find_policy(name: str) -> PolicyEntry:
    """The catalog's entry; PolicyError with the nearest name where there is none."""
    if name.lower() in OFFLINE_ONLY:
        raise PolicyError(f"{name} plans all requests at once, before any runs: it needs --engine tokenstep")
    if "@" in name:
        raise PolicyError(f"policy {name[:80]} is in its author's file: name that, --policy ./FILE.py:CLASS")
    return find_entry(name, POLICIES)


def find_entry(name: str, catalog: Mapping[str, Entry]) -> Entry:
    """An entry of this catalog or another by its name or alias; PolicyError with the nearest where there is none."""
    name = ALIASES.get(name.lower(), name.lower())
    if name not in catalog:
        known = [*catalog, *(alias for alias, stands_for in ALIASES.items() if stands_for in catalog)]
        near = options.suggest(name, known)
        raise PolicyError(f"unknown policy {name!r}: {near}known are {', '.join(known)}")
    return catalog[name]


def read_policy(text: str) -> tuple[str, dict[str, str]]:
    """A policy's name and options as they were written; PolicyError where a part is no option."""
    return options.split(text)


def read_options(name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """Every option of the policy, the given ones read and checked; PolicyError names the option and what it must be."""
    values = options.read(name, find_policy(name).options, given)
    if "theta_init" in given:
        low, init, high = (values[key] for key in ("theta_min", "theta_init", "theta_max"))
        # The default is cut to the limits; what a user gives and does not get is an error.
        if low <= high and not low <= init <= high:
            raise PolicyError(f"{name}: theta_init={init} must be within theta_min={low} and theta_max={high}")
    return values


def canonical_policy(name: str, given: Mapping[str, str]) -> str:
    """The policy as one string: options in alphabetical order, defaults left out, aliases resolved (v0 = eb:k=1)."""
    entry = find_policy(name)
    text = options.write(entry.name, entry.options, read_options(name, given))
    return "v0" if text == "eb:k=1" else text


def make_policy(name: str, given: Mapping[str, str], slots: int, costs: StepCosts | None) -> Policy:
    """A fresh policy for one run of an engine with N = `slots`; PolicyError where an option does not fit."""
    return find_policy(name).make(read_options(name, given), Setting(slots, costs))


def use_of(policy: str) -> str:
    """What a policy by its canonical name does with lengths; one that is not ours may use them."""
    name = policy.partition(":")[0]
    return find_policy(name).lengths if name in POLICIES else USED
