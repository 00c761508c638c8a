"""`bench publish`: a finished run copied to where published runs lie, without the places of the machine it ran on."""

from __future__ import annotations

import contextlib
import errno
import functools
import glob
import itertools
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.files import held, is_plain, open_anew, open_plain, read_whole, sync
from harness.published.corpus import LARGEST_BYTES
from harness.runs.run import POLICY_FILE, Run, load_run, run_path
from harness.runs.step_log import ENGINE_LOG
from harness.runs.writer import write_json

# What a reader needs to compute everything again; the rest (the server's metrics, the warm-up, the packed step log)
# stays where the run was made.
KEPT = ("requests.parquet", "steps.parquet", "summary.json")
# How the directory of a run ends until it is whole.
PUBLISHING = ".publishing"


class AlreadyPublished(UserError):
    """The run lies among the published ones."""


@dataclass(frozen=True, slots=True)
class PublishedCopy:
    """A run at its new place, the files that were left out, and how many places of the machine were masked."""

    path: Path
    left_out: tuple[str, ...]
    masked: int


def publish(path: Path, results: Path) -> PublishedCopy:
    """Copies a run under `results`, in the same layout; what was measured is not touched.

    Of run.json's provenance and of engine.log the machine's own places are masked: the engine's environment, the
    run's and the model's directory, the working directory, home, and the place of temporary files. Nothing is read or
    written through a link, and one process at a time publishes to `results`, so that a run is there whole or not at
    all. UserError where the run did not finish or cannot be copied, AlreadyPublished where it lies there already.
    """
    run = load_run(path)
    target = run_path(results, run.spec, run.started, run.manifest["digest"])
    files = _files(run)
    masks = _masks_of_places(run)
    # The spec is what the digest stands for; a place in it shows in every comparison already.
    manifest, masked = _masked({key: value for key, value in run.manifest.items() if key != "spec"}, masks)
    manifest = {"schema": run.manifest["schema"], "spec": run.manifest["spec"]} | manifest
    try:
        results.mkdir(parents=True, exist_ok=True)
        with held(results):
            _make_way(target, results)
            with _part(target) as part:
                for name in files:
                    _copy(path / name, part / name)
                if os.path.lexists(path / ENGINE_LOG):
                    text, count = _masked(read_whole(path / ENGINE_LOG).decode("utf-8", "replace"), masks)
                    with open_anew(part / ENGINE_LOG) as file:
                        file.write(text.encode())
                    masked += count
                write_json({part / "run.json": manifest})
                sync(part)
                os.rename(part, target)
    except OSError as error:
        # What this version holds a lock for, another program may do all the same.
        if error.errno == errno.ENOTEMPTY:
            raise _already(target) from None
        why = error.strerror or str(error)
        raise UserError(
            f"{target}: cannot be published ({why}), and nothing of it is there: give room or rights"
        ) from None
    try:
        sync(target.parent)
    except OSError as error:
        raise UserError(f"{target}: is there, but its disk tells of a fault ({error.strerror or error})") from None
    left_out = sorted(file.name for file in path.iterdir() if file.name not in (*files, "run.json", ENGINE_LOG))
    return PublishedCopy(target, tuple(left_out), masked)


def _files(run: Run) -> list[str]:
    """The files of a run that are copied as they are; UserError where one is not there or no plain file."""
    kept = (*KEPT, POLICY_FILE) if run.spec.policy_sha256 else KEPT
    names = [name for name in kept if run.kind != "reported" or os.path.lexists(run.path / name)]
    for name in (*names, "run.json", *([ENGINE_LOG] if os.path.lexists(run.path / ENGINE_LOG) else [])):
        if not is_plain(run.path / name):
            why = "no plain file: only a run's own files are published"
            missing = "not there: only a whole run is published: `bench recover` makes what follows from its tables"
            raise UserError(f"{run.path / name}: {why if os.path.lexists(run.path / name) else missing}")
    total = sum(os.lstat(run.path / name).st_size for name in (*names, ENGINE_LOG) if os.path.lexists(run.path / name))
    if total > LARGEST_BYTES:
        raise UserError(f"{run.path}: {total / 2**20:,.0f} MiB, at most {LARGEST_BYTES >> 20} can be published")
    return names


def _make_way(target: Path, results: Path) -> None:
    """The directories above a published run, none of them a link; AlreadyPublished where the run is there.

    What a publisher that was ended left of this run is taken away: it holds no lock any more.
    """
    for directory in reversed([one for one in target.parents if results in one.parents]):
        if os.path.lexists(directory) and not stat.S_ISDIR(os.lstat(directory).st_mode):
            what = "a link" if directory.is_symlink() else "a file"
            raise UserError(f"{directory}: {what}, no directory: nothing is published through one: take it away")
        directory.mkdir(exist_ok=True)
    if os.path.lexists(target):
        raise _already(target)
    for left in target.parent.glob(f"{glob.escape(target.name)}.*{PUBLISHING}"):
        if left.is_symlink():
            left.unlink()
        else:
            shutil.rmtree(left)


def _already(target: Path) -> AlreadyPublished:
    return AlreadyPublished(f"{target}: there already: nothing published is ever overwritten")


@contextlib.contextmanager
def _part(target: Path) -> Iterator[Path]:
    """A directory of its own beside the place of a run, which goes where the run does not come about."""
    part = Path(tempfile.mkdtemp(prefix=f"{target.name}.", suffix=PUBLISHING, dir=target.parent))
    try:
        # As any directory that bench makes: mkdtemp's own is for nobody else to read.
        part.chmod(0o777 & ~_umask())
        yield part
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


@functools.cache
def _umask() -> int:
    # Asking sets it for a moment, for all threads.
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _copy(source: Path, target: Path) -> None:
    """Copies a plain file, whole on disk."""
    with open_plain(source) as there, open_anew(target) as here:
        shutil.copyfileobj(there, here, 1 << 20)
        here.flush()
        os.fsync(here.fileno())


def _masks_of_places(run: Run) -> list[tuple[str, str]]:
    """The places of this machine that a run can tell of, each with the word that stands for it, the longest first."""
    command = run.manifest["provenance"].get("engine_command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    masks: dict[str, str] = {}
    if words and os.path.isabs(words[0]):
        # ENVIRONMENT/bin/python; what lies higher is no environment.
        masks[str(Path(words[0]).parent.parent)] = "ENGINE"
    model = next((word for name, word in itertools.pairwise(words) if name == "--model"), "")
    if os.path.isabs(model):
        masks[str(Path(model).parent)] = "MODELS"
    masks[str(run.path.resolve().parent)] = "RUN"
    # Neither a working directory nor a home need be there.
    with contextlib.suppress(OSError):
        masks.setdefault(os.getcwd(), "HERE")
    with contextlib.suppress(RuntimeError):
        masks.setdefault(str(Path.home()), "HOME")
    with contextlib.suppress(OSError):
        masks.setdefault(tempfile.gettempdir(), "TMP")
    masks.pop("/", None)
    return sorted(masks.items(), key=lambda mask: -len(mask[0]))


def _masked(value: Any, masks: list[tuple[str, str]]) -> tuple[Any, int]:
    """JSON values with the places in every text of them masked, keys too, and how many there were."""
    if isinstance(value, str):
        count = 0
        for place, word in masks:
            # A place ends where a name of a file ends: /a is no part of /api.
            value, found = re.subn(rf"{re.escape(place)}(?![\w.-])", word, value)
            count += found
        return value, count
    if isinstance(value, dict):
        pairs = [(_masked(key, masks), _masked(inner, masks)) for key, inner in value.items()]
        return {key: inner for (key, _), (inner, _) in pairs}, sum(k + i for (_, k), (_, i) in pairs)
    if isinstance(value, list):
        parts = [_masked(one, masks) for one in value]
        return [one for one, _ in parts], sum(count for _, count in parts)
    return value, 0
