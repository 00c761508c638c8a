"""The policies of the token-step model by name: each plans every request at once, all of them at time 0.

Names and options are those of the catalog where a policy stands in both; what has a meaning only while requests
arrive is refused here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from policies import options
from policies.catalog import POLICIES, find_entry
from policies.core import PolicyError
from policies.offline.baselines import Planner, fcfs, ljf, sjf
from policies.offline.isjl import isjl, isjl_best, isjl_paper
from policies.options import LARGEST, Option

PAPER = "arXiv 2608.02244"


@dataclass(frozen=True, slots=True)
class OfflineEntry:
    """A policy that plans offline. `planner` makes the planner of its options."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    planner: Callable[[dict[str, Any]], Planner]


def _flag(text: str) -> bool:
    words = {"true": True, "false": False}
    if text.lower() not in words:
        raise ValueError(text)
    return words[text.lower()]


def _tokens(name: str, default: int | None, help_: str) -> Option:
    must = "a whole number of tokens of at least 0"
    return Option(name, int, default, help_, lambda value: 0 <= value <= LARGEST, must)


_ALPHA = _tokens("alpha", None, "α, tokens: the most by which requests that run together may differ in progress")


def _isjl(values: dict[str, Any]) -> Planner:
    return lambda lengths, slots: isjl(lengths, slots, values["alpha"], values["beta"])


def _isjl_best(values: dict[str, Any]) -> Planner:
    return lambda lengths, slots: isjl_best(lengths, slots, values["alpha"])


def _isjl_paper(values: dict[str, Any]) -> Planner:
    return lambda lengths, slots: isjl_paper(lengths, slots, values["alpha"], values["hold"])


OFFLINE: dict[str, OfflineEntry] = {
    entry.name: entry
    for entry in (
        OfflineEntry("v1", "first come, first served: REFILL in the order of the trace", PAPER, (), lambda _: fcfs),
        OfflineEntry("sjf", "shortest first: REFILL by length, ascending", PAPER, (), lambda _: sjf),
        OfflineEntry("ljf", "longest first, in batches that are not refilled: a gap of 0", PAPER, (), lambda _: ljf),
        OfflineEntry(
            "isjl",
            "longest first, with short requests inserted as far as a gap of α allows",
            f"{PAPER}, in the form that never lengthens a batch (β = 0)",
            (_ALPHA, _tokens("beta", 0, "β of 0 to α, tokens: what a second pass may lengthen a batch by")),
            _isjl,
        ),
        OfflineEntry(
            "isjl-best",
            "the shortest of LJF and eighteen forms of ISJL; its gap is at most α",
            PAPER,
            (_ALPHA,),
            _isjl_best,
        ),
        OfflineEntry(
            "isjl-paper",
            "ISJL as far as its paper tells (a reconstruction); its gap may exceed α unless hold=true",
            PAPER,
            (
                _ALPHA,
                Option("hold", _flag, False, "true: leaders wait where they would break α", must="true or false"),
            ),
            _isjl_paper,
        ),
    )
}


def find_offline(name: str) -> OfflineEntry:
    """The entry; PolicyError where the name is unknown or its policy plans nothing offline."""
    if name.lower() in POLICIES and name.lower() not in OFFLINE:
        raise PolicyError(
            f"{name} decides step by step and plans nothing offline: the token-step model has {', '.join(OFFLINE)}"
        )
    return find_entry(name, OFFLINE)


def offline_options(name: str, given: Mapping[str, str]) -> dict[str, Any]:
    """The options read; PolicyError where one is wrong, lacks, or has no meaning offline."""
    entry = find_offline(name)
    own = {option.name for option in entry.options}
    online = {option.name for option in POLICIES[entry.name].options} if entry.name in POLICIES else set()
    for key in given:
        if key in online - own:
            raise PolicyError(f"{name}: {key} shapes what is decided while requests arrive: leave it out offline")
    values = options.read(name, entry.options, given)
    if "alpha" in own and values["alpha"] is None:
        raise PolicyError(f"{name} needs alpha=…, such as {entry.name}:alpha=100: {_ALPHA.help}")
    if values.get("beta", 0) > values.get("alpha", 0):
        raise PolicyError(f"{name}: beta={values['beta']} is above alpha={values['alpha']}: it must be 0 to alpha")
    return values


def canonical_offline(name: str, given: Mapping[str, str]) -> str:
    """The policy as one string, as `catalog.canonical_policy` writes it."""
    entry = find_offline(name)
    return options.write(entry.name, entry.options, offline_options(name, given))


def plan_offline(name: str, given: Mapping[str, str], lengths: Sequence[int], slots: int) -> list[int]:
    """The start of every request, in token-steps; PolicyError for what the user can mend."""
    return find_offline(name).planner(offline_options(name, given))(lengths, slots)
