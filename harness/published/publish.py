"""`bench publish`: a finished run copied to where published runs lie, without the places of the machine it ran on."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
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
class PublishedCopy:
    """A run at its new place, the files that were left out, and how many places of the machine were masked."""

    path: Path
    left_out: tuple[str, ...]
    masked: int


def publish(path: Path, results: Path) -> PublishedCopy:
    """Copies a run under `results`, in the same layout; what was measured is not touched.

    Of run.json's provenance and of engine.log the machine's own places are masked: the engine's environment, the
    run's and the model's directory, the working directory, home, and the place of temporary files. UserError where
    the run did not finish, AlreadyPublished where it lies there already.
    """
    run = load_run(path)
    target = run_path(results, run.spec, run.started, run.manifest["digest"])
    if target.exists():
        raise AlreadyPublished(f"{target}: there already: nothing published is ever overwritten")
    masks = _masks_of_places(run)
    # The spec is what the digest stands for; a place in it shows in every comparison already.
    but_spec = {key: value for key, value in run.manifest.items() if key != "spec"}
    text, masked = _masked(json.dumps(but_spec), masks)
    manifest = {"schema": run.manifest["schema"], "spec": run.manifest["spec"]} | json.loads(text)
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
    left_out = sorted(file.name for file in path.iterdir() if file.name not in (*KEPT, "run.json", ENGINE_LOG))
    return PublishedCopy(target, tuple(left_out), masked)


def _masks_of_places(run: Run) -> list[tuple[str, str]]:
    """The places of this machine that a run can tell of, each with the word that stands for it, the longest first."""
    command = run.manifest["provenance"].get("engine_command")
    words = [str(word) for word in command] if isinstance(command, list) else []
    masks: dict[str, str] = {}
    if words and os.path.isabs(words[0]):
        masks[str(Path(words[0]).parents[1])] = "ENGINE"
    for option, value in itertools.pairwise(words):
        if option == "--model" and os.path.isabs(value):
            masks[str(Path(value).parent)] = "MODELS"
    masks[str(run.path.resolve().parent)] = "RUN"
    masks.setdefault(os.getcwd(), "HERE")
    masks.setdefault(str(Path.home()), "HOME")
    masks.setdefault(tempfile.gettempdir(), "TMP")
    masks.pop("/", None)
    return sorted(masks.items(), key=lambda mask: -len(mask[0]))


def _masked(text: str, masks: list[tuple[str, str]]) -> tuple[str, int]:
    """A text with its places masked, and how many there were."""
    count = 0
    for place, word in masks:
        count += text.count(place)
        text = text.replace(place, word)
    return text, count
