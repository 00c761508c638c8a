"""The files of a data set: one, a folder of shards, a pattern, or a repository in the hub's cache."""

from __future__ import annotations

import glob
import hashlib
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import shown
from workloads.text import hub

KINDS = (".parquet", ".jsonl", ".json", ".zip")
# They lie beside the data and hold none.
_NO_DATA = frozenset({"dataset_info.json", "dataset_infos.json", "state.json"})
_OF = re.compile(r"(.*)-(\d{5})-of-(\d{5})\b")


@dataclass(frozen=True, slots=True)
class Shards:
    """Files in the order in which they are read, with what the trace's source tells of them."""

    files: tuple[Path, ...]
    hub: str | None = None
    revision: str | None = None
    notices: tuple[str, ...] = ()

    def digest(self) -> str:
        """The sha256 (hex) of the one file; of several, of their sha256s in order, a line each."""
        with ThreadPoolExecutor(min(8, len(self.files))) as pool:
            each = list(pool.map(cache.large_file_digest, self.files))
        if len(each) == 1:
            return each[0]
        return hashlib.sha256("".join(f"{digest}\n" for digest in each).encode()).hexdigest()

    def source(self) -> dict[str, object]:
        """What a trace's source says of the files; the revision where the hub sent them."""
        names = [shown(path.name) for path in self.files]
        files: dict[str, object] = {"file": names[0]} if len(names) == 1 else {"files": names}
        return files | {"file_sha256": self.digest()} | self.hub_source()

    def hub_source(self) -> dict[str, object]:
        """The repository and its revision, where the hub sent them."""
        return {"hub": shown(self.hub), "revision": self.revision} if self.hub else {}


def _natural(path: str) -> list[tuple[int, int | str]]:
    """Part 10 after part 9."""
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


def _missing(names: list[str], where: str) -> list[str]:
    """A notice for each set of numbered shards (…-00000-of-00006) that is not whole."""
    matches = [_OF.match(os.path.basename(name)) for name in names]
    have = Counter((match[1], int(match[3])) for match in matches if match)
    return [
        f"{where}: {count} of {of} shards {shown(stem)}-…-of-{of:05} are there: the rest of the data set is left out"
        for (stem, of), count in have.items()
        if count != of
    ]


def local(pattern: str) -> Shards:
    """The files of a path: a file, a folder (searched to its leaves), or a pattern with `*`."""
    path = Path(os.path.expanduser(pattern))
    if os.path.isdir(path):
        names = [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]
        chosen = choose(names, shown(path))
        return Shards(tuple(path / name for name in chosen), notices=tuple(_missing(chosen, shown(path))))
    if glob.has_magic(pattern) and not os.path.exists(path):
        fitting = [name for name in glob.glob(str(path), recursive=True) if os.path.isfile(name)]
        if not fitting:
            raise WorkloadError(f"{shown(path)}: no file fits the pattern")
        fitting.sort(key=_natural)
        return Shards(tuple(map(Path, fitting)), notices=tuple(_missing(fitting, shown(path))))
    return Shards((path,))


def from_hub(repo_at_revision: str, *, name: str, wanted: re.Pattern[str] | None = None) -> Shards:
    """The files of a hub data set `id` or `id@revision`, from the hub's cache or downloaded into it.

    `wanted` narrows the repository's files down; `name` is the workload's, for errors to say what to give.
    """
    repo, _, revision = repo_at_revision.partition("@")
    remedy = (
        f"download it elsewhere and give {name}:path=FOLDER, or use {name} without hf and source for the lengths that "
        "travel along"
    )

    def pick(names: list[str]) -> list[str]:
        fitting = [file for file in names if wanted is None or wanted.search(file)]
        return choose(fitting or names, f"{shown(repo)} on the hub")

    def whole(names: list[str]) -> bool:
        return not _missing(names, "")

    folder, names = hub.fetch_files(repo, revision or None, pick, whole, remedy=remedy)
    # The hub's cache keeps files under their revision: …/snapshots/REVISION/FILE.
    return Shards(tuple(folder / file for file in names), repo, folder.name, tuple(_missing(names, shown(repo))))


def find(path: str, hf: str, *, name: str, wanted: re.Pattern[str] | None = None) -> Shards:
    """The files that `path` or `hf` names, of which one is given."""
    if path and hf:
        raise WorkloadError(f"{name}: path and hf are both given: give one of them")
    return local(path) if path else from_hub(hf, name=name, wanted=wanted)
