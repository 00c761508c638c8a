"""A model by whatever it is named with: one of the project's, a config.json, or an id on the Hugging Face hub."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.text import nearest, spelled
from harness.profiles.config_json import Sized, read_config
from harness.profiles.files import Model, load_model, model_names, spelled_as
from harness.profiles.kernels.shape import Shape
from workloads.core.reading import open_regular
from workloads.text.hub import fetch

CONFIGS = Path(__file__).parent / "configs"
CONFIG, QUANTISED = "config.json", "hf_quant_config.json"
# No config.json is larger.
_LARGEST = 1 << 20


def catalogued() -> dict[str, Path]:
    """The models that come with the project as a config.json, by id, sorted."""
    return {path.stem.replace("--", "/", 1): path for path in sorted(CONFIGS.glob("*.json"))}


def all_model_names() -> tuple[str, ...]:
    """Every model that comes with the project, by id, sorted."""
    return tuple(sorted({*model_names(), *catalogued()}))


def find_model(name: str) -> tuple[Model, Shape | None]:
    """The figures of a model, and the shape of its kernels where a config.json tells it.

    `name` is one of the project's models (its id or the last part of it, in any case), the path of a config.json or
    of its folder, or an id on the hub. UserError or WorkloadError where it is none of them, or no model that the cost
    models know.
    """
    if (full := spelled_as(name, all_model_names())) or (full := _also(name)):
        shape = _catalogued(full).shape if full in catalogued() else None
        return load_model(full) if full in model_names() else _catalogued(full).model, shape
    if is_config(name):
        sized = _from_path(Path(name))
    elif name.count("/") == 1 and not name.endswith(".json"):
        sized = _from_hub(name)
    else:
        names = (*all_model_names(), *(full.rpartition("/")[2] for full in all_model_names()))
        raise UserError(
            f"no model named {name!r}{nearest(name, names)} Use one of {', '.join(all_model_names())}, a config.json "
            "or an id on huggingface.co"
        )
    return sized.model, sized.shape


def is_config(name: str) -> bool:
    """Whether a model is named by a path: its config.json, or the folder that holds one."""
    return os.path.isfile(name) or os.path.isfile(os.path.join(name, CONFIG))


def canonical_model(name: str) -> str:
    """The id of one of the project's models, whatever its spelling; other names as they are."""
    return spelled_as(name, all_model_names()) or _also(name) or name


def _also(name: str) -> str | None:
    """The catalogued model that has another id for the same sizes (a tuned one of a base)."""
    said = name.lower()
    for full, other in _others().items():
        if said in (full, full.rpartition("/")[2]):
            return other
    return None


@functools.cache
def _others() -> dict[str, str]:
    found = {}
    for full, path in catalogued().items():
        for also in _json(path).get("_also", ()):
            found[also.lower()] = full
    return found


@functools.cache
def _catalogued(full: str) -> Sized:
    path = catalogued()[full]
    return read_config(full, _json(path), path.name)


def _from_path(path: Path) -> Sized:
    file = path / CONFIG if path.is_dir() else path
    name = file.parent.name if file.name == CONFIG and file.parent.name else file.stem
    return _read(name, file, file.parent / QUANTISED, spelled(file))


def _from_hub(repo: str) -> Sized:
    remedy = "name a config.json with --model, or a model that `bench gpus` lists"
    file = fetch(repo, CONFIG, kind="model", what=f"the config.json of {spelled(repo)}", remedy=remedy)
    return _read(repo, file, file.parent / QUANTISED, f"{spelled(repo)}/{CONFIG}")


def _read(name: str, file: Path, quantised: Path, where: str) -> Sized:
    values = _json(file, where)
    # Some weights are quantised by a tool that says so in a file of its own.
    if isinstance(values, dict) and "quantization_config" not in values and quantised.is_file():
        values = values | {"quantization_config": _json(quantised).get("quantization")}
    return read_config(name, values, where)


def _json(path: Path, where: str | None = None) -> Any:
    with open_regular(path) as stream:
        text = stream.read(_LARGEST + 1)
    where = where or spelled(path)
    if len(text) > _LARGEST:
        raise UserError(f"{where}: larger than any config.json: name a model's")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise UserError(f"{where}: not JSON: take the config.json as the model's page has it") from None
