"""What runs and comparisons look like on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from harness.core.text import percent, short
from harness.measure.fairness import DECODE, KV, alpha_of
from harness.measure.metrics import FAIRNESS, METRICS, Metric
from harness.measure.verdict import worst
from harness.report.arms import arms_of
from harness.report.document import kind_words, run_document
from harness.report.rows import show_steady_rows
from harness.report.sentences import could_have_shown, shown_word
from harness.report.words import HEADLINE, steady_name
from harness.runs.run import Run

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from harness.report.comparison import Comparison
    from harness.report.words import ComparedMetric

# What a table shows of a distribution; the others are in the JSON document.
_SHOWN = ("mean", "p50", "p99")

# Fairness metrics that a comparison shows, and what it calls them: the column is narrow.
_FAIRNESS_LABELS = {
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
        knew = "" if run.spec.lengths == "none" else f"[{run.spec.lengths} lengths] "
        lines.append(
            f"{run.level:<9}{kind_words(run):<25}{_number(rate):>8} tok/s  {run.spec.arrival:<26}{knew}{run.path}"
        )
    return lines


def show_table(run: Run) -> RenderableType:
    """One run: what it was, its verdict with the reasons, counts, and every metric with its 95 % interval."""
    from rich.console import Group
    from rich.text import Text

    from harness.core.folding import Folding

    document = run_document(run)
    counts = {name: value for name, value in document["counts"].items() if value is not None}
    tally = Text(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()), style="dim")
    tables = _metric_tables(run, document["metrics"])
    parts: list[RenderableType] = [_heading(run, document), tally, *map(Folding, tables)]
    if "gap_mean" in document["metrics"]:
        parts.append(Folding(_fairness_of_run(run, document["metrics"])))
    window = document["window"]
    if window:
        parts.append(Text(f"steady: {window['start_s']:.2f}–{window['end_s']:.2f} s, {window['rule']}", style="dim"))
    return Group(*parts)


def _heading(run: Run, document: dict[str, Any]) -> Text:
    """What a run was, its verdict with the reasons, and its notes."""
    from rich.text import Text

    spec = run.spec
    head = Text.assemble(
        (spec.label, "bold"), f" on {spec.gpu} · {spec.model} · {spec.workload} · {spec.arrival}\n",
        (kind_words(run), "bold"), f" · {run.status} · ", (run.level, _WORD_STYLE.get(run.level, "")),
    )  # fmt: skip
    for reason in document["verdict"]["reasons"]:
        head.append(f"\n  {reason}")
    for note in document["notes"]:
        head.append(f"\n  note: {note}")
    if not run.summary and run.kind != "reported":
        head.append(f"\n  note: there is no summary.json: `bench recover {run.path}` makes it")
    return head


def _metric_tables(run: Run, metrics: dict[str, Any]) -> tuple[Table, Table]:
    """The rates, and the latencies, each with its 95 % interval; fairness has a table of its own."""
    rates = _table_of_metrics(f"{kind_words(run)} rates", ("value", "95 % interval", "unit"))
    latencies = _table_of_metrics(f"{kind_words(run)} latencies", (*_SHOWN, "mean's 95 %", "unit"))
    for name, values in metrics.items():
        metric = METRICS.get(name)
        if metric is None or name in FAIRNESS:
            continue
        scale, unit = _scale(metric, values.get("value") or values.get("mean"))
        interval = _interval(values.get("low"), values.get("high"), scale)
        if metric.kind == "number":
            rates.add_row(name, _number(values.get("value"), scale), interval, unit)
        elif values.get("count") != 0:
            latencies.add_row(name, *(_number(values.get(statistic), scale) for statistic in _SHOWN), interval, unit)
    return rates, latencies


def _table_of_metrics(title: str, columns: Sequence[str]) -> Table:
    """An empty table with a metric a line."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="left" if column == "unit" else "right", no_wrap=True)
    return table


def _fairness_of_run(run: Run, metrics: dict[str, Any]) -> Table:
    """The fairness of one run, decode and KV footprint side by side."""
    alpha = alpha_of(run.spec)
    title = f"{kind_words(run)} fairness, " + ("no α to hold it against" if alpha is None else f"α = {alpha:g}")
    table = _table_of_metrics(title, ("decode", "95 % interval", "KV footprint", "unit"))
    for name, metric in FAIRNESS.items():
        decode, kv = metrics.get(name, {}), metrics.get(f"{name}{KV}", {})
        if name.endswith(KV) or not (decode or kv):
            continue
        scale, unit = _scale(metric, (decode or kv).get("value"))
        interval = _interval(decode.get("low"), decode.get("high"), scale)
        table.add_row(name, _number(decode.get("value"), scale), interval, _number(kv.get("value"), scale), unit)
    return table


def fairness_table(runs: Sequence[Run]) -> RenderableType | None:
    """The fairness of several runs, a line an arm that has a step log; None where none has."""
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    logged = [arm for arm in arms_of(runs) if all("gap_mean" in run.summary.get("metrics", {}) for run in arm)]
    if not logged:
        return None
    alphas = {alpha_of(arm[0].spec) for arm in logged}
    has_alpha = alphas != {None}
    over = f"> {next(iter(alphas)):g}" if len(alphas) == 1 and None not in alphas else "> own α"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("gaps, tokens", overflow="fold")
    for column in ("mean", "p99", "max", "E a token", "KV mean", "steps", *([over] if has_alpha else [])):
        table.add_column(column, justify="right", no_wrap=True)
    for arm in logged:
        documents = [run_document(run) for run in arm]
        names = ("gap_mean", "gap_p99", "gap_max", "externality_per_token", f"gap_mean{KV}", "makespan_steps")
        cells = [_mean(documents, name, "value") for name in names]
        if has_alpha:
            cells.append(_share_over_alpha(arm, documents))
        table.add_row(Text(arm[0].spec.policy + (f" ×{len(arm)}" if len(arm) > 1 else "")), *cells)
    return Folding(table)


def _share_over_alpha(arm: Sequence[Run], documents: Sequence[dict[str, Any]]) -> str:
    """The share of steps with a gap over the arm's α; an α of the policy's own may bound KV footprints."""
    counted = DECODE if alpha_of(arm[0].spec, DECODE) is not None else KV
    share = _mean(documents, f"violation_share{counted}", "value", 100)
    return share if share == "-" else f"{share} %{' KV' if counted == KV else ''}"


def compare_table(comparison: Comparison, percentiles: bool = False) -> RenderableType:
    """B against A: differences first, then metric by metric the change in percent, its interval and the word.

    The headline rows come first and bold; of the others each is one of many.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    kinds = " and ".join(sorted({kind_words(run) for run in comparison.a + comparison.b}))
    a, b = comparison.a[0].spec.label, comparison.b[0].spec.label
    head = Text.assemble("A ", (a, "bold"), "   B ", (b, "bold"), f"   {kinds}")
    for name, (left, right) in comparison.differences.items():
        head.append(f"\n  {name}: {short(left)} | {short(right)}")
    head.append(f"\n  {comparison.method}")
    if comparison.headline and not comparison.refusal:
        head.append(f"\n  headline: {', '.join(comparison.headline)} (Holm); every other row is exploratory")
    for note in comparison.notes:
        head.append(f"\n  {note}")
    if comparison.refusal:
        head.append(f"\n  not compared: {comparison.refusal}", style="red")

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("metric", no_wrap=True)
    for column in ("A", "B", "change", "95 % interval"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("B is", no_wrap=True)
    groups = {"": _worth_a_line(comparison, percentiles)}
    groups |= {phase: list(rows.values()) for phase, rows in comparison.phases.items()}
    for phase, shown in groups.items():
        if phase:
            table.add_row(Text(f"only {phase}", style="bold"))
        for compared in shown:
            style = "bold " if compared.role == HEADLINE else ""
            word = Text(shown_word(compared), style=style + _WORD_STYLE.get(compared.word, ""))
            if could := could_have_shown(compared):
                word.append(f" {could}", style="dim")
            table.add_row(*_compare_cells(compared), word)
    return Group(head, Folding(table))


def mixed_share(arm: Sequence[Run]) -> float | None:
    """The share of steps that the arm's policy spent in mixed mode, None where its policy has no choice."""
    import pyarrow.compute as pc

    if not arm[0].spec.policy.startswith("ebplus"):
        return None
    modes = [steps.column("policy_mode") for run in arm if (steps := run.steps()) is not None]
    total = sum(map(len, modes))
    mixed = sum(pc.sum(pc.equal(mode, "MB")).as_py() or 0 for mode in modes)
    return mixed / total if total else None


def run_table(runs: Sequence[Run]) -> RenderableType:
    """Several runs side by side, a line an arm: means over its repeats, all its failures, its worst verdict."""
    from rich.table import Table
    from rich.text import Text

    from harness.core.folding import Folding

    arms = arms_of(runs)
    title = " and ".join(sorted({kind_words(run) for run in runs}))
    if any(len(arm) > 1 for arm in arms):
        title += ", means of the repeats"
    steady = show_steady_rows(runs)
    if steady:
        title += "; start and end left out"
    suffix = "_steady" if steady else ""
    table = Table(title=title, box=None, pad_edge=False)
    table.title_justify, table.header_style = "left", "bold"
    table.add_column("policy", overflow="fold")
    # Only where a limit was given: without one there is no good and bad.
    goodput = ["goodput"] if any("goodput" in run.summary.get("metrics", {}) for run in runs) else []
    for column in ("tok/s", "req/s", *goodput, "TTFT p50 s", "p99 s", "ITL p99 ms", "failed"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for arm in arms:
        documents = [run_document(run) for run in arm]
        repeats = f" ×{len(arm)}" if len(arm) > 1 else ""
        level = worst(run.level for run in arm)
        table.add_row(
            Text(arm[0].spec.label + repeats),
            _mean(documents, f"output_throughput{suffix}", "value"),
            _mean(documents, f"request_throughput{suffix}", "value"),
            *(_mean(documents, f"{name}{suffix}", "value") for name in goodput),
            _mean(documents, f"ttft_s{suffix}", "p50"),
            _mean(documents, f"ttft_s{suffix}", "p99"),
            _mean(documents, f"itl_s{suffix}", "p99", 1000),
            str(sum(document["counts"]["failed"] or 0 for document in documents)),
            Text(level, style=_WORD_STYLE.get(level, "")),
        )
    return Folding(table)


def _mean(documents: Sequence[dict[str, Any]], name: str, key: str, scale: float = 1.0) -> str:
    """A metric's mean over the documents of an arm's repeats, a dash where one has none."""
    values = [document["metrics"].get(name, {}).get(key) for document in documents]
    if None in values:
        return "-"
    return _number(sum(values) / len(values), scale)


def _worth_a_line(comparison: Comparison, percentiles: bool) -> list[ComparedMetric]:
    """The metrics that are shown: steady rates under their rates, no percentile without an interval, nothing twice."""
    metrics = comparison.metrics
    shown: list[ComparedMetric] = [metrics[name] for name in comparison.headline]
    for name, compared in metrics.items():
        if "_steady" in name or compared.a == compared.b == 0:
            continue
        # In a closed loop both times to the first token are the same.
        ttft = metrics.get(name.replace("ttft_from_sent", "ttft"), compared)
        if ttft is not compared and (ttft.a, ttft.b) == (compared.a, compared.b):
            continue
        if not percentiles:
            if "." in name and not (name.endswith(".p99") and compared.low is not None):
                continue
            # KV footprints and time-weighted fairness stand beside decode's in the JSON document.
            if name in FAIRNESS and name not in _FAIRNESS_LABELS:
                continue
        pair = (compared, metrics.get(steady_name(name)))
        shown += [row for row in pair if row is not None and row.metric not in comparison.headline]
    return shown


def _compare_cells(compared: ComparedMetric) -> list[str]:
    """A metric's line but for the word: name with unit, A, B, change and interval."""
    metric = METRICS[compared.metric.partition(".")[0]]
    scale, unit = _scale(metric, compared.a)
    change, interval = _change_cells(compared)
    base = compared.metric.replace("_steady", "")
    name = base.removesuffix("_s").replace("_s.", ".").replace("_throughput", "")
    if metric.name in FAIRNESS:
        name = _FAIRNESS_LABELS.get(metric.name.removesuffix("_steady"), metric.name.replace("_", " "))
        name += " M" if scale < 1 else ""
    else:
        name = f"{name} {unit}"
    if base != compared.metric:
        # A steady row stands under its own, unless it leads.
        name = f"{name}, steady" if compared.role == HEADLINE else "  steady"
    return [name, _number(compared.a, scale), _number(compared.b, scale), change, interval]


def _change_cells(compared: ComparedMetric) -> tuple[str, str]:
    """The change and its interval, in percent, or in the metric's unit where it is compared by difference."""
    difference = compared.difference
    if difference is not None and not compared.is_identical:
        ends = (difference.low, difference.high)
        told = "-" if None in ends else " … ".join(f"{end:+.4g}" for end in ends if end is not None)
        return f"{difference.value:+.4g}", told
    change = "-" if compared.ratio is None else f"{percent(compared.ratio)}%"
    if compared.low is None or compared.high is None:
        return change, "-"
    return change, f"{percent(compared.low)} … {percent(compared.high)}%"


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
