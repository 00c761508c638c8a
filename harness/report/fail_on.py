"""`--fail-on`: a condition on a comparison that sets the exit code, for CI."""

from __future__ import annotations

import difflib
import operator
import re
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.measure.metrics import PROFITS
from harness.report.comparison import ComparedMetric, Comparison, metric_names
from harness.report.support import WORDS

_FAIL_ON = re.compile(
    r"\s*([a-z0-9_]+(?:\.(?:mean|p50|p90|p95|p99))?)\s*(<=|>=|<|>)\s*([+-]?\d+(?:\.\d+)?)\s*%\s*(supported|likely)?\s*"
)
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass(frozen=True, slots=True)
class FailOn:
    """A condition for CI: fails when the change of B against A, in percent of A, meets it.

    The change is the point value, whatever its interval: choose the limit wider than the noise. With `required`
    (supported, likely) it also fails where the cost models of simulated arms do not agree so far on its sign.
    """

    text: str
    metric: str
    sign: str
    percent: float
    required: str = ""

    def failure(self, comparison: Comparison) -> str | None:
        """Why the condition fails, None where it does not; what could not be compared fails.

        UserError for a metric that the comparison does not have.
        """
        compared = comparison.metrics.get(self.metric)
        if compared is None:
            others = ", ".join(comparison.metrics)
            raise UserError(f"--fail-on {self.text!r}: the comparison has no {self.metric}; it has {others}")
        if comparison.refusal or compared.ratio is None:
            return f"--fail-on {self.text}: {self.metric} was {compared.word}"
        change = 100 * (compared.ratio - 1)
        if _OPERATORS[self.sign](change, self.percent):
            return f"--fail-on {self.text}: {self.metric} changed by {change:+.2f}% ({compared.word})"
        return self._unsupported(compared)

    def _unsupported(self, compared: ComparedMetric) -> str | None:
        if not self.required:
            return None
        support = compared.support
        if support is None:
            return f"--fail-on {self.text}: {self.metric} was not held against other cost models"
        enough = WORDS[: 1 if self.required == "supported" else 2]
        return None if support.word in enough else f"--fail-on {self.text}: {self.metric}: {support.word}"


def parse_fail_on(text: str) -> FailOn:
    """Read `output_throughput<-5%` or `ttft_s.p99>10%`; UserError with an example where it is neither."""
    condition = _FAIL_ON.fullmatch(text)
    example = 'write METRIC<PERCENT%, in quotes, such as "output_throughput<-5%" or "ttft_s.p99>10%"'
    if condition is None:
        raise UserError(f"--fail-on {text!r}: not understood; {example}")
    metric = condition[1].removesuffix(".mean")
    # Profit is computed from prices that a comparison does not have.
    comparable = [name for name in metric_names() if name not in PROFITS]
    if metric not in comparable:
        near = difflib.get_close_matches(metric, comparable, n=3, cutoff=0) or comparable[:3]
        listed = ", ".join(near)
        raise UserError(
            f"--fail-on {text!r}: no metric {metric} in a comparison, where the nearest are {listed}; {example}"
        )
    return FailOn(text, metric, condition[2], float(condition[3]), condition[4] or "")
