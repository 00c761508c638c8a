"""A page a run: how far to trust it, what decided it, every metric, its curves and its course, its raw files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from harness.measure.metrics import METRICS, Metric
from harness.pages.boards import Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import source_of
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.published.corpus import FILES, PublishedRun
from harness.published.detail import CURVES, QUANTILES
from harness.published.submitted import submission_of
from harness.report.document import is_twin
from harness.runs.thin import is_thin


def write(site: Site, writer: Writer) -> None:
    """runs/index.html."""
    writer.page("runs/index.html", "runs.html.j2", runs=site.corpus.runs)


def page_of(published: PublishedRun, board: Board | None) -> tuple[str, str, Any, Callable[[], dict[str, Any]]]:
    """runs/ID/index.html as `Writer.page_of` takes it."""
    others = _other_repeats(board, published)
    told = [published.where, published.digest, board and board.id, [(one.id, one.run.spec.repeat) for one in others]]
    name = f"runs/{published.id}/index.html"
    return name, "run.html.j2", told, partial(_page, published, board, others)


def copy_files(published: PublishedRun, writer: Writer) -> None:
    """Puts the run's raw files beside its page."""
    for name, _ in _files(published):
        writer.copy(f"runs/{published.id}/{name}", published.run.path / name)


def _files(published: PublishedRun) -> list[tuple[str, int]]:
    """The names of the run's raw files, and their sizes in bytes."""
    paths = [published.run.path / name for name in FILES]
    return [(path.name, path.stat().st_size) for path in paths if path.is_file()]


def _page(published: PublishedRun, board: Board | None, others: list[PublishedRun]) -> dict[str, Any]:
    """What the template of a run's page is given."""
    run = published.run
    verdict = run.manifest.get("verdict") or {"level": run.level, "reasons": [], "checks": []}
    return {
        "published": published,
        "run": run,
        "twin": is_twin(run),
        "verdict": {"checks": [], **verdict},
        "board": board,
        "others": others,
        "files": _files(published),
        "thin": is_thin(run.path),
        "rates": list(_metrics(published, "number", "value")),
        "latencies": list(_metrics(published, "distribution", "mean")),
        "command": command(published),
        "source": source_of(run) if run.kind == "reported" else None,
        "settings": list(_facts("", run.known_spec)),
        "facts": list(_facts("", run.manifest.get("provenance", {}))),
        "charts": _charts(published),
        "submission": submission_of(run),
    }


def command(published: PublishedRun) -> str | None:
    """The command that repeats the run, as it was typed; None where none was (a reported run)."""
    argv = published.run.manifest.get("provenance", {}).get("command")
    if not isinstance(argv, list) or not argv:
        return None
    return shlex.join(str(word) for word in argv)


def _other_repeats(board: Board | None, published: PublishedRun) -> list[PublishedRun]:
    """The other repeats of the run's arm."""
    arms = [arm.runs for arm in board.arms if any(one.id == published.id for one in arm.runs)] if board else []
    return [other for runs in arms for other in runs if other.id != published.id]


def _metrics(published: PublishedRun, kind: str, central: str) -> Iterator[tuple[Metric, dict[str, Any]]]:
    """The run's metrics of a kind with their values, where the central one is there."""
    for name, values in published.run.summary.get("metrics", {}).items():
        metric = METRICS.get(name)
        if metric is not None and metric.kind == kind and values.get(central) is not None:
            yield metric, values


def _facts(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Nested facts as names with dots and values as text; lists as JSON."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _facts(f"{prefix}{name}.", value)
        elif name != "command":
            plain = "–" if value is None or value in ({}, "") else value
            yield f"{prefix}{name}", plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _charts(published: PublishedRun) -> list[Chart]:
    charts = []
    curves = published.detail["curves"]
    if curves:
        charts.append(_latency_curves(curves))
    course = published.detail["course"]
    if course:
        charts += [_phases(course), _requests(course)]
        if any(k is not None for k in course.get("policy_k", [])):
            charts.append(_thresholds(course))
        charts += [_own(course, name) for name in course if name.startswith("own.")]
    return charts


def _own(course: dict[str, list[Any]], column: str) -> Chart:
    """A column that the policy of a user's own declares."""
    name = column.removeprefix("own.")
    series = (Series(name, course["t_s"], course[column], 0),)
    rows = tuple(zip(course["t_s"], course[column], strict=True))
    return Chart(column.replace(".", "-"), f"The policy's own {name}", "seconds", name, series, ("seconds", name), rows)


def _latency_curves(curves: dict[str, list[float]]) -> Chart:
    names = [name for name in CURVES if name in curves]
    series = tuple(Series(METRICS[name].label, curves[name], QUANTILES, style) for style, name in enumerate(names))
    rows = tuple(zip(QUANTILES, *(curves[name] for name in names), strict=True))
    headers = ("percentile", *(f"{METRICS[name].label} (s)" for name in names))
    return Chart("curves", "Latencies", "seconds", "% of values at most this", series, headers, rows, x_log=True)


def _phases(course: dict[str, list[Any]]) -> Chart:
    names = ("prefill", "mixed", "decode")
    shares = [[None if share is None else 100 * share for share in course[name]] for name in names]
    series = tuple(Series(name, course["t_s"], shares[style], style, "area") for style, name in enumerate(names))
    rows = tuple(zip(course["t_s"], *shares, strict=True))
    title = "What the steps held (share of each stretch's step time)"
    return Chart("phases", title, "seconds", "% of step time", series, ("seconds", *names), rows)


def _requests(course: dict[str, list[Any]]) -> Chart:
    names = ("running", "waiting")
    series = tuple(Series(name, course["t_s"], course[name], style) for style, name in enumerate(names))
    rows = tuple(zip(course["t_s"], *(course[name] for name in names), course["gap"], strict=True))
    headers = ("seconds", *names, "gap (tokens)")
    return Chart("load", "Requests that hold a slot, and that wait", "seconds", "requests", series, headers, rows)


def _thresholds(course: dict[str, list[Any]]) -> Chart:
    none = [None] * len(course["t_s"])
    series = (
        Series("k (free slots that trigger a prefill phase)", course["t_s"], course["policy_k"], 0),
        Series("N (slots in use, at most)", course["t_s"], course.get("policy_n", none), 1),
    )
    mode = course.get("policy_mode", none)
    rows = tuple(zip(course["t_s"], course["policy_k"], course.get("policy_n", none), mode, strict=True))
    title = "What the policy held to be best"
    return Chart("thresholds", title, "seconds", "requests", series, ("seconds", "k", "N", "mode"), rows)
