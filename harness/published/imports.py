"""Brings a result of another tool in as a `reported` run: its figures, its definitions, and the file's digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.masking import mask
from harness.core.runspec import SCHEMA_VERSION, RunSpec
from harness.core.text import one_line, shown
from harness.measure.metrics import METRICS
from harness.published.foreign import NOT_TOLD, Fields, Foreign, read_document
from harness.published.foreign_guidellm import is_guidellm, read_guidellm
from harness.published.foreign_inference_perf import is_inference_perf, read_inference_perf
from harness.published.foreign_llmd import is_llmd, read_llmd
from harness.published.foreign_perf import is_perf, read_perf
from harness.published.foreign_vllm import is_vllm, read_vllm
from harness.runs.run import slug
from harness.runs.writer import write_json


@dataclass(frozen=True, slots=True)
class Format:
    """A tool's format: whether a document looks like it, and what reads it."""

    looks: Callable[[Any], bool]
    read: Callable[[Fields], list[Foreign]]


# GenAI-Perf writes what AIPerf does; the more telling ones stand first.
FORMATS = {
    "vllm": Format(is_vllm, read_vllm),
    "guidellm": Format(is_guidellm, read_guidellm),
    "aiperf": Format(is_perf, read_perf),
    "genai-perf": Format(is_perf, read_perf),
    "inference-perf": Format(is_inference_perf, read_inference_perf),
    "llm-d": Format(is_llmd, read_llmd),
}


@dataclass(frozen=True, slots=True)
class Labels:
    """What a file does not tell of what was measured; a model given here stands in the place of the file's."""

    gpu: str = "unknown"
    policy: str = "external"
    workload: str = NOT_TOLD
    model: str = ""


def read_foreign(path: Path, form: str | None = None) -> list[Foreign]:
    """The runs in a result file, of the format named or of the one that it looks like; UserError where it is none."""
    document = read_document(path)
    if form is None:
        form = next((name for name, one in FORMATS.items() if one.looks(document)), None)
        if form is None:
            raise UserError(f"{path}: no result that is known here: read are {', '.join(FORMATS)}")
    elif not FORMATS[form].looks(document):
        raise UserError(f"{path}: not a result of {form}: leave out --format, or name the tool that wrote it")
    return FORMATS[form].read(Fields(path, document))


def import_runs(path: Path, out: Path, labels: Labels, form: str | None = None) -> list[Path]:
    """Writes each run of a result file under `out`; their directories. UserError where one is there already."""
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
    found = read_foreign(path, form)
    for one in found:
        if not one.figures:
            raise UserError(f"{path}: {one.part or 'it'} has no figure in it: no request was completed")
    return [_write(one, path, sha256, out, labels) for one in found]


def _write(one: Foreign, path: Path, sha256: str, out: Path, labels: Labels) -> Path:
    spec = {
        "gpu": _label("gpu", labels.gpu),
        "model": _label("model", labels.model or one.model or NOT_TOLD),
        "policy": _label("policy", labels.policy),
        "workload": _label("workload", labels.workload),
        "engine": "endpoint",
        "arrival": one.arrival,
        "requests": one.counts["requests"],
    }
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    # It must be one that run.json is read back as.
    RunSpec.from_dict(spec)
    name = "-".join(filter(None, (one.tool, one.part, sha256[:8])))
    places = (spec["gpu"], spec["model"], spec["workload"], spec["policy"], name)
    directory = out.joinpath(*(slug(str(place)) for place in places))
    figures = {name: {"value": figure.value, "field": figure.field} for name, figure in one.figures.items()}
    manifest = {
        "schema": SCHEMA_VERSION,
        "spec": spec,
        "digest": digest,
        "kind": "reported",
        "status": "complete",
        "started_utc": (one.started or _changed(path)).isoformat(),
        "counts": one.counts,
        "provenance": {
            # What pages call the source of a reported figure.
            "paper": f"{one.tool} {one.version}".strip(),
            "tool": one.tool,
            "tool_version": one.version,
            "file": mask(one_line(path.name)),
            "file_sha256": sha256,
            "started_from": "the file" if one.started else "the time of the file's last change",
            "figures": figures,
            "definitions": one.definitions,
        },
        "notes": [f"imported: {_words(one)}", *one.notes],
    }
    summary = {"schema": SCHEMA_VERSION, "window": None, "metrics": _metrics(one)}
    try:
        directory.mkdir(parents=True)
        write_json({directory / "summary.json": summary, directory / "run.json": manifest})
    except FileExistsError:
        raise UserError(f"{directory}: imported already, and never overwritten: give another --out") from None
    except OSError as error:
        raise UserError(f"{directory}: cannot be written ({error.strerror or error}): give another --out") from None
    return directory


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _words(one: Foreign) -> str:
    return f"every figure is {one.tool}'s own, by its own definitions; nothing was checked here"


def _metrics(one: Foreign) -> dict[str, dict[str, Any]]:
    """The figures as summary.json has them."""
    metrics: dict[str, dict[str, Any]] = {}
    for name, figure in one.figures.items():
        metric, _, key = name.partition(".")
        metrics.setdefault(metric, {"unit": METRICS[metric].unit})[key or "value"] = figure.value
    # In the order of the glossary, the unit last.
    return {
        name: {**{key: value for key, value in metrics[name].items() if key != "unit"}, "unit": metrics[name]["unit"]}
        for name in METRICS
        if name in metrics
    }


def _label(option: str, text: str) -> str:
    if not text.strip() or not text.isprintable() or len(text) > 200:
        raise UserError(f"--{option} {shown(text)}: give one printable line of at most 200 letters")
    return text
