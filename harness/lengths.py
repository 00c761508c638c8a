"""What a run's scheduler knew of the output lengths, in words and in the count of those it was wrong about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from harness.errors import UserError
from harness.runspec import RunSpec
from policies.catalog import IGNORED, NEEDED, POLICIES, USED, find_policy
from workloads.hints import NONE, Hints


def use_of(policy: str) -> str:
    """What a policy by its canonical name does with lengths; one that is not ours may use them."""
    name = policy.partition(":")[0]
    return find_policy(name).lengths if name in POLICIES else USED


def known_to(policy: str, lengths: str) -> str:
    """The lengths as far as this policy of ours uses them; UserError where it needs them and there are none."""
    use = use_of(policy)
    if use == NEEDED and lengths == NONE:
        raise UserError(
            f"{policy} goes by output lengths, and none are known: give --lengths oracle, noisy:sigma=0.3, "
            "interval:sigma=0.3, or trace (out_hint in the file)"
        )
    name, _, rest = policy.partition(":")
    given = {part.partition("=")[0] for part in rest.split(",")}
    for option in find_policy(name).options if lengths == NONE else ():
        if option.needs_lengths and option.name in given:
            raise UserError(f"{policy}: {option.name} does nothing without --lengths: leave out one or give the other")
    return NONE if use == IGNORED else lengths


def known_offline(policy: str, lengths: str) -> str:
    """What a plan of all requests knows: every length exactly, unless it takes them as they come."""
    if lengths not in (NONE, "oracle"):
        raise UserError(f"--lengths {lengths}: the token-step model plans with exact lengths: leave it out")
    return NONE if policy == "v1" else "oracle"


def check_used(policies: Sequence[str], lengths: str) -> None:
    """UserError where lengths are given to policies that all ignore them."""
    if lengths != NONE and all(use_of(policy) == IGNORED for policy in policies):
        raise UserError(f"--lengths {lengths}: {', '.join(policies)} would not look at it: leave it out")


def fair(specs: Sequence[RunSpec]) -> bool:
    """Whether runs with different knowledge differ in the policy alone: one of them would not look at it."""
    return any(use_of(spec.policy) == IGNORED for spec in specs)


def undeployable(specs: Sequence[RunSpec]) -> list[str]:
    """What to say beside a comparison of results that nobody could have in production."""
    labels = dict.fromkeys(spec.label for spec in specs if spec.lengths == "oracle")
    return [f"{label}: knew every output length beforehand, so it could not be deployed" for label in labels]


def notes_on(policy: str, lengths: str) -> list[str]:
    """What to say of a run with this knowledge."""
    if lengths == NONE and policy.partition(":")[0] in POLICIES and use_of(policy) == USED:
        return [f"{policy}: no output lengths are known (--lengths): it guards and plans nothing (plan 0)"]
    if lengths == "oracle":
        return ["lengths: oracle: every output length is known beforehand, so this result could not be deployed"]
    if lengths.startswith(("noisy", "interval")):
        return [f"lengths: {lengths}: a simulated predictor, from the true lengths with log-normal error"]
    return ["lengths: each row's own out_hint in the trace"] if lengths == "trace" else []


class Outlived:
    """Counts the requests that gave more tokens than the most that was expected of them."""

    def __init__(self, hints: Hints | None) -> None:
        self._high = None if hints is None else hints.high
        self._ended = 0
        self._outlived = 0

    def see(self, rows: Any, output_tokens: Any) -> None:
        """Requests that ended: their rows in the stream and their output."""
        if self._high is not None:
            self._ended += len(rows)
            self._outlived += int(np.count_nonzero(np.asarray(output_tokens) > self._high[np.asarray(rows)]))

    @property
    def observed(self) -> dict[str, Any]:
        """What joins run.json."""
        return {} if self._high is None else {"lengths": {"outlived": self._outlived, "ended": self._ended}}

    @property
    def notes(self) -> list[str]:
        """The count in words."""
        if self._high is None:
            return []
        return [f"{self._outlived:,} of {self._ended:,} requests outlived the most that was expected of them"]
