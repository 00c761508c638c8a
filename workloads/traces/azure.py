"""Azure's LLM inference traces of 2023 and 2024: a date and two lengths a row."""

from __future__ import annotations

from pathlib import Path

from workloads.core.trace import Trace
from workloads.traces.assemble import assemble
from workloads.traces.table import read_table

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def load(path: Path) -> Trace:
    """The trace of `TIMESTAMP,ContextTokens,GeneratedTokens`: dates of up to nine digits, with a zone or without."""
    import numpy as np

    table = read_table(path, COLUMNS, (), "azure")
    stamps, zoned = table.nanoseconds("TIMESTAMP")
    began = np.datetime_as_string(stamps.min().astype("datetime64[ns]"))
    return assemble(
        path,
        {
            "format": "azure",
            "data_set": "Azure LLM inference trace",
            "licence": "CC-BY-4.0 as published (Azure/AzurePublicDataset)",
            "began": f"{began}Z" if zoned else f"{began} (no time zone given)",
        },
        prompt_tokens=table.whole("ContextTokens"),
        output_tokens=table.whole("GeneratedTokens"),
        stamps=stamps,
        per_second=1e9,
    )
