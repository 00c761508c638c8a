"""Every policy by name: its options, where it comes from, and how to make one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from policies import options
from policies.batching import BATCHING
from policies.core import Policy, PolicyError, StepCosts
from policies.entry import NEEDED, USED, PolicyEntry, Setting
from policies.online.guard import PLAN, GuardOptions
from policies.online.interval import Interval
from policies.online.isjl import Isjl
from policies.online.mixed import Mixed
from policies.online.orders import Ranked, expected
from policies.options import LARGEST, Option, count, word

FAIR_PAPER = "arXiv 2608.02244"
# On real vLLM these are its own scheduler, not ours.
STOCK, INTERVAL = "stock", "v1-interval"
VLLM_OWN = (STOCK, INTERVAL)
# Several engines under one name, which no scheduler of one engine can be.
POOLS = "pd"
NO_SCHEDULER_OF_OURS = (STOCK, POOLS)


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
    raise PolicyError("this is vLLM's own scheduler and no policy of ours: it goes with --engine vllm")


def _interval(values: dict[str, Any], setting: Setting) -> Policy:
    return Interval(values["n"])


def _pools_alone(values: dict[str, Any], setting: Setting) -> Policy:
    raise PolicyError("these are engines of two kinds and no policy of one: it goes with --engine simulated --replicas")


POLICIES: dict[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        *BATCHING,
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
            "mixed batching, prefill only every n-th step; with --engine vllm vLLM's own setting (0.33 or newer)",
            "vLLM 0.33, prefill_schedule_interval",
            (count("n", 4, "steps from one that may prefill to the next"),),
            _interval,
        ),
        PolicyEntry(
            POOLS,
            "prefill and decode on engines of their own, v1 on each; the KV cache of a prompt travels between "
            "(--engine simulated, --replicas)",
            "DistServe, arXiv 2401.09670; Splitwise, arXiv 2311.18677",
            (count("prefill", 1, "engines that prefill"), count("decode", 1, "engines that decode")),
            _pools_alone,
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
    """The policy as one string: options in alphabetical order, defaults left out, aliases resolved."""
    entry = find_policy(name)
    text = options.write(entry.name, entry.options, read_options(name, given))
    return "v0" if text == "eb:gate=paper,k=1" else text


def make_policy(name: str, given: Mapping[str, str], slots: int, costs: StepCosts | None) -> Policy:
    """A fresh policy for one run of an engine with N = `slots`; PolicyError where an option does not fit."""
    return find_policy(name).make(read_options(name, given), Setting(slots, costs))


def use_of(policy: str) -> str:
    """What a policy by its canonical name does with lengths; one that is not ours may use them."""
    name = policy.partition(":")[0]
    return find_policy(name).lengths if name in POLICIES else USED
