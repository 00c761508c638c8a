"""One kernel's measured times, and the files that hold many: long tables of operation, x, y and seconds."""

from __future__ import annotations

import functools
import itertools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from harness.profiles.kernels.curves import Curve, Floats, Surface, filled_decode, filled_prefill

TABLES = Path(__file__).parent / "tables"
# What the notice of each file says besides its metadata.
NOTES = b"notes"


@dataclass(frozen=True, slots=True)
class Measured:
    """Points of one operation: `x` a size, or a batch and `y` a length; `seconds` of shape (points,).

    `note` names the kernel and what was interpolated or scaled to get here.
    """

    x: Floats
    y: Floats | None
    seconds: Floats
    note: str

    def curve(self) -> Curve:
        """The points over one axis."""
        return Curve(self.x, self.seconds)

    def surface(self, phase: str) -> Surface:
        """The points over batch and length, holes filled by the rule of the phase."""
        assert self.y is not None
        batch, length = np.unique(self.x), np.unique(self.y)
        seconds = np.full((len(batch), len(length)), np.nan)
        seconds[np.searchsorted(batch, self.x), np.searchsorted(length, self.y)] = self.seconds
        fill = filled_prefill if phase == "prefill" else filled_decode
        return fill(batch, length, seconds)


def as_stored(values: Floats) -> Floats:
    """The values as a file keeps them: what comes from the package and what is embedded must be equal to the bit."""
    return np.asarray(values, dtype=np.float32).astype(np.float64)


@functools.cache
def embedded(gpu: str) -> dict[str, Measured]:
    """The operations that come with the project for a GPU, by name; empty where there are none."""
    path = TABLES / f"{gpu}.parquet"
    return read_measured(path) if path.is_file() else {}


def read_measured(path: Path) -> dict[str, Measured]:
    """The operations of a file that `write_measured` wrote, by name."""
    # Not memory-mapped and without threads: a small file, read once.
    table = pq.read_table(path, use_threads=False)
    notes: dict[str, str] = json.loads(table.schema.metadata[NOTES])
    names = table["operation"].combine_chunks().dictionary_decode().to_numpy(zero_copy_only=False)
    x, y, seconds = (table[name].to_numpy().astype(np.float64) for name in ("x", "y", "seconds"))
    starts = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    found = {}
    for a, b in itertools.pairwise(starts):
        lengths = y[a:b]
        found[str(names[a])] = Measured(
            x[a:b], None if np.isnan(lengths[0]) else lengths, seconds[a:b], notes[str(names[a])]
        )
    return found


def write_measured(path: Path, operations: dict[str, Measured], about: dict[str, str]) -> None:
    """Writes operations to a Parquet file; `about` says where they come from, for its metadata."""
    names = sorted(operations)
    counts = [len(operations[name].x) for name in names]

    def column(values: list[Floats]) -> pa.Array:
        return pa.array(np.concatenate(values).astype(np.float32))

    notes = json.dumps({name: operations[name].note for name in names})
    said: dict[str | bytes, str | bytes] = {NOTES: notes}
    said.update(about.items())
    table = pa.table(
        {
            "operation": pa.array(np.repeat(names, counts)).dictionary_encode(),
            "x": column([operations[name].x for name in names]),
            "y": column([_or_nan(operations[name]) for name in names]),
            "seconds": column([operations[name].seconds for name in names]),
        },
        metadata=said,
    )
    pq.write_table(table, path, compression="zstd", compression_level=19)


def _or_nan(one: Measured) -> Floats:
    return np.full(len(one.x), np.nan) if one.y is None else one.y
