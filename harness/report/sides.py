"""Which arms are held against each other: those of one folder, or of two folders policy by policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness.core.errors import UserError
from harness.core.text import short, some
from harness.report.arms import arms_of, without_older_copies
from harness.runs.run import Run

# The arm that is A where nobody named one.
BASELINES = ("v1", "stock", "v0")

Sides = list[tuple[list[Run], list[Run]]]


def sides_of(folders: Sequence[Sequence[Run]], baseline: str | None = None, alone: bool = True) -> tuple[Sides, int]:
    """Pairs of arms (A, B), and how many exact copies of virtual runs were left out.

    One folder: its baseline against each other arm; the first is A where several paths were named (not `alone`). Two
    folders or more: each policy's runs in the first against the same policy's in every other one, never pooled; a
    folder that holds one arm is held against the first's only one, whatever its policy. UserError where there are no
    two arms.
    """
    kept, copies = [], 0
    for runs in folders:
        own, left_out = without_older_copies(runs)
        kept.append(arms_of(own))
        copies += left_out
    if len(kept) == 1:
        return _of_one(kept[0], baseline, alone), copies
    first, *others = kept
    sides: Sides = []
    for arms in others:
        sides += _of_two(first, arms)
    if baseline is not None:
        sides = [pair for pair in sides if pair[0][0].spec.policy == baseline]
        if not sides:
            raise UserError(f"--baseline {short(baseline)}: no such arm in the first folder")
    return sides, copies


def folders_of(paths: Sequence[Path], runs: Sequence[Sequence[Run]]) -> list[list[Run]]:
    """What each path holds, as folders: several paths are one folder together where some are single runs.

    Two single runs of one arm are two arms: there is nothing else that they could be.
    """
    single = [(path / "run.json").is_file() for path in paths]
    if len(paths) == 2 and all(single) and len(arms_of([*runs[0], *runs[1]])) == 1:
        return [list(one) for one in runs]
    if len(paths) > 1 and not any(single):
        arms = [arms_of(one) for one in runs]
        if any(len(one) > 1 for one in arms) or len(arms_of([run for one in runs for run in one])) < len(paths):
            return [list(one) for one in runs]
    return [[run for one in runs for run in one]]


def _of_one(arms: list[list[Run]], baseline: str | None, alone: bool) -> Sides:
    first, *others = with_baseline(arms, baseline, alone)
    return [(first, other) for other in others]


def with_baseline(arms: list[list[Run]], baseline: str | None, alone: bool) -> list[list[Run]]:
    """The arms with A first: the policy named, else the first named, else (`alone`: one directory holds them all) v1.

    Without v1, stock or v0 in that directory the first that the runs' own command named.
    """
    policies = [arm[0].spec.policy for arm in arms]
    if baseline is None and not alone:
        return arms
    if baseline is None:
        usual = next((name for name in BASELINES if name in policies), None)
        return sorted(arms, key=lambda arm: (arm[0].spec.policy != usual, _named(arm)))
    if baseline not in policies:
        raise UserError(f"--baseline {short(baseline)}: no such arm: {some(policies, 4)}")
    return sorted(arms, key=lambda arm: arm[0].spec.policy != baseline)


def _named(arm: Sequence[Run]) -> int:
    """Where the command that made an arm named its policy; what it did not name comes last."""
    command = " ".join(map(str, arm[0].manifest.get("provenance", {}).get("command", ())))
    place = command.find(arm[0].spec.policy.partition(":")[0], command.find("--policy"))
    return place if "--policy" in command and place >= 0 else len(command)


def _of_two(left: list[list[Run]], right: list[list[Run]]) -> Sides:
    """Arms that differ in nothing but the folder; where either holds one arm alone, that one."""
    if len(left) == len(right) == 1:
        return [(left[0], right[0])]
    sides: Sides = []
    for arm in left:
        spec = arm[0].spec
        same = [
            other
            for other in right
            if (other[0].spec.policy, other[0].spec.workload, other[0].spec.arrival, other[0].spec.gpu)
            == (spec.policy, spec.workload, spec.arrival, spec.gpu)
        ]
        close = [other for other in same if other[0].spec.slots == spec.slots] or same
        if close:
            sides.append((arm, close[0]))
    if not sides:
        names = [some([arm[0].spec.policy for arm in arms], 4) for arms in (left, right)]
        raise UserError(f"the folders share no policy under one load: the first has {names[0]}, the other {names[1]}")
    return sides
