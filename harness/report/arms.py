"""Groups runs into arms, names the arms apart, and pairs their repeats."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from harness.core.errors import UserError
from harness.core.text import one_line, short, some
from harness.measure.measured import VIRTUAL_ENGINES
from harness.report.comparable import differences, end_of_path
from harness.runs.run import Run

# What tells the repeats of an arm apart.
_REPEAT = frozenset({"seed", "repeat", "stream_digest", "trace_digest"})


def without_older_copies(runs: Sequence[Run]) -> tuple[list[Run], int]:
    """The runs without virtual ones that a later run repeats exactly (same spec), and how many those were."""
    latest: dict[tuple[str, str], Run] = {}
    for run in sorted(runs, key=lambda run: run.started):
        if run.spec.engine in VIRTUAL_ENGINES and run.status == "complete":
            latest[(run.manifest["digest"], run.kind)] = run
    kept = [run for run in runs if latest.get((run.manifest["digest"], run.kind), run) is run]
    return kept, len(runs) - len(kept)


def arms_of(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs into arms (equal in all but repeat and seed), in the order of their first run."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        deciding = {name: value for name, value in run.spec.to_dict().items() if name not in _REPEAT}
        # A spec has the service levels in the order in which they were typed.
        groups.setdefault(f"{run.kind} {json.dumps(deciding, sort_keys=True)}", []).append(run)
    return list(groups.values())


def arm_names(arms: Sequence[Sequence[Run]]) -> list[str]:
    """What to call each arm: its policy, and where arms share one, the settings that differ: `v1 [slots 64]`."""
    policies = [arm[0].spec.policy for arm in arms]
    settings = [_settings(arm[0]) for arm in arms]
    differing = []
    for name in dict.fromkeys(itertools.chain(*settings)):
        values = {(policy, texts.get(name)) for policy, texts in zip(policies, settings, strict=True)}
        if len(values) > len(set(policies)):
            differing.append(name)
    names = []
    for policy, texts in zip(policies, settings, strict=True):
        suffix = ", ".join(f"{name} {texts.get(name, 'unset')}" for name in differing)
        names.append(f"{policy} [{suffix}]" if suffix else policy)
    return names


def _settings(run: Run) -> dict[str, str]:
    """What may tell an arm from another, as text; of a group of settings each by itself."""
    settings: dict[str, Any] = {"kind": run.kind}
    for name, value in run.spec.to_dict().items():
        if name in _REPEAT:
            continue
        if isinstance(value, dict):
            settings |= {f"{name}.{key}": setting for key, setting in value.items()}
        else:
            settings[name] = value
    return {name: "none" if value is None else one_line(str(value)) for name, value in settings.items()}


def sound_and_broken(repeats: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """The repeats of an arm that count, and those that are INVALID, which neither rank nor average."""
    return [run for run in repeats if run.level != "INVALID"], [run for run in repeats if run.level == "INVALID"]


def without_broken(a: Sequence[Run], b: Sequence[Run]) -> tuple[list[Run], list[Run], str | None]:
    """Both arms without the repeats that are broken in one of them, and what to say of that; as they are if none is.

    Arms that have no sound repeat in common stay whole: they are shown, and ranked nowhere.
    """
    (sound_a, broken_a), (sound_b, broken_b) = map(sound_and_broken, (a, b))
    common = {run.spec.repeat for run in sound_a} & {run.spec.repeat for run in sound_b}
    broken = [*broken_a, *broken_b]
    if not broken or not common:
        return list(a), list(b), None
    kept_a, kept_b = ([run for run in sound if run.spec.repeat in common] for sound in (sound_a, sound_b))
    told = ", ".join(dict.fromkeys(f"repeat {run.spec.repeat} of {short(run.spec.policy)}" for run in broken))
    counting = f"{len(common)} repeats count" if len(common) > 1 else "one repeat counts"
    return kept_a, kept_b, f"left out, since INVALID: {told}; {counting}"


@dataclass(frozen=True, slots=True)
class Pairing:
    """Repeats that meet, and groups of runs of one policy on one stream (A/A), which tell how runs spread."""

    pairs: tuple[tuple[Run, Run], ...]
    equals: tuple[tuple[Run, ...], ...] = ()


def pair_repeats(a: Sequence[Run], b: Sequence[Run], allow: Collection[str]) -> Pairing:
    """The repeats of both arms, matched by number and seed; what one arm ran more often than the other is A/A.

    UserError where an arm's runs are no repeats of each other, or the arms' repeats do not match.
    """
    if not a or not b:
        raise UserError("compare needs two arms: name a run directory for each")
    for arm in (a, b):
        _check_arm(arm)
    if len(a) == len(b) == 1:
        return Pairing(((a[0], b[0]),))
    seeds = "seed" in allow
    left, right = (_by_key(arm, seeds) for arm in (a, b))
    numbers = [sorted(key for key, runs in side.items() for _ in runs) for side in (left, right)]
    virtual = a[0].spec.engine in VIRTUAL_ENGINES
    if left.keys() != right.keys() or (virtual and numbers[0] != numbers[1]):
        keys = [[key[0] if seeds else key for key in side] for side in numbers]
        raise UserError(
            f"the repeats do not match: (repeat, seed) are {some(keys[0])} in A and {some(keys[1])} in B: "
            "name the runs of one `bench run` instead of a folder that holds others too, or run both policies in one"
        )
    pairs: list[tuple[Run, Run]] = []
    equals = []
    for key in sorted(left):
        both = (left[key], right[key])
        pairs += zip(*both, strict=False)
        equals += [tuple(runs) for runs in both if len(runs) > min(map(len, both))]
    return Pairing(tuple(pairs), tuple(equals))


def _by_key(arm: Sequence[Run], seeds: bool) -> dict[tuple[int, int], list[Run]]:
    """An arm's runs by repeat and seed (with `seeds` those may differ), each key's in the order of their time."""
    found: dict[tuple[int, int], list[Run]] = {}
    for run in sorted(arm, key=lambda run: run.path.name):
        found.setdefault((run.spec.repeat, 0 if seeds else run.spec.seed), []).append(run)
    return found


def _check_arm(arm: Sequence[Run]) -> None:
    """UserError where the runs are no repeats of each other: another spec, or of a virtual engine an equal seed."""
    first = arm[0]
    for run in arm[1:]:
        differing = differences(first, run).keys() - _REPEAT
        if differing:
            raise UserError(
                f"{end_of_path(run)}: differs in {some(sorted(differing), 3)} from {end_of_path(first)}: "
                "not a repeat of it, so not one arm with it"
            )
    seeds = sorted(run.spec.seed for run in arm)
    if first.spec.engine in VIRTUAL_ENGINES and len(set(seeds)) < len(seeds):
        raise UserError(
            f"{len(seeds)} runs of {short(first.spec.policy)} have seeds {some(seeds)}: equal seeds are no repeats, "
            "since a virtual run repeats itself exactly: make repeats with `bench run --repeat`"
        )
