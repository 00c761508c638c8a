"""The JSON documents as flat rows, and rows as CSV for a spreadsheet or Markdown for a pull request."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

FlatRow = dict[str, Any]

# What tells one run from another in a row.
RUN_COLUMNS = ("gpu", "model", "workload", "arrival", "policy", "repeat", "kind", "status")
# Metrics of one line per run: those that a list is read for.
LISTED = (
    ("output_throughput", "value", "output_throughput_tok_per_s"),
    ("request_throughput", "value", "request_throughput_req_per_s"),
    ("ttft_s", "mean", "ttft_mean_s"),
    ("ttft_s", "p99", "ttft_p99_s"),
    ("tpot_s", "mean", "tpot_mean_s"),
)
VALUES = ("value", "mean", "p50", "p90", "p95", "p99", "max", "low", "high")


def listed_rows(document: Mapping[str, Any]) -> list[FlatRow]:
    """One row per run of `{"runs": […]}`: what it was, its verdict, and the metrics that a list is read for."""
    return [
        _run_columns(run)
        | {column: run["metrics"].get(metric, {}).get(key) for metric, key, column in LISTED}
        | {"failed": run["counts"]["failed"], "dir": run["dir"]}
        for run in document["runs"]
    ]


def metric_rows(document: Mapping[str, Any]) -> list[FlatRow]:
    """One row per run and metric of `{"runs": […]}`; `low` and `high` are the ends of the 95 % interval."""
    return [
        _run_columns(run)
        | {"metric": metric, "unit": values.get("unit")}
        | {key: values.get(key) for key in VALUES}
        | {"dir": run["dir"]}
        for run in document["runs"]
        for metric, values in run["metrics"].items()
    ]


def comparison_rows(policy_a: str, policy_b: str, document: Mapping[str, Any]) -> list[FlatRow]:
    """One row per metric of a comparison: both values in `unit`, the change of B in percent with its interval.

    Rows of one phase of a load that changes by plan say so in `phase`, and come last.
    """
    rows = _rows_of(policy_a, policy_b, document["metrics"])
    for phase, metrics in document["phases"].items():
        rows += [row | {"phase": phase} for row in _rows_of(policy_a, policy_b, metrics)]
    return rows


def _rows_of(policy_a: str, policy_b: str, metrics: Mapping[str, Any]) -> list[FlatRow]:
    return [
        {
            "policy_a": policy_a,
            "policy_b": policy_b,
            "metric": metric,
            "unit": values["unit"],
            "a": values["a"],
            "b": values["b"],
            "change_percent": _percent(values["ratio"]),
            "low_percent": _percent(values["low"]),
            "high_percent": _percent(values["high"]),
            "p": values["p"],
            "word": values["word"],
            "role": values["role"],
            "of": values["of"],
            "over": values["over"],
            "difference": (values["difference"] or {}).get("value"),
            "difference_low": (values["difference"] or {}).get("low"),
            "difference_high": (values["difference"] or {}).get("high"),
            "why": values["why"],
        }
        for metric, values in metrics.items()
    ]


def profit_rows(document: Mapping[str, Any]) -> list[FlatRow]:
    """One row per run of the document of `bench profit`; its curves are no rows."""
    rows = []
    for run in document["runs"]:
        own = run["profit"]
        row = {"name": run["name"]} | _run_columns(run)
        row["profit_tokenstep"] = run["metrics"].get("profit_tokenstep", {}).get("value")
        row |= {f"tokenstep_{key}": value for key, value in own.get("tokenstep", {}).items()}
        money = run["metrics"].get("profit_money", {})
        row |= {"profit_money": money.get("value"), "currency": money.get("unit")}
        row |= {key: own.get("money", {}).get(key) for key in ("revenue", "gpu_cost", "hours")}
        rows.append(row | {"dir": run["dir"]})
    return rows


def leaf_rows(document: Any, name: str = "") -> list[FlatRow]:
    """One row per value of any document, by its path: `{"a": {"b": 1}}` gives `a.b` and 1."""
    if isinstance(document, Mapping):
        parts: Sequence[tuple[str, Any]] = [(str(key), value) for key, value in document.items()]
    elif isinstance(document, list):
        parts = [(str(place), value) for place, value in enumerate(document)]
    else:
        return [{"name": name, "value": document}]
    return [row for key, value in parts for row in leaf_rows(value, f"{name}.{key}" if name else key)]


def as_csv(rows: Sequence[FlatRow]) -> str:
    """Rows as CSV with a heading; a value that is not known is empty, numbers have all their digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = _columns(rows)
    if columns:
        writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row.get(column) is None else row[column] for column in columns])
    return text.getvalue()


def as_markdown(rows: Sequence[FlatRow]) -> str:
    """Rows as a Markdown table: numbers with five digits, columns left out in which no row has a value."""
    columns = [column for column in _columns(rows) if any(row.get(column) is not None for row in rows)]
    if not columns:
        return ""
    numbers = [all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns]
    lines = [_line(columns), _line(["--:" if number else "---" for number in numbers])]
    lines += [_line([_cell(row.get(column)) for column in columns]) for row in rows]
    return "\n".join(lines) + "\n"


def _run_columns(run: Mapping[str, Any]) -> FlatRow:
    return {column: run[column] for column in RUN_COLUMNS} | {"verdict": run["verdict"]["level"]}


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100 * (ratio - 1)


def _columns(rows: Sequence[FlatRow]) -> list[str]:
    return list(dict.fromkeys(column for row in rows for column in row))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e5 else f"{value:.5g}"
    # A bar would end the cell, a line break the row.
    return " ".join(str(value).split()).replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;")
