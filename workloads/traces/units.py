"""The unit of a trace's times: what its form says, unless its own numbers speak against that.

A unit that is taken wrongly is off by 1,000, so rates are held against a band that is no wider than that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from workloads.core.trace import UNIT_QUESTION, Floats, Ints

# How many of each unit make a second.
# Seconds since 1970 are 1.8e9; nanoseconds in 64 bits end at 9.2e9 s.
LARGEST_S = 9e9
UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
# Requests a second: what services see. Outside, another unit is asked about where its rate lies inside.
LEAST_RATE, MOST_RATE = 0.1, 100.0
# Beyond these it is rather the unit that is wrong, whatever another would say.
LOWEST_RATE, HIGHEST_RATE = 1e-3, 1e4
# Fewer rows tell no rate.
ENOUGH_ROWS = 10


@dataclass(frozen=True, slots=True)
class Unit:
    """How many of a file's times make a second, and what to say of that.

    `note` tells what was decided, `notice` what is odd, `question` what only the user knows.
    """

    per_second: float
    note: str | None = None
    notice: str | None = None
    question: str | None = None

    def join(self, source: dict[str, Any]) -> None:
        """Puts what there is to say into a trace's source."""
        for key, line in (("notes", self.note), ("notices", self.notice), ("notices", self.question)):
            if line:
                source[key] = [*source.get(key, ()), line]
        if self.question:
            source[UNIT_QUESTION] = self.question


def unit_of(file: str, stamps: Ints | Floats, form: str, given: str = "") -> Unit:
    """The unit of times that a form counts in `form` (s or ms): the one that is `given`, else the form's.

    Fractions in a field of whole milliseconds are seconds where the rate allows that alone. A rate outside the band,
    which another unit would bring inside, is a question.
    """
    span = float(stamps.max()) - float(stamps.min()) if len(stamps) else 0.0
    unit = UNITS[given or form]
    if not span:
        odd = f"{file}: all {len(stamps):,} rows have one time: everything is sent at once"
        return Unit(unit, notice=odd if len(stamps) > 1 else None)
    if given:
        return Unit(unit)
    rates = {name: (len(stamps) - 1) / span * per for name, per in UNITS.items()}
    fitting = [name for name, rate in rates.items() if LEAST_RATE <= rate <= MOST_RATE]
    rate = rates[form]
    if form == "ms" and fitting != ["ms"] and (np.mod(stamps, 1) != 0).any():
        if fitting == ["s"]:
            return Unit(
                1.0,
                note=f"{file}: its times have fractions, and {rates['s']:.3g} requests/s as seconds ({rate:.3g} as "
                "milliseconds): read as seconds; unit=ms reads them as milliseconds",
            )
        return Unit(unit, question=_question(file, "has fractions, which milliseconds have not", rates, form))
    another = len(stamps) >= ENOUGH_ROWS and form not in fitting and bool(fitting)
    if another or not LOWEST_RATE <= rate <= HIGHEST_RATE:
        return Unit(unit, question=_question(file, f"{rate:.3g} requests/s if they are {form}", rates, form))
    return Unit(unit)


def _question(file: str, found: str, rates: dict[str, float], form: str) -> str:
    others = ", ".join(f"{rates[name]:.3g} as {name}" for name in UNITS if name != form)
    return f"{file}: in which unit are its times? {found}; {others}: say unit=s, unit=ms, unit=us or unit=ns"
