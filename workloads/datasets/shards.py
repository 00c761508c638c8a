"""The files of a data set: one, a folder of shards, or a pattern; and which of their columns a reader takes."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled

KINDS = (".parquet", ".jsonl", ".json", ".zip")
# They lie beside the data and hold none.
_NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "state.json"})
_OF = re.compile(r"(.*)-(\d{5})-of-(\d{5})\b")


@dataclass(frozen=True, slots=True)
class Layout:
    """What a reader takes of a data set.

    `columns` names columns and of lists of turns their fields, as `parquet.read_batches` takes them (`?` ends an
    optional one; of several optional lists of turns one is there). `ids` are the data sets that are known to have them.
    `files` narrows the files of a repository down, where it holds others besides.
    """

    columns: Mapping[str, tuple[str, ...]]
    ids: tuple[str, ...]
    files: re.Pattern[str] | None = None

    def fitting(self, names: list[str]) -> list[str]:
        """Of a repository's files those that `files` tells, all where it tells none."""
        return [name for name in names if self.files and self.files.search(name)] or names


@dataclass(frozen=True, slots=True)
class Shards:
    """Files in the order in which they are read, with what the trace's source tells of where they are from."""

    files: tuple[Path, ...]
    origin: Mapping[str, object] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    def digest(self) -> str:
        """The sha256 (hex) of the one file; of several, of their sha256s in order, a line each."""
        with ThreadPoolExecutor(min(8, len(self.files))) as pool:
            each = list(pool.map(cache.large_file_digest, self.files))
        if len(each) == 1:
            return each[0]
        return hashlib.sha256("".join(f"{digest}\n" for digest in each).encode()).hexdigest()

    def source(self) -> dict[str, object]:
        """What a trace's source says of the files."""
        names = [spelled(path.name) for path in self.files]
        files: dict[str, object] = {"file": names[0]} if len(names) == 1 else {"files": names}
        return files | {"file_sha256": self.digest()} | dict(self.origin)


def _natural(path: str) -> list[tuple[int, int | str]]:
    """The key to sort names by, so that part 10 comes after part 9."""
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", path) if part]


def choose(names: list[str], where: str) -> list[str]:
    """The data files among names relative to a folder: one kind, the split `train` where there is one.

    Raises WorkloadError where nothing is there, and where two kinds lie side by side and might be the same data.
    """
    data = [name for name in names if name.lower().endswith(KINDS) and os.path.basename(name) not in _NO_DATA]
    data = [name for name in data if not any(part.startswith(".") for part in Path(name).parts)]
    if not data:
        raise WorkloadError(f"{where}: no {', '.join(KINDS)} file in it: give the file or folder that holds the data")
    kinds = {os.path.splitext(name)[1].lower() for name in data}
    if len(kinds) > 1:
        both = " and ".join(sorted(kinds))
        raise WorkloadError(f"{where}: holds {both} files, which may be the same data: give one of them, or a pattern")
    train = [name for name in data if os.path.basename(name).startswith("train")]
    return sorted(train or data, key=_natural)


def missing(names: list[str], where: str) -> list[str]:
    """A notice for each set of numbered shards (…-00000-of-00006) that is not whole."""
    matches = [_OF.match(os.path.basename(name)) for name in names]
    have = Counter((match[1], int(match[3])) for match in matches if match)
    return [
        f"{where}: {count} of {of} shards {spelled(stem)}-…-of-{of:05} are there: the rest of the data set is left out"
        for (stem, of), count in have.items()
        if count != of
    ]


def local(pattern: str) -> Shards:
    """The files of a path: a file, a folder (searched to its leaves), or a pattern with `*`."""
    path = Path(os.path.expanduser(pattern))
    if os.path.isdir(path):
        names = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
        chosen = choose(names, spelled(path))
        return Shards(tuple(path / name for name in chosen), notices=tuple(missing(chosen, spelled(path))))
    if glob.has_magic(pattern) and not os.path.exists(path):
        fitting = [name for name in glob.glob(str(path), recursive=True) if os.path.isfile(name)]
        if not fitting:
            raise WorkloadError(f"{spelled(path)}: no file fits the pattern")
        fitting.sort(key=_natural)
        return Shards(tuple(map(Path, fitting)), notices=tuple(missing(fitting, spelled(path))))
    return Shards((path,))
