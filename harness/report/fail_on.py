"""`--fail-on`: a condition on a comparison that sets the exit code, for CI."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.measure.metrics import PROFITS
from harness.report.comparison import Comparison, row_names

_FAIL_ON = re.compile(r"\s*([a-z0-9_]+(?:\.(?:mean|p50|p90|p95|p99))?)\s*(<=|>=|<|>)\s*([+-]?\d+(?:\.\d+)?)\s*%\s*")
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class FailOn:
    """A condition for CI: fails when the change of B against A, in percent of A, meets it.

    The change is the point value, whatever its interval: choose the limit wider than the noise.
    """

    text: str
    metric: str
    sign: str
    percent: float

    def failure(self, comparison: Comparison) -> str | None:
        """Why the condition fails, None where it does not; what could not be compared fails.

        UserError for a metric that the comparison does not have.
        """
        row = comparison.rows.get(self.metric)
        if row is None:
            raise UserError(
                f"--fail-on {self.text!r}: the comparison has no {self.metric}; it has {', '.join(comparison.rows)}"
            )
        if comparison.refusal or row.ratio is None:
            return f"--fail-on {self.text}: {row.metric} was {row.word}"
        change = 100 * (row.ratio - 1)
        if _OPERATORS[self.sign](change, self.percent):
            return f"--fail-on {self.text}: {row.metric} changed by {change:+.2f}% ({row.word})"
        return None


def parse_fail_on(text: str) -> FailOn:
    """Read `output_throughput<-5%` or `ttft_s.p99>10%`; UserError with an example where it is neither."""
    condition = _FAIL_ON.fullmatch(text)
    example = 'write METRIC<PERCENT%, in quotes, such as "output_throughput<-5%" or "ttft_s.p99>10%"'
    if condition is None:
        raise UserError(f"--fail-on {text!r}: not understood; {example}")
    name = condition[1].removesuffix(".mean")
    # Profit is computed from prices that a comparison does not have.
    known = [row for row in row_names() if row not in PROFITS]
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3, cutoff=0) or known[:3]
        raise UserError(
            f"--fail-on {text!r}: no metric {name} in a comparison, where the nearest are {', '.join(near)}; {example}"
        )
    return FailOn(text, name, condition[2], float(condition[3]))
