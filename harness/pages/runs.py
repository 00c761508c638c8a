"""A page a run: how far to trust it, what decided it, every metric, its curves and its course, its raw files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import partial
from typing import Any

from harness.measure.metrics import METRICS, Metric
from harness.pages.boards import Arm, Board
from harness.pages.charts import Chart, Series
from harness.pages.facets import source_of
from harness.pages.render import Writer
from harness.pages.site import Site
from harness.published.corpus import FILES, Entry
from harness.published.detail import CURVES, QUANTILES
from harness.report.document import is_twin


def write(site: Site, writer: Writer) -> None:
    """runs/ID/index.html for every run, its raw files beside it, and runs/index.html."""
    arms = {entry.id: (board, arm) for board in site.boards for arm in board.arms for entry in arm.entries}
    for entry in site.corpus.entries:
        files = []
        for name in FILES:
            path = entry.run.path / name
            if path.is_file():
                writer.copy(f"runs/{entry.id}/{name}", path)
                files.append((name, path.stat().st_size))
        board, arm = arms.get(entry.id, (None, None))
        siblings = _siblings(arm, entry)
        writer.page_of(
            f"runs/{entry.id}/index.html",
            "run.html.j2",
            [entry.where, entry.digest, board and board.id, [(one.id, one.run.spec.repeat) for one in siblings]],
            partial(_page, entry, board, siblings, files),
        )
    writer.page("runs/index.html", "runs.html.j2", entries=site.corpus.entries)


def _page(entry: Entry, board: Board | None, siblings: list[Entry], files: list[tuple[str, int]]) -> dict[str, Any]:
    """What the template of a run's page is given."""
    verdict = entry.run.manifest.get("verdict") or {"level": entry.run.level, "reasons": [], "checks": []}
    return {
        "entry": entry,
        "run": entry.run,
        "twin": is_twin(entry.run),
        "verdict": {"checks": [], **verdict},
        "board": board,
        "siblings": siblings,
        "files": files,
        "rates": list(_rates(entry)),
        "latencies": list(_latencies(entry)),
        "command": command(entry),
        "source": source_of(entry.run) if entry.run.kind == "reported" else None,
        "settings": list(_facts("", entry.run.told)),
        "facts": list(_facts("", entry.run.manifest.get("provenance", {}))),
        "charts": _charts(entry),
    }


def command(entry: Entry) -> str | None:
    """The command that repeats the run, as it was typed; None where none was (a reported run)."""
    argv = entry.run.manifest.get("provenance", {}).get("command")
    if not isinstance(argv, list) or not argv:
        return None
    return shlex.join(str(word) for word in argv)


def _siblings(arm: Arm | None, entry: Entry) -> list[Entry]:
    """The other repeats of the run's arm."""
    if arm is None:
        return []
    return [other for other in arm.entries if other.id != entry.id]


def _rates(entry: Entry) -> Iterator[tuple[Metric, dict[str, Any]]]:
    for name, values in entry.run.summary.get("metrics", {}).items():
        metric = METRICS.get(name)
        if metric is not None and metric.kind == "number" and values.get("value") is not None:
            yield metric, values


def _latencies(entry: Entry) -> Iterator[tuple[Metric, dict[str, Any]]]:
    for name, values in entry.run.summary.get("metrics", {}).items():
        metric = METRICS.get(name)
        if metric is not None and metric.kind == "distribution" and values.get("mean") is not None:
            yield metric, values


def _facts(prefix: str, values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Nested facts as names with dots and values as text; lists as JSON."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _facts(f"{prefix}{name}.", value)
        elif name != "command":
            plain = "–" if value is None or value in ({}, "") else value
            yield f"{prefix}{name}", plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def _charts(entry: Entry) -> list[Chart]:
    charts = []
    curves = entry.detail["curves"]
    if curves:
        known = [name for name in CURVES if name in curves]
        series = [Series(METRICS[name].label, curves[name], QUANTILES, i) for i, name in enumerate(known)]
        rows = tuple((q, *(curves[name][i] for name in known)) for i, q in enumerate(QUANTILES))
        headers = ("percentile", *(f"{METRICS[name].label} (s)" for name in known))
        charts.append(
            Chart(
                "curves", "Latencies", "seconds", "% of values at most this", tuple(series), headers, rows, x_log=True
            )
        )
    course = entry.detail["course"]
    if course:
        charts += [_phases(course), _load(course)]
        if any(one is not None for one in course.get("policy_k", [])):
            charts.append(_thresholds(course))
    return charts


def _phases(course: dict[str, list[Any]]) -> Chart:
    names = ("prefill", "mixed", "decode")
    shares = {name: [None if one is None else 100 * one for one in course[name]] for name in names}
    series = tuple(
        Series(name, course["t_s"], shares[name], i, extra={"stackgroup": "phases", "line": {"width": 0.5}})
        for i, name in enumerate(names)
    )
    rows = tuple(zip(course["t_s"], *(shares[name] for name in names), strict=True))
    title = "What the steps held (share of each stretch's step time)"
    return Chart("phases", title, "seconds", "% of step time", series, ("seconds", *names), rows)


def _load(course: dict[str, list[Any]]) -> Chart:
    names = ("running", "waiting")
    series = tuple(Series(name, course["t_s"], course[name], i) for i, name in enumerate(names))
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
