"""From Arrow tables and documents to pandas DataFrames; pandas is imported when the first frame is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.measure.metrics import METRICS
from harness.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SPEC_COLUMNS = (
    "gpu",
    "model",
    "workload",
    "policy",
    "arrival",
    "engine",
    "requests",
    "slots",
    "token_budget",
    "lengths",
    "seed",
    "repeat",
)
COUNT_COLUMNS = ("completed", "failed", "output_tokens", "prompt_tokens", "steps", "preemptions")
# What summary.json says of a metric besides its values.
NO_VALUES = ("unit", "count", "decimals")

# A unit as the end of a column's name.
UNITS = {"req/s": "req_per_s", "tok/s": "tok_per_s", "token·s": "token_s"}


def table_frame(table: pa.Table) -> pd.DataFrame:
    """A table with the same columns and values; whole numbers with gaps stay whole (Int64), names are categories."""
    import pandas as pd
    import pyarrow as pa

    columns = {}
    for name in table.column_names:
        column = table.column(name)
        whole = pa.types.is_integer(column.type) and column.null_count
        columns[name] = column.to_pandas(types_mapper=(lambda _: pd.Int64Dtype()) if whole else None)
    return pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))


def summary_row(run: Run) -> dict[str, Any]:
    """A run as one row: what it was, its verdict and counts, and each metric with its unit in the column's name.

    A distribution gives a column for each of mean, percentiles and max (`ttft_p99_s`), a number one of its own
    (`output_throughput_tok_per_s`). `…_low` and `…_high` before the unit are the ends of the 95 % interval of the
    mean or of the number.
    """
    # What a published figure does not say of its run stays empty.
    spec, counts = run.known_spec, run.manifest.get("counts", {})
    row: dict[str, Any] = {"path": str(run.path)}
    row |= {name: spec.get(name) for name in SPEC_COLUMNS}
    row |= {"kind": run.kind, "status": run.status, "verdict": run.level}
    row |= {name: counts.get(name) for name in COUNT_COLUMNS}
    for name, values in run.summary.get("metrics", {}).items():
        row |= {column_name(name, key): value for key, value in values.items() if key not in NO_VALUES}
    return row


def column_name(metric: str, key: str) -> str:
    """The column of a metric's value: `ttft_s` and `p99` give `ttft_p99_s`."""
    unit = METRICS[metric].unit if metric in METRICS else ""
    end = UNITS.get(unit, unit)
    name = metric.removesuffix(f"_{end}") if end else metric
    parts = [name, *([key] if key != "value" else []), *([end] if end else [])]
    return "_".join(parts)
