"""The length traces that travel with the package: numbers only, so that nothing needs a download."""

from __future__ import annotations

import json
from importlib import resources
from io import BytesIO

import numpy as np

from workloads.core.trace import Trace

COLUMNS = ("prompt_tokens", "output_tokens", "session", "turn")


def load_embedded(name: str) -> Trace:
    """The trace of workloads/lengths/NAME.csv: lengths uncapped, its header as source.

    The file's first line is `# ` and a JSON object, its second the column names, then one row a request.
    """
    content = resources.files("workloads").joinpath("lengths", f"{name}.csv").read_bytes()
    header, columns, rows = content.split(b"\n", 2)
    names = columns.decode().split(",")
    table = np.loadtxt(BytesIO(rows), delimiter=",", dtype=np.int64, ndmin=2, comments=None)
    assert set(names) <= set(COLUMNS), names
    column = dict(zip(names, np.ascontiguousarray(table.T), strict=True))
    return Trace(
        name,
        column["prompt_tokens"],
        column["output_tokens"],
        source=json.loads(header.removeprefix(b"# ")),
        session=column.get("session"),
        turn=column.get("turn"),
    )
