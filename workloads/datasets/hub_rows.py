"""Rows of data sets by id, through the library `datasets`: streamed, or downloaded whole into its own cache.

The id is one of the Hugging Face hub, or a folder in a layout that the library reads. What is taken becomes files in
bench's cache (`kept_rows`), so that every reader reads it as it reads files, and the next run needs no network. A data
set that lies whole in the hub's cache is read as the files that it is, where nothing else is asked for.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.options import suggest
from workloads.core.reading import spelled
from workloads.datasets import kept_rows
from workloads.datasets.kept_rows import RowsKey
from workloads.datasets.shards import Layout, Shards, choose, missing
from workloads.text import hub

EXTRA = "pip install 'schedbench[datasets]'"
BATCH_ROWS = 256
# Of a folder: more lie in a home directory, and in no data set that is meant.
MOST_FILES = 10_000
_COMMIT = re.compile("[0-9a-f]{40}")
_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_NETWORK = ("Connect", "Timeout", "Network", "RemoteProtocol", "Disconnect")


@dataclass(frozen=True, slots=True)
class HubData:
    """What `hf` and the options beside it ask for; `name` is the workload's, for errors to say what to give.

    `id` is the hub's, or a folder as it was given; "" for revision, config and split is the library's own choice.
    """

    name: str
    id: str
    revision: str
    config: str
    split: str
    rows: int
    streaming: bool

    @property
    def folder(self) -> Path | None:
        """The folder, where it is one: written as a path, with a dot, a slash or a tilde first."""
        return Path(os.path.expanduser(self.id)) if self.id.startswith((".", "/", "~")) else None

    @property
    def plain(self) -> bool:
        """Whether nothing is asked for that the published files could not tell."""
        return not (self.config or self.split or self.rows)

    def refused(self, why: str, remedy: str = "") -> WorkloadError:
        """An error in one line."""
        files = f"{self.name}:path=FOLDER"
        alone = f"use {self.name} without hf and source for the lengths that travel along"
        other = f"download it elsewhere and give {files}, or {alone}"
        revision = f" at {spelled(self.revision, 60)}" if self.revision else ""
        source = "with datasets" if self.folder else "from the hub"
        return WorkloadError(f"cannot load {spelled(self.id, 120)}{revision} {source} ({why}): {remedy or other}")


def asked(name: str, hf: str, config: str, split: str, rows: int, streaming: bool) -> HubData:
    """What `hf=ID`, `hf=ID@REVISION` or `hf=FOLDER` asks for; WorkloadError where it is none of them."""
    id_, _, revision = (hf, "", "") if hf.startswith((".", "/", "~")) else hf.partition("@")
    data = HubData(name, id_, revision, config, split, rows, streaming)
    if data.folder is None and not _ID.fullmatch(id_):
        raise WorkloadError(f"{name}: hf={spelled(hf, 120)} is no data set's id (OWNER/NAME) and no folder (./FOLDER)")
    if data.folder is not None and not data.folder.is_dir():
        raise WorkloadError(
            f"{name}: hf={spelled(hf, 120)}: no such folder: give a folder, or an id of the hub (OWNER/NAME)"
        )
    return data


def take(data: HubData, layout: Layout) -> Shards:
    """The rows asked for as files: from bench's cache, from the hub's, or fetched and kept in bench's.

    The hub is asked once which revision that is, unless a whole one is given and its rows are kept. Raises
    WorkloadError, one line, for whatever the user can mend.
    """

    def kept(revision: str) -> Shards | None:
        return kept_rows.find(RowsKey(data.id, revision, data.config, data.split, data.rows, layout))

    if data.folder is not None:
        names = _names(data.folder, MOST_FILES + 1)
        if len(names) > MOST_FILES:
            raise data.refused(f"it holds more than {MOST_FILES} files", "give the folder of the data set itself")
        revision = _content(data.folder, names)
        return kept(revision) or _fetch(data, str(data.folder), revision, names, layout)
    if _COMMIT.fullmatch(data.revision) and (found := kept(data.revision)):
        return found
    try:
        published = hub.ask(data.id, data.revision)
    except hub.HubRefusal as refusal:
        found = kept(data.revision)
        notice = f"{spelled(data.id)}: {refusal}: what bench's cache holds of it is read"
        if found is None and data.plain:
            found = _cached_files(data, data.revision, None, layout)
            notice = f"{spelled(data.id)}: {refusal}: what the Hugging Face cache holds of it is read"
        if found is None:
            near = suggest(data.id, layout.ids) if refusal.unknown and data.id not in layout.ids else ""
            raise data.refused(refusal.with_cache() + near) from None
        return Shards(found.files, found.origin, (*found.notices, notice))
    found = kept(published.revision)
    if found is None and data.plain:
        found = _cached_files(data, published.revision, published.names, layout)
    return found or _published(data, published, layout)


def _cached_files(data: HubData, revision: str, names: tuple[str, ...] | None, layout: Layout) -> Shards | None:
    """The data's own files in the hub's cache; None where it lacks one of them, as far as their names are known."""
    folder = hub.snapshot(data.id, revision)
    if folder is None:
        return None
    held = _names(folder)
    try:
        files = choose(layout.fitting(list(names) if names is not None else held), f"{spelled(data.id)} on the hub")
    except WorkloadError:
        # Nothing of it that is data; what the hub has may still be more than files can tell.
        return None
    if not set(files) <= set(held):
        return None
    # The hub's cache keeps files under their revision: …/snapshots/REVISION/FILE.
    origin = {"hub": spelled(data.id), "revision": folder.name}
    return Shards(tuple(folder / file for file in files), origin, tuple(missing(files, spelled(data.id))))


def _published(data: HubData, published: hub.Published, layout: Layout) -> Shards:
    """The rows of a data set on the hub, fetched; WorkloadError where it is gated, or a script."""
    script = f"{data.id.rpartition('/')[2]}.py"
    if script in published.names:
        alone = "" if data.plain else " without config, split and rows"
        raise data.refused(
            f"it is a script, {spelled(script)}, which datasets runs no more",
            f"fetch its files with `hf download {data.id} --repo-type dataset` and run this again{alone}, "
            f"or give {data.name}:path=FOLDER of its parquet export",
        )
    try:
        hub.check_access(data.id, published)
    except hub.HubRefusal as refusal:
        raise data.refused(str(refusal)) from None
    if os.path.isdir(data.id):
        raise data.refused("there is a folder of that name here", f"give hf=./{data.id} for it, or run elsewhere")
    return _fetch(data, data.id, published.revision, list(published.names), layout)


def _names(folder: Path, most: int | None = None) -> list[str]:
    """The files of a folder by their names in it, without hidden ones; no more than `most` of them."""
    inner = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    seen = (str(path) for path in inner if not any(part.startswith(".") for part in path.parts))
    return sorted(itertools.islice(seen, most))


def _content(folder: Path, names: list[str]) -> str:
    """What stands for the revision of a folder: the sha256 (hex) of its names and their content."""
    each = [f"{name} {cache.large_file_digest(folder / name)}\n" for name in names]
    return hashlib.sha256("".join(each).encode("utf-8", "surrogateescape")).hexdigest()


def _library() -> Any:
    """The package `datasets`, told to be quiet, and to leave waiting to the hub's client."""
    try:
        import datasets
        from datasets import load_dataset_builder  # noqa: F401  a folder of that name can be imported as well
    except ImportError:
        raise WorkloadError(f"hf= needs the package datasets: {EXTRA}; path=FILE needs none") from None
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    # A third host is told of each data set otherwise, and waited for where it cannot be reached.
    datasets.config.HF_UPDATE_DOWNLOAD_COUNTS = False
    # The client takes a broken stream up again for 20 seconds; the library would do that 20 times over.
    datasets.config.STREAMING_READ_MAX_RETRIES = datasets.config.STREAMING_OPEN_MAX_RETRIES = 1
    datasets.config.STREAMING_READ_RETRY_INTERVAL = datasets.config.STREAMING_OPEN_RETRY_INTERVAL = 0
    return datasets


def _fetch(data: HubData, target: str, revision: str, names: list[str], layout: Layout) -> Shards:
    """The rows by the library, kept in bench's cache."""
    library = _library()
    if data.folder is not None and {"state.json", "dataset_dict.json"} & set(names):
        raise data.refused("it was written by save_to_disk", "write it with to_parquet, and give that folder")
    given: dict[str, Any] = {} if data.folder is not None else {"revision": revision}
    own = [name for name in names if layout.files and layout.files.search(name)]
    if own:
        given["data_files"] = {"train": own}
    where = spelled(data.id, 120)
    try:
        builder = library.load_dataset_builder(target, data.config or None, **given)
        streams = builder.as_streaming_dataset()
    except Exception as error:
        raise _unopened(error, library, data, target, given) from None
    split = _split(data, list(streams))
    columns = streams[split].column_names
    try:
        if columns and hasattr(builder.config, "columns"):
            wanted = kept_rows.present(layout, columns, where)
            builder = library.load_dataset_builder(target, data.config or None, columns=wanted, **given)
        if data.streaming:
            dataset = builder.as_streaming_dataset(split=split)
        else:
            builder.download_and_prepare()
            dataset = builder.as_dataset(split=split)
    except WorkloadError:
        raise
    except Exception as error:
        raise _unread(error, data) from None
    origin: dict[str, object] = {"folder": data.folder.resolve().name} if data.folder else {"hub": data.id}
    config = builder.config.name
    origin |= {"revision": revision, "config": config, "split": split, "library": f"datasets {library.__version__}"}
    key = RowsKey(data.id, data.revision, data.config, data.split, data.rows, layout)
    resolved = RowsKey(data.id, revision, config, split, data.rows, layout)
    return kept_rows.keep(key, resolved, _tables(dataset, data), origin, where)


def _split(data: HubData, splits: list[str]) -> str:
    """The split asked for; by default train, or the only one."""
    listed = ", ".join(spelled(split, 40) for split in splits)
    if data.split in splits:
        return data.split
    if data.split:
        near = suggest(data.split, splits)
        raise data.refused(f"it has no split {spelled(data.split, 40)}{near}", f"its splits are {listed}")
    if "train" in splits or len(splits) == 1:
        return "train" if "train" in splits else splits[0]
    raise data.refused("it has several splits, none of them train", f"give split=… of {listed}")


def _tables(dataset: Any, data: HubData) -> Iterator[Any]:
    """The rows as pyarrow tables, no more of them than are asked for."""
    left = data.rows
    try:
        for table in dataset.with_format("arrow").iter(batch_size=BATCH_ROWS):
            yield table.slice(0, left) if data.rows else table
            left -= table.num_rows
            if data.rows and left <= 0:
                return
    except Exception as error:
        raise _unread(error, data) from None


def _unopened(error: Exception, library: Any, data: HubData, target: str, given: dict[str, Any]) -> WorkloadError:
    """Why a data set could not be opened: its configurations, where it is that, else what the library says."""
    try:
        names = library.get_dataset_config_names(target, **given)
    except Exception:
        return _unread(error, data)
    listed = ", ".join(spelled(name, 40) for name in names[:30])
    if data.config and data.config not in names:
        near = suggest(data.config, names)
        return data.refused(f"it has no config {spelled(data.config, 40)}{near}", f"its configs are {listed}")
    if not data.config and len(names) > 1:
        return data.refused("it has several configs", f"give config=… of {listed}")
    return _unread(error, data)


def _unread(error: BaseException, data: HubData) -> WorkloadError:
    """Why the library could not read a data set, in one line."""
    chain = [error]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and inner not in chain:
        chain.append(inner)
    again = "run it again" + (", or with streaming=false, which goes on where it stopped" if data.streaming else "")
    if any(word in type(each).__name__ for each in chain for word in _NETWORK):
        return data.refused("the network was lost on the way", again)
    for each in chain:
        if status := getattr(getattr(each, "response", None), "status_code", None):
            return data.refused(f"the hub answers {status}", again)
    # What goes wrong in a download is wrapped in an error that says no more than that.
    last = error.__cause__ if type(error).__name__ == "DatasetGenerationError" and error.__cause__ else error
    if "scripts are no longer supported" in str(error):
        return data.refused("it is a script, which datasets runs no more", f"give {data.name}:path=FOLDER of its files")
    first = str(last).strip().splitlines()[0] if str(last).strip() else "no reason given"
    why = f"datasets: {type(last).__name__}: {spelled(first, 160)}"
    return data.refused(why, f"give {data.name}:path=FILE of it, for bench's own reader")
