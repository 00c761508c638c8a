"""A user's own file in any of the forms that are known, guessed from its content where nobody says."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from workloads.core.errors import WorkloadError
from workloads.core.reading import open_regular, spelled
from workloads.core.trace import Trace
from workloads.datasets.json_array import LONGEST_RECORD
from workloads.datasets.parquet import column_names
from workloads.datasets.sharegpt import TURNS, turns_of
from workloads.traces import azure, burstgpt, jsonl, mooncake, parquet, vidur
from workloads.traces.file_options import FileOptions
from workloads.traces.table import header_of

# What reads each form. ShareGPT has text to count, so it needs a tokenizer besides.
LOADERS: dict[str, Callable[[Path, FileOptions], Trace]] = {
    "jsonl": jsonl.load_jsonl,
    "parquet": parquet.load_parquet,
    "azure": azure.load,
    "mooncake": mooncake.load,
    "burstgpt": burstgpt.load,
    "vidur": vidur.load,
}
FORMATS = (*LOADERS, "sharegpt")
_CSV = {"azure": azure.COLUMNS, "burstgpt": burstgpt.COLUMNS, "vidur": vidur.COLUMNS}
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


def guess_format(path: Path) -> str:
    """The form of a file by its content; WorkloadError, naming what was found, where it is none that is known."""
    with open_regular(path) as file:
        start = file.read(65536)
    head = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not head:
        raise WorkloadError(f"{spelled(path)} is empty: nothing to replay")
    if start[:4] == b"PAR1":
        columns = column_names(path)
        return "sharegpt" if "prompt_tokens" not in columns and set(columns) & set(TURNS) else "parquet"
    for magic, name in _PACKED.items():
        if start.startswith(magic):
            raise WorkloadError(f"{spelled(path)} is packed ({name}): unpack it first")
    if head[:1] == b"[":
        jsonl.refuse_array_of_rows(path)
        return "sharegpt"
    if head[:1] == b"{":
        return _of_lines(path)
    return _of_csv(path)


def _of_lines(path: Path) -> str:
    """Whether JSON lines are Mooncake's, conversations or ours, by the keys of the first."""
    first = None
    with open_regular(path) as file, contextlib.suppress(ValueError, RecursionError):
        # A conversation may be a long line.
        lines = (
            line.removeprefix(b"\xef\xbb\xbf").strip() for line in iter(lambda: file.readline(LONGEST_RECORD), b"")
        )
        first = json.loads(next(filter(None, lines), b"").decode("utf-8", "surrogateescape"))
    if not isinstance(first, dict) or first.keys() & {"header", "prompt_tokens", "output_tokens"}:
        return "jsonl"
    if first.keys() & {"input_length", "output_length", "hash_ids"}:
        return "mooncake"
    return "jsonl" if turns_of(first) is None else "sharegpt"


def _of_csv(path: Path) -> str:
    """The form of CSV with which the file shares most columns."""
    header = header_of(path)
    # Times have one name in two of the forms, so lengths decide.
    shared = {name: len(set(columns) & set(header)) for name, columns in _CSV.items()}
    best = max(shared, key=lambda name: shared[name])
    if shared[best]:
        return best
    forms = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in _CSV.items())
    raise WorkloadError(
        f"{spelled(path)}: format not recognised: its first line is {spelled(', '.join(header), 120)!r}; known are "
        f"{', '.join(FORMATS)} (format=…), of CSV by their columns ({forms})"
    )
