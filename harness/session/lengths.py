"""What a run's scheduler knew of the output lengths, in words and in the count of those it was wrong about."""

from __future__ import annotations

from collections.abc import Sequence

from harness.core.errors import UserError
from policies.catalog import POLICIES, use_of
from policies.entry import IGNORED, NEEDED, USED
from workloads.lengths.hints import NONE


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
    for option in POLICIES[name].options if lengths == NONE and name in POLICIES else ():
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


def notes_on(policy: str, lengths: str) -> list[str]:
    """What to say of a run with this knowledge."""
    if lengths == NONE and policy.partition(":")[0] in POLICIES and use_of(policy) == USED:
        return [f"{policy}: no output lengths are known (--lengths): it guards and plans nothing (plan 0)"]
    if lengths == "oracle":
        return ["lengths: oracle: every output length is known beforehand, so this result could not be deployed"]
    if lengths.startswith(("noisy", "interval")):
        return [f"lengths: {lengths}: a simulated predictor, from the true lengths with log-normal error"]
    return ["lengths: each row's own out_hint in the trace"] if lengths == "trace" else []
