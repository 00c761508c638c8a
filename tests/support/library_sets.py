"""Small data sets as the library `datasets` writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets

from tests.support import dataset_files as made


def write(folder: Path, schema: Any, rows: list[dict[str, Any]], shards: int = 1, split: str = "train") -> Path:
    """The rows as the library writes them and the hub holds them: data/SPLIT-00000-of-00001.parquet."""
    whole = [dict.fromkeys(schema.names) | row for row in rows]
    held = datasets.Dataset.from_list(whole, features=datasets.Features.from_arrow_schema(schema), split=split)
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for i in range(shards):
        name = f"{split}-{i:05}-of-{shards:05}.parquet"
        held.shard(shards, i, contiguous=True).to_parquet(folder / "data" / name)
    return folder


def lmsys(folder: Path, count: int, seed: int = 1, split: str = "train") -> Path:
    """So many conversations in LMSYS-Chat-1M's layout."""
    return write(folder, made.lmsys_schema(), list(made.lmsys_rows(count, seed=seed)), split=split)
