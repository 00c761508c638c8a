"""`bench publish`: a finished run copied to where published runs lie, without the places of the machine it ran on."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError
from harness.runs.run import Run, load_run, run_path
from harness.runs.step_log import ENGINE_LOG
from harness.runs.writer import write_json

# What a reader needs to compute everything again; the rest (the server's metrics, the warm-up, the packed step log)
# stays where the run was made.
KEPT = ("requests.parquet", "steps.parquet", "summary.json")


class AlreadyPublished(UserError):
    """The run lies among the published ones."""


@dataclass(frozen=True, slots=True)
class Published:
    """A run at its new place, what was left out, and how many places were masked."""

    path: Path
    left_out: tuple[str, ...]
    masked: int


def publish(path: Path, results: Path) -> Published:
    """Copies a run under `results`, in the same layout; what was measured is not touched.

    Of run.json's provenance and of engine.log the machine's own places are masked: the engine's environment, the
    run's and the model's directory, the working directory, home, and the place of temporary files. UserError where
    the run did not finish, AlreadyPublished where it lies there already.
    """
    run = load_run(path)
    target = run_path(results, run.spec, run.started, run.manifest["digest"])
    if target.exists():
        raise AlreadyPublished(f"{target}: there already: nothing published is ever overwritten")
    masks = list(_places(run))
    # The spec is what the digest stands for; a place in it shows in every comparison already.
    told, masked = _masked(json.dumps({key: value for key, value in run.manifest.items() if key != "spec"}), masks)
    manifest = {"schema": run.manifest["schema"], "spec": run.manifest["spec"]} | json.loads(told)
    part = target.with_name(f"{target.name}.publishing")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name in KEPT:
        if (path / name).is_file():
            shutil.copyfile(path / name, part / name)
    if (path / ENGINE_LOG).is_file():
        text, count = _masked((path / ENGINE_LOG).read_text("utf-8", "replace"), masks)
        (part / ENGINE_LOG).write_text(text, "utf-8")
        masked += count
    write_json({part / "run.json": manifest})
    part.rename(target)
    left_out = sorted(one.name for one in path.iterdir() if one.name not in (*KEPT, "run.json", ENGINE_LOG))
    return Published(target, tuple(left_out), masked)


def _places(run: Run) -> Iterator[tuple[str, str]]:
    """The places of this machine that a run can tell of, each with the word that stands for it, the longest first."""
    command = run.manifest["provenance"].get("engine_command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    found: dict[str, str] = {}
    if words and os.path.isabs(words[0]):
        found[str(Path(words[0]).parents[1])] = "ENGINE"
    for name, word in itertools.pairwise(words):
        if name == "--model" and os.path.isabs(word):
            found[str(Path(word).parent)] = "MODELS"
    found[str(run.path.resolve().parent)] = "RUN"
    found.setdefault(os.getcwd(), "HERE")
    found.setdefault(str(Path.home()), "HOME")
    found.setdefault(tempfile.gettempdir(), "TMP")
    for place, stands in sorted(found.items(), key=lambda one: -len(one[0])):
        if place != "/":
            yield place, stands


def _masked(text: str, masks: list[tuple[str, str]]) -> tuple[str, int]:
    count = 0
    for place, stands in masks:
        count += text.count(place)
        text = text.replace(place, stands)
    return text, count
