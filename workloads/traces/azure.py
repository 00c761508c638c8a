"""Azure's LLM inference traces of 2023 and 2024: a date and two lengths a row."""

from __future__ import annotations

from pathlib import Path

from workloads.core.trace import Trace
from workloads.traces.assemble import assemble
from workloads.traces.file_options import NO_BLOCKS, NOTHING, FileOptions
from workloads.traces.table import read_table
from workloads.traces.units import Unit

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def load(path: Path, given: FileOptions = NOTHING) -> Trace:
    """The trace of `TIMESTAMP,ContextTokens,GeneratedTokens`: dates of up to nine digits, with a zone or without."""
    import numpy as np

    given.refuse(path, no_times="this form has dates", no_blocks=NO_BLOCKS)
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
        unit=lambda _file, _stamps: Unit(1e9),
    )
