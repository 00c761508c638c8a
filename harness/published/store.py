"""Published runs behind a URL: on any file system of fsspec (S3 and the like), brought here and sent there whole.

In the store a run is its directory of files and, written last, SUMS: the sha256 of each. A run without it is being sent
still, or was cut off: nobody reads it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from harness.core.errors import UserError
from harness.core.files import held, is_plain, open_anew
from harness.core.masking import mask
from harness.published.corpus import FILES, LARGEST_BYTES, LARGEST_JSON, printable
from harness.published.publish import AlreadyPublished, PublishedCopy, publish
from workloads.core.cache import cache_dir

SUMS = "sha256.json"
# What a run is called here whose own URL was given.
ITSELF = "run"
# Files asked for at once: stores answer many as fast as one.
AT_ONCE = 256
# The extras that bring what a scheme needs.
EXTRAS = {"s3": "s3", "s3a": "s3"}


class Store:
    """A directory of runs behind a URL; UserError where it cannot be reached."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.name = mask(url.rstrip("/"))
        self._sizes: dict[str, int] = {}
        with self._reached():
            try:
                self._fs, self._root = url_to_fs(url, use_listings_cache=False)
            except ImportError as error:
                extra = EXTRAS.get(url.partition(":")[0])
                remedy = f"pip install 'schedbench[{extra}]'" if extra else str(error)
                raise UserError(f"{self.name}: a package is missing for such URLs: {remedy}") from None
            except ValueError as error:
                why = mask(str(error))
                raise UserError(f"{self.name}: no URL of a store ({why}): give one such as s3://BUCKET") from None

    def sums(self) -> dict[str, dict[str, str]]:
        """The whole runs there by their places below the URL: the sha256 (hex) of each file by its name."""
        with self._reached():
            found = self._fs.find(self._root, detail=True) if self._fs.exists(self._root) else {}
        self._sizes = {path: int(about.get("size") or 0) for path, about in found.items()}
        below = len(self._path("", "x")) - 1
        paths = [path for path in found if path.endswith(f"/{SUMS}") and self._sizes[path] <= LARGEST_JSON]
        texts = self._read(paths)
        return {path[below : -len(SUMS)].rstrip("/"): self._parsed(path[below:], texts[path]) for path in paths}

    def read(self, place: str, names: Sequence[str]) -> dict[str, bytes]:
        """Files of a run by their names; UserError where they are more than a published run has."""
        if sum(self._sizes.get(self._path(place, name), 0) for name in names) > LARGEST_BYTES:
            raise UserError(f"{self.name}/{place}: more than {LARGEST_BYTES >> 20} MiB: no published run is so large")
        found = self._read([self._path(place, name) for name in names])
        return {name: found[self._path(place, name)] for name in names}

    def has(self, place: str) -> bool:
        """Whether a whole run lies at a place."""
        with self._reached():
            return bool(self._fs.exists(self._path(place, SUMS)))

    def send(self, place: str, run: Path) -> None:
        """Puts the files of a run there and reads them again; UserError where what arrived is not what was sent."""
        files = {file.name: file.read_bytes() for file in sorted(run.iterdir())}
        sums = {name: _sha256(data) for name, data in files.items()}
        with self._reached():
            self._fs.makedirs(self._path(place, ""), exist_ok=True)
            for name, data in files.items():
                self._fs.pipe_file(self._path(place, name), data)
        for name, data in self.read(place, list(files)).items():
            if _sha256(data) != sums[name]:
                raise UserError(f"{self.name}/{place}/{name}: arrived damaged and stands for no run: send it again")
        with self._reached():
            self._fs.pipe_file(self._path(place, SUMS), json.dumps({"files": sums}, indent=1).encode())

    def _path(self, place: str, name: str) -> str:
        return "/".join(filter(None, (str(self._root).rstrip("/"), place, name)))

    def _read(self, paths: Sequence[str]) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for first in range(0, len(paths), AT_ONCE):
            some = list(paths[first : first + AT_ONCE])
            with self._reached():
                answered = self._fs.cat(some)
                found |= {path: answered[path] for path in some}
        return found

    def _parsed(self, where: str, text: bytes) -> dict[str, str]:
        """What SUMS tells, once it is seen to name files of a run in a directory below."""
        try:
            sums = json.loads(text)["files"]
            fits = all(name in FILES and isinstance(value, str) for name, value in sums.items())
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            fits = False
        place = PurePosixPath(where).parent
        plain = where == SUMS or (place / SUMS).as_posix() == where
        if not fits or not plain or ".." in place.parts or place.is_absolute() or printable(where) != where:
            raise UserError(f"{self.name}/{printable(where)}: names other files than a run's: take that run away")
        return dict(sums)

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """What a store says of itself in one line; each has errors of its own."""
        try:
            yield
        except UserError:
            raise
        except Exception as error:
            why = (str(error).splitlines() or [""])[0][:200]
            raise UserError(
                f"{self.name}: cannot be reached or read ({type(error).__name__}: {mask(printable(why))}): look at the "
                "URL and at the keys in the environment"
            ) from None


def fetch(url: str) -> Path:
    """The runs of a store in a directory of bench's cache, each as the store has it; what is there is not fetched.

    UserError where the store cannot be read, or a file is not the one that was sent.
    """
    store, mirror = Store(url), folder_of(url)
    sums = store.sums()
    if not sums:
        raise UserError(
            f"{store.name}: no whole run there (one has {SUMS}, which is sent last): "
            f"`bench publish RUN --results {store.name}` sends one"
        )
    bring(store, sums, mirror, only=True)
    return mirror


def folder_of(url: str, use: str = "") -> Path:
    """The directory of bench's cache for the runs of a store, one for each `use` of them; it need not exist."""
    return cache_dir() / "stores" / (_sha256(url.rstrip("/").encode())[:16] + use)


def bring(store: Store, sums: Mapping[str, Mapping[str, str]], folder: Path, only: bool = False) -> None:
    """Fetches each run of a store that does not lie in a folder as the store has it; `only` those are to lie there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with held(folder):
            if only:
                _drop_others(folder, sums)
            for place, files in sums.items():
                target = folder / (place or ITSELF)
                if not _is_whole(target, files):
                    _bring(store, place, files, target)
    except OSError as error:
        why = error.strerror or error
        raise UserError(f"{error.filename or folder}: cannot be written ({why}): set BENCH_CACHE=FOLDER") from None


def publish_to(path: Path, url: str) -> tuple[str, PublishedCopy]:
    """Publishes a run to a store: made here first, as `publish` makes it; its URL there and what was done.

    UserError where it cannot be sent, AlreadyPublished where it lies there already.
    """
    store = Store(url)
    with tempfile.TemporaryDirectory(prefix="bench-publish-") as folder:
        copy = publish(path, Path(folder))
        place = copy.path.relative_to(folder).as_posix()
        there = f"{store.name}/{place}"
        if store.has(place):
            raise AlreadyPublished(f"{there}: there already: nothing published is ever overwritten")
        store.send(place, copy.path)
    return there, replace(copy, path=Path(place))


def _drop_others(mirror: Path, sums: Mapping[str, Any]) -> None:
    """Takes away what the store does not have any more."""
    known = {place or ITSELF for place in sums}
    for directory, below, files in os.walk(mirror):
        place = Path(directory).relative_to(mirror).as_posix()
        if "run.json" in files and place not in known:
            below.clear()
            shutil.rmtree(directory)


def _is_whole(run: Path, files: Mapping[str, str]) -> bool:
    """Whether a run lies here as the store has it."""
    names = {file.name for file in run.iterdir()} if run.is_dir() else set()
    return names == files.keys() and all(
        is_plain(run / name) and _sha256((run / name).read_bytes()) == digest for name, digest in files.items()
    )


def _bring(store: Store, place: str, files: Mapping[str, str], target: Path) -> None:
    """Fetches a run, holds it against its sums and puts it in its place whole."""
    found = store.read(place, list(files))
    for name, digest in files.items():
        if _sha256(found[name]) != digest:
            raise UserError(
                f"{store.name}/{place}/{name}: damaged (its sha256 is not that of {SUMS}): publish it again"
            )
    shutil.rmtree(target, ignore_errors=True)
    part = target.with_name(f"{target.name}.partial")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name, data in found.items():
        with open_anew(part / name) as file:
            file.write(data)
    part.rename(target)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
