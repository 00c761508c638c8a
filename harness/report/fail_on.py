"""`--fail-on`: a condition on arms and their comparison that sets the exit code, for CI."""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.core.text import one_line
from harness.measure.facts import metric_names
from harness.measure.metrics import METRICS, PROFITS
from harness.measure.verdict import LEVELS
from harness.report.comparison import Comparison
from harness.report.sentences import change_with_interval
from harness.report.support import WORDS
from harness.report.words import BETTER, NOT_TESTED, WORSE, ComparedMetric, own_word, steady_name
from harness.runs.run import Run

_FAIL_ON = re.compile(
    r"\s*([a-z0-9_]+(?:\.(?:mean|p50|p90|p95|p99))?)\s*(?:(<=|>=|<|>)\s*([+-]?\d+(?:\.\d+)?)\s*(%|ms|s)?|(worse))"
    r"\s*(supported|likely)?\s*"
)
_OPERATORS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_EXAMPLE = (
    'write METRIC<PERCENT% or METRIC>VALUE, worse, METRIC worse or INVALID, in quotes, such as "output_throughput<-5%" '
    'or "ttft_s.p95>1"'
)


@dataclass(frozen=True, slots=True)
class FailOn:
    """A condition for CI, which fails where it is met.

    A change in percent (`is_change`) is met where B differs from A by as much and the word says that it differs; of one
    repeat, which gets no word, where the values differ by as much. A value is held against B's own, in the metric's
    unit. `worse` asks for the word alone, of one metric or of the headline rows; a `level` for a run's verdict. With
    `required` (supported, likely) it also fails where the cost models of simulated arms do not agree so far.
    """

    text: str
    metric: str = ""
    sign: str = ""
    limit: float = 0.0
    is_change: bool = False
    required: str = ""
    level: str = ""

    @property
    def needs_two(self) -> bool:
        """Whether the condition is about a difference of two arms."""
        return self.is_change or not (self.sign or self.level)

    def failure(self, comparison: Comparison) -> str | None:
        """Why the condition fails, None where it does not; what could not be compared fails.

        UserError for a metric that the comparison does not have.
        """
        if self.level:
            return self.failure_alone([*comparison.a, *comparison.b])
        if not self.metric:
            rows = [comparison.metrics[name] for name in comparison.headline]
            worse = [row for row in rows if row.word == WORSE]
            if comparison.refusal:
                return f"--fail-on {self.text}: not compared: {comparison.refusal}"
            return f"--fail-on {self.text}: {'; '.join(map(_told, worse))}" if worse else None
        compared = self._row(comparison)
        if self.sign and not self.is_change:
            return self._beyond(compared.b, comparison.b[0].spec.label)
        if comparison.refusal or compared.change is None:
            return f"--fail-on {self.text}: {self.metric} was {compared.word}"
        return f"--fail-on {self.text}: {_told(compared)}" if self._is_met(compared) else self._unsupported(compared)

    def failure_alone(self, runs: Sequence[Run]) -> str | None:
        """Why one arm fails by itself, None where it does not: a value over its repeats, or a run's verdict."""
        if self.level:
            found = [run for run in runs if run.level == self.level]
            return f"--fail-on {self.text}: {found[0].path}: {found[0].level}" if found else None
        base, _, percentile = self.metric.partition(".")
        key = percentile or ("value" if METRICS[base].kind == "number" else "mean")
        values = [run.summary.get("metrics", {}).get(base, {}).get(key) for run in runs]
        known = [float(value) for value in values if value is not None]
        if not known or len(known) < len(values):
            return f"--fail-on {self.text}: {runs[0].spec.label} has no {self.metric}"
        return self._beyond(sum(known) / len(known), runs[0].spec.label)

    def _row(self, comparison: Comparison) -> ComparedMetric:
        """The metric's row, its steady one where the comparison has it."""
        metrics = comparison.metrics
        compared = metrics.get(steady_name(self.metric)) or metrics.get(self.metric)
        if compared is None:
            told = f"the comparison has no {self.metric}; the nearest that it has are {_near(self.metric, metrics)}"
            raise UserError(f"--fail-on {self.text!r}: {told}")
        return compared

    def _beyond(self, value: float | None, label: str) -> str | None:
        if value is None:
            return f"--fail-on {self.text}: {label} has no {self.metric}"
        if not _OPERATORS[self.sign](value, self.limit):
            return None
        unit = METRICS[self.metric.partition(".")[0]].unit
        return f"--fail-on {self.text}: {label} has {self.metric} of {value:.4g} {unit}".rstrip()

    def _is_met(self, compared: ComparedMetric) -> bool:
        word, change = own_word(compared), compared.change or 0.0
        if not self.sign:
            return word == WORSE
        if compared.ratio is None:
            # Against nothing every change is beyond every share.
            change = change * float("inf") if change else 0.0
        return _OPERATORS[self.sign](100 * change, self.limit) and word in (BETTER, WORSE, NOT_TESTED)

    def _unsupported(self, compared: ComparedMetric) -> str | None:
        if not self.required:
            return None
        support = compared.support
        if support is None:
            return f"--fail-on {self.text}: {self.metric} was not compared with other cost models"
        enough = WORDS[: 1 if self.required == "supported" else 2]
        return None if support.word in enough else f"--fail-on {self.text}: {self.metric}: {support.word}"


def parse_fail_on(text: str) -> FailOn:
    """Read `output_throughput<-5%`, `ttft_s.p95>1`, `worse` or `INVALID`; UserError with an example else."""
    plain = text.strip()
    if plain in LEVELS[1:]:
        return FailOn(text, level=plain)
    if plain == WORSE:
        return FailOn(text)
    condition = _FAIL_ON.fullmatch(text)
    if condition is None:
        raise UserError(f"--fail-on {one_line(repr(text))}: not understood; {_EXAMPLE}")
    metric, sign, number, unit, _, required = condition.groups()
    metric = metric.removesuffix(".mean")
    # Profit is computed from prices that a comparison does not have.
    comparable = [name for name in metric_names() if name not in PROFITS]
    if metric not in comparable:
        raise UserError(
            f"--fail-on {text!r}: no metric {metric} in a comparison, where the nearest are "
            f"{_near(metric, comparable)}; {_EXAMPLE}"
        )
    if unit in ("ms", "s") and METRICS[metric.partition(".")[0]].unit != "s":
        raise UserError(f"--fail-on {text!r}: {metric} is no time")
    limit = float(number or 0) * (1e-3 if unit == "ms" else 1.0)
    return FailOn(text, metric, sign or "", limit, unit == "%", required or "")


def _near(metric: str, known: Iterable[str]) -> str:
    return ", ".join(difflib.get_close_matches(metric, list(known), n=3, cutoff=0))


def _told(compared: ComparedMetric) -> str:
    return f"{compared.metric} {change_with_interval(compared)}: {own_word(compared)}"
