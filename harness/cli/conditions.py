"""What the user made a condition of success: the options, and what holds them against the runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.core.errors import NotMet

if TYPE_CHECKING:
    from harness.report.comparison import Comparison
    from harness.report.fail_on import FailOn
    from harness.runs.run import Run

REQUIRE_VERDICT = click.option(
    "--require-verdict", type=click.Choice(["VALID", "DEGRADED"]), help="Exit with 1 where a run's verdict is worse."
)
FAIL_ON = click.option(
    "--fail-on", "conditions", multiple=True, metavar="COND", help='Exit 1 on this, in quotes: "output_throughput<-5%".'
)


def check_verdicts(runs: list[Run], level: str | None) -> None:
    """Raise NotMet where a run's verdict is worse than `level`; None takes any."""
    from harness.measure.verdict import LEVELS

    if level is None:
        return
    worse = [run for run in runs if LEVELS.index(run.level) > LEVELS.index(level)]
    if worse:
        raise NotMet("\n".join(f"{run.path}: {run.level}, not {level}" for run in worse))


def check_arms(tests: list[FailOn], runs: list[Run]) -> None:
    """Raise NotMet where one arm by itself meets what --fail-on names, a load at a time."""
    from harness.report.arms import arms_of

    failures = [failure for test in tests for arm in arms_of(runs) if (failure := test.failure_alone(arm))]
    if failures:
        raise NotMet("\n".join(failures))


def check_comparisons(tests: list[FailOn], comparisons: list[Comparison]) -> None:
    """Raise NotMet where a comparison meets what --fail-on names."""
    failures = [failure for test in tests for comparison in comparisons if (failure := test.failure(comparison))]
    if failures:
        raise NotMet("\n".join(failures))
