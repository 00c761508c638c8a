"""What runs and comparisons look like on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.core.text import percent, short
from harness.measure.fairness import DECODE, KV, alpha_of
from harness.measure.metrics import FAIRNESS, METRICS, Metric
from harness.measure.verdict import worst
from harness.report.arms import arms
from harness.runs.run import Run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from harness.report.comparison import Comparison, Row
from harness.report.document import is_twin, run_document

# What a table shows of a distribution; the others are in the JSON document.
_SHOWN = ("mean", "p50", "p99")


# Fairness metrics that a comparison shows, and what it calls them: the column is narrow.
_FAIRNESS_ROWS = {
    "gap_mean": "gap mean",
    "gap_p99": "gap p99",
    "gap_max": "gap max",
    "violation_share": "gaps > α",
    "excess_mean": "excess > α",
    "externality": "externality",
    "externality_per_token": "  a token",
    "makespan_steps": "steps",
}


_WORD_STYLE = {"better": "green", "worse": "red", "VALID": "green", "DEGRADED": "yellow", "INVALID": "red"}


def list_lines(runs: Sequence[Run]) -> list[str]:
    """A line a run, for eyes and for grep: verdict, kind, rate, arrival, and the path last and whole."""
    lines = []
    for run in runs:
        rate = run.summary.get("metrics", {}).get("output_throughput", {}).get("value")
        shown = "-" if rate is None else _number(rate)
        lines.append(f"{run.level:<9}{_kind(run):<25}{shown:>8} tok/s  {run.spec.arrival:<26}{_knew(run)}{run.path}")
    return lines


def show_table(run: Run) -> RenderableType:
    """One run: what it was, its verdict with the reasons, counts, and every metric with its 95 % interval."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    spec, document = run.spec, run_document(run)
    head = Text.assemble(
        (spec.label, "bold"), f" on {spec.gpu} · {spec.model} · {spec.workload} · {spec.arrival}\n",
        (_kind(run), "bold"), f" · {run.status} · ", (run.level, _WORD_STYLE.get(run.level, "")),
    )  # fmt: skip
    for reason in document["verdict"]["reasons"]:
        head.append(f"\n  {reason}")
    for note in document["notes"]:
        head.append(f"\n  note: {note}")
    if not run.summary and run.kind != "reported":
        head.append(f"\n  note: there is no summary.json: `bench recover {run.path}` makes it")
    counts = {name: value for name, value in document["counts"].items() if value is not None}
    tally = Text(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()), style="dim")

    numbers = Table(title=f"{_kind(run)} rates", title_justify="left", box=None, pad_edge=False, header_style="bold")
    latencies = Table(title=f"{_kind(run)} latencies", title_justify="left", box=None, pad_edge=False)
    latencies.header_style = "bold"
    for table, columns in (
        (numbers, ("value", "95 % interval", "unit")),
        (latencies, (*_SHOWN, "mean's 95 %", "unit")),
    ):
        table.add_column("metric", no_wrap=True)
        for column in columns:
            table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for name, values in document["metrics"].items():
        metric = METRICS.get(name)
        if metric is None or name in FAIRNESS:
            continue
        scale, unit = _scale(metric, values.get("value") or values.get("mean"))
        interval = _interval(values.get("low"), values.get("high"), scale)
        if metric.kind == "number":
            numbers.add_row(name, _number(values.get("value"), scale), interval, unit)
        elif values.get("count") != 0:
            latencies.add_row(name, *(_number(values.get(one), scale) for one in _SHOWN), interval, unit)
    parts: list[RenderableType] = [head, tally, Folding(numbers), Folding(latencies)]
    if "gap_mean" in document["metrics"]:
        parts.append(_fairness_of_one(run, document["metrics"]))
    window = document["window"]
    if window:
        parts.append(Text(f"steady: {window['start_s']:.2f}–{window['end_s']:.2f} s, {window['rule']}", style="dim"))
    return Group(*parts)


def _fairness_of_one(run: Run, metrics: dict[str, Any]) -> RenderableType:
    """The fairness of one run, decode and KV footprint side by side."""
    from rich.table import Table

    from harness.core.folding import Folding

    alpha = alpha_of(run.spec)
    title = f"{_kind(run)} fairness, " + ("no α to hold it against" if alpha is None else f"α = {alpha:g}")
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    for column in ("decode", "95 % interval", "KV footprint", "unit"):
        table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    for name, metric in FAIRNESS.items():
        decode, kv = (metrics.get(one, {}) for one in (name, f"{name}{KV}"))
        if name.endswith(KV) or not (decode or kv):
            continue
        scale, unit = _scale(metric, (decode or kv).get("value"))
        interval = _interval(decode.get("low"), decode.get("high"), scale)
        values = [_number(one.get("value"), scale) for one in (decode, kv)]
        table.add_row(name, values[0], interval, values[1], unit)
    return Folding(table)


def fairness_table(runs: Sequence[Run]) -> RenderableType | None:
    """The fairness of several runs, a line an arm that has a step log; None where none has."""
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    known = [arm for arm in arms(runs) if all("gap_mean" in run.summary.get("metrics", {}) for run in arm)]
    if not known:
        return None
    alphas = {alpha_of(arm[0].spec) for arm in known}
    over = f"> {next(iter(alphas)):g}" if len(alphas) == 1 and None not in alphas else "> own α"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("gaps, tokens", overflow="fold")
    for column in ("mean", "p99", "max", "E a token", "KV mean", "steps", *([over] if alphas != {None} else [])):
        table.add_column(column, justify="right", no_wrap=True)
    for arm in known:
        documents = [run_document(run) for run in arm]
        names = ("gap_mean", "gap_p99", "gap_max", "externality_per_token", f"gap_mean{KV}", "makespan_steps")
        cells = [_mean(documents, name, "value") for name in names]
        if alphas != {None}:
            # An α of the policy's own may bound KV footprints.
            counted = DECODE if alpha_of(arm[0].spec, DECODE) is not None else KV
            share = _mean(documents, f"violation_share{counted}", "value", 100)
            cells.append(share if share == "-" else f"{share} %{' KV' if counted else ''}")
        table.add_row(Text(arm[0].spec.policy + (f" ×{len(arm)}" if len(arm) > 1 else "")), *cells)
    return Folding(table)


def compare_table(comparison: Comparison, percentiles: bool = False) -> RenderableType:
    """B against A: differences first, then metric by metric the change in percent, its interval and the word."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    kinds = " and ".join(sorted({_kind(run) for run in comparison.a + comparison.b}))
    a, b = comparison.a[0].spec.label, comparison.b[0].spec.label
    head = Text.assemble("A ", (a, "bold"), "   B ", (b, "bold"), f"   {kinds}")
    for name, (left, right) in comparison.differences.items():
        head.append(f"\n  {name}: {short(left)} | {short(right)}")
    head.append(f"\n  {comparison.method}")
    for note in comparison.notes:
        head.append(f"\n  {note}")
    if comparison.refusal:
        head.append(f"\n  not compared: {comparison.refusal}", style="red")

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    for column in ("A", "B", "change", "95 % interval"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("B is", no_wrap=True)
    for row in _in_order(comparison, percentiles):
        table.add_row(*_compare_cells(row), Text(row.word, style=_WORD_STYLE.get(row.word, "")))
    return Group(head, Folding(table))


def mixed_share(arm: Sequence[Run]) -> float | None:
    """The share of steps that the arm's policy spent in mixed mode, None where its policy has no choice."""
    import pyarrow.compute as pc

    if not arm[0].spec.policy.startswith("ebplus"):
        return None
    modes = [steps.column("policy_mode") for run in arm if (steps := run.steps()) is not None]
    total = sum(len(one) for one in modes)
    return sum(pc.sum(pc.equal(one, "MB")).as_py() or 0 for one in modes) / total if total else None


def run_table(runs: Sequence[Run]) -> RenderableType:
    """Several runs side by side, a line an arm: means over its repeats, all its failures, its worst verdict."""
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    title = " and ".join(sorted({_kind(run) for run in runs}))
    if any(len(arm) > 1 for arm in arms(runs)):
        title += ", means of the repeats"
    table = Table(title=title, box=None, pad_edge=False)
    table.title_justify, table.header_style = "left", "bold"
    table.add_column("policy", overflow="fold")
    for column in ("tok/s", "req/s", "TTFT p50 s", "p99 s", "ITL p99 ms", "failed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for arm in arms(runs):
        documents = [run_document(run) for run in arm]
        repeats = f" ×{len(arm)}" if len(arm) > 1 else ""
        level = worst(run.level for run in arm)
        table.add_row(
            Text(arm[0].spec.label + repeats),
            _mean(documents, "output_throughput", "value"),
            _mean(documents, "request_throughput", "value"),
            _mean(documents, "ttft_s", "p50"),
            _mean(documents, "ttft_s", "p99"),
            _mean(documents, "itl_s", "p99", 1000),
            str(sum(document["counts"]["failed"] or 0 for document in documents)),
            Text(level, style=_WORD_STYLE.get(level, "")),
        )
    return Folding(table)


def _mean(documents: Sequence[dict[str, Any]], name: str, key: str, scale: float = 1.0) -> str:
    values = [document["metrics"].get(name, {}).get(key) for document in documents]
    if None in values:
        return "-"
    return _number(sum(values) / len(values), scale)


def _knew(run: Run) -> str:
    return "" if run.spec.lengths == "none" else f"[{run.spec.lengths} lengths] "


def _kind(run: Run) -> str:
    return f"{run.kind}, twin lengths" if is_twin(run) else run.kind


def _in_order(comparison: Comparison, percentiles: bool) -> list[Row]:
    """The rows worth a line: steady rates under their rates, no percentile without an interval, nothing twice."""
    rows = comparison.rows
    shown: list[Row] = []
    for name, row in rows.items():
        same = rows.get(name.replace("ttft_from_sent", "ttft"))
        twice = same is not None and same is not row and (same.a, same.b) == (row.a, row.b)
        thin = "." in name and not (percentiles or (name.endswith(".p99") and row.low is not None))
        # KV footprints and time-weighted fairness stand beside decode's in the JSON document.
        thin |= name in FAIRNESS and name not in _FAIRNESS_ROWS and not percentiles
        if name.endswith("_steady") or twice or thin or row.a == row.b == 0:
            continue
        shown += [row, *(rows[one] for one in (f"{name}_steady",) if one in rows)]
    return shown


def _compare_cells(row: Row) -> list[str]:
    metric = METRICS[row.metric.partition(".")[0]]
    scale, unit = _scale(metric, row.a)
    change = "-" if row.ratio is None else f"{percent(row.ratio)}%"
    interval = "-"
    if row.low is not None and row.high is not None:
        interval = f"{percent(row.low)} … {percent(row.high)}%"
    name = row.metric.removesuffix("_s").replace("_s.", ".").replace("_throughput", "")
    # A steady rate stands under its own rate.
    name = "  steady" if name.endswith("_steady") else f"{name} {unit}"
    if metric.name in FAIRNESS:
        name = _FAIRNESS_ROWS.get(metric.name, metric.name.replace("_", " "))
        name += " M" if scale < 1 else ""
    return [name, _number(row.a, scale), _number(row.b, scale), change, interval]


def _scale(metric: Metric, value: float | None) -> tuple[float, str]:
    """Milliseconds for short times, millions for tokens that no column holds."""
    if metric.unit == "s" and value is not None and 0 < value < 1:
        return 1000.0, "ms"
    if metric.name in FAIRNESS and value is not None and abs(value) >= 1e6:
        return 1e-6, f"M {metric.unit}"
    return 1.0, metric.unit


def _number(value: float | None, scale: float = 1.0) -> str:
    if value is None:
        return "-"
    value *= scale
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _interval(low: float | None, high: float | None, scale: float) -> str:
    return "-" if low is None or high is None else f"{_number(low, scale)} … {_number(high, scale)}"
