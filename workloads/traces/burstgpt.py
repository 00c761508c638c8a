"""BurstGPT: seconds, model, lengths and kind of log a row, with session and elapsed time since v1.2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from workloads.core.reading import spelled
from workloads.core.trace import Ints, Trace
from workloads.traces.assemble import assemble
from workloads.traces.file_options import NO_BLOCKS, NOTHING, FileOptions
from workloads.traces.table import read_table
from workloads.traces.units import unit_of

COLUMNS = ("Timestamp", "Request tokens", "Response tokens")
OPTIONAL = ("Session ID", "Model", "Log Type")
FAILED = "failed requests (0 response tokens)"


def load(path: Path, given: FileOptions = NOTHING) -> Trace:
    """The trace of a BurstGPT file, columns by name: failed rows skipped and counted, sessions where it has them.

    Models and kinds of log are counted in `source`, over all rows of the file. A row without a session is one alone.
    """
    given.refuse(path, no_blocks=NO_BLOCKS)
    table = read_table(path, COLUMNS, OPTIONAL, "burstgpt")
    source: dict[str, Any] = {
        "format": "burstgpt",
        "data_set": "BurstGPT",
        "licence": "CC-BY-4.0 as published (HPMLL/BurstGPT)",
    }
    for name, key in (("Model", "models"), ("Log Type", "log_types")):
        if name in table.columns:
            source[key] = _counts(table.columns[name])
    return assemble(
        path,
        source,
        prompt_tokens=table.whole("Request tokens"),
        output_tokens=table.whole("Response tokens"),
        stamps=table.times("Timestamp", given.unit),
        unit=lambda file, stamps: unit_of(file, stamps, "s", given.unit),
        session=_sessions(table.columns["Session ID"]) if "Session ID" in table.columns else None,
        empty_output=FAILED,
    )


def _counts(text: Any) -> dict[str, int]:
    """The sixteen most frequent values of a column and how often each occurs."""
    counts = {spelled(value["values"], 60): value["counts"] for value in text.value_counts().to_pylist()}
    return dict(sorted(counts.items(), key=lambda item: -item[1])[:16])


def _sessions(text: Any) -> Ints:
    """A number a session, in the order in which they come; of its own for a row that names none."""
    import pyarrow.compute as pc

    encoded = text.dictionary_encode()
    session = np.asarray(encoded.indices).astype(np.int64)
    alone = np.asarray(pc.equal(text, ""))
    session[alone] = len(encoded.dictionary) + np.arange(int(alone.sum()))
    return session
