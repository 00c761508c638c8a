"""What is named of repeats before they run: runs of equals, the width that ends them, the rows whose words count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.core.text import shown
from harness.measure.looks import LOOKS
from harness.measure.measured import VIRTUAL_ENGINES
from harness.report.comparison import Comparison
from harness.report.words import REPEATS, Rules, read_headline
from harness.session.options import RunOptions


@dataclass(frozen=True, slots=True)
class RepeatPlan:
    """`aa` more runs of the first policy on its first stream (A/A), half a width that ends repeats, and the rules."""

    aa: int = 0
    until: float | None = None
    rules: Rules = field(default_factory=Rules)

    @property
    def named(self) -> dict[str, Any]:
        """What joins a run's provenance: it was decided before there were results."""
        named: dict[str, Any] = {"headline": list(self.rules.headline)} if self.rules.headline else {}
        return named if self.until is None else named | {"until": self.until}

    def with_equals(self, specs: Sequence[RunSpec], engine: str, first: str) -> list[RunSpec]:
        """The runs with those of equals spread evenly among them; UserError where a run would repeat itself exactly."""
        if not self.aa:
            return list(specs)
        if engine in VIRTUAL_ENGINES:
            raise UserError("--aa: a run in virtual time repeats itself exactly: use --repeat, which takes other seeds")
        planned = list(specs)
        settings = [spec for spec in specs if spec.policy == first and spec.repeat == 0]
        equals = [spec for _ in range(self.aa) for spec in settings]
        for place, spec in enumerate(equals):
            planned.insert(round((place + 1) * (len(planned) + 1) / (len(equals) + 1)), spec)
        return planned

    def looks_after(self, specs: Sequence[RunSpec], place: int) -> bool:
        """Whether the repeats are looked at after this run: all of so many repeats are there."""
        if self.until is None:
            return False
        ended = specs[place].repeat + 1
        return ended in LOOKS[:-1] and all(spec.repeat >= ended for spec in specs[place + 1 :])

    def narrow(self, comparisons: Sequence[Comparison]) -> str | None:
        """What to say where every headline interval is within the width; None where one is not."""
        if self.until is None or not comparisons:
            return None
        rows = [one.metrics[name] for one in comparisons if not one.refusal for name in one.headline]
        tested = [row for row in rows if row.over == REPEATS and row.difference is None]
        if not tested or any(row.shown_from is None or row.shown_from > self.until for row in tested):
            return None
        repeats = len(tested[0].values)
        return f"--until: every headline interval is within ± {100 * self.until:g} % after {repeats} repeats"


def repeat_plan(options: RunOptions, rules: Rules | None = None) -> RepeatPlan:
    """The plan that the options ask for; UserError where they contradict each other."""
    until = read_until(options.until)
    if until is not None and options.aa:
        raise UserError("--until and --aa: give one: runs of equals are no repeats that a width could end")
    given = rules or Rules(read_headline(options.headline) if options.headline else ())
    return RepeatPlan(options.aa, until, given)


def read_until(text: str | None) -> float | None:
    """`ci=3%` as half the width of an interval, a share; UserError where it is not."""
    if text is None:
        return None
    name, _, value = text.partition("=")
    number, sign, _ = value.partition("%")
    try:
        share = float(number) / (100 if sign else 1)
    except ValueError:
        share = 0.0
    if name.strip() != "ci" or not 0 < share < 1:
        raise UserError(f"--until {shown(text)}: write ci=SHARE, half the width of the intervals, such as ci=3%")
    return share
