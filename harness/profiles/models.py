"""A model by whatever it is named with: one of the project's, a config.json, or an id on the Hugging Face hub."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.text import nearest, shown, spelled
from harness.profiles.config_json import KEYS, Sized, read_config
from harness.profiles.figures import Model
from harness.profiles.files import load_model, model_names, spelled_as
from harness.profiles.kernels.shape import Shape
from workloads.core.reading import open_regular
from workloads.text.hub import fetch

CONFIGS = Path(__file__).parent / "configs"
CONFIG, QUANTISED = "config.json", "hf_quant_config.json"
# No config.json is larger.
_LARGEST = 1 << 20
# Of a name that tables, pages and folders hold.
LONGEST_NAME = 120


def catalogued() -> dict[str, Path]:
    """The models that come with the project as a config.json, by id, sorted."""
    return _configs_in(CONFIGS)


@functools.cache
def _configs_in(folder: Path) -> dict[str, Path]:
    return {path.stem.replace("--", "/", 1): path for path in sorted(folder.glob("*.json"))}


def all_model_names() -> tuple[str, ...]:
    """Every model that comes with the project, by id, sorted."""
    return tuple(sorted({*model_names(), *catalogued()}))


def find_model(name: str, config: Mapping[str, Any] | None = None) -> tuple[Model, Shape | None]:
    """The figures of a model, and the shape of its kernels where a config.json tells it.

    `config` has the keys of a config.json that decide (as `read_model` gives them) where the model is none of the
    project's; else `name` is one of those, by its id or the last part of it in any case. UserError where it is not, or
    where the config is of no model that the cost models know.
    """
    if config:
        sized = read_config(name, config, f"the config.json of {spelled(name)}")
        return sized.model, sized.shape
    full = canonical_model(name)
    if full in model_names():
        return load_model(full), _catalogued(full).shape if full in catalogued() else None
    if full in catalogued():
        sized = _catalogued(full)
        return sized.model, sized.shape
    raise _unknown(name)


def read_model(name: str) -> tuple[str, dict[str, Any]]:
    """What runs call a model, and the keys of its config.json that decide; empty for one of the project's own.

    `name` is one of the project's models, the path of a config.json or of its folder (then the folder's name is the
    model's), or an id on the Hugging Face hub, which is asked for it. UserError or WorkloadError where there is none.
    """
    full = canonical_model(name)
    if full in all_model_names():
        return full, {}
    if os.path.isfile(name) or os.path.isfile(os.path.join(name, CONFIG)):
        label, values, where = _from_path(Path(name))
    elif name.count("/") == 1 and not name.endswith(".json"):
        label, values, where = _from_hub(name)
    else:
        raise _unknown(name)
    if not label.isprintable() or len(label) > LONGEST_NAME:
        raise UserError(
            f"{where}: runs go by the name of its folder: give that one of at most {LONGEST_NAME} characters"
        )
    read_config(label, values, where)
    return label, {key: values[key] for key in KEYS if values.get(key) is not None}


def _unknown(name: str) -> UserError:
    if name.endswith(".json") or name.startswith((".", "/")):
        return UserError(f"{spelled(name)}: no such file: name the config.json of a model, or its folder")
    names = (*all_model_names(), *(full.rpartition("/")[2] for full in all_model_names()))
    return UserError(
        f"no model named {shown(name)}{nearest(name, names)} Use one of {', '.join(all_model_names())}, a config.json "
        "or an id on huggingface.co"
    )


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


def _from_path(path: Path) -> tuple[str, dict[str, Any], str]:
    file = path / CONFIG if path.is_dir() else path
    folder = file.absolute().parent.name
    where = spelled(file)
    return folder if file.name == CONFIG and folder else file.stem, _read(file, file.parent / QUANTISED, where), where


def _from_hub(repo: str) -> tuple[str, dict[str, Any], str]:
    remedy = "name a config.json with --model, or a model that `bench gpus` lists"
    where = f"{spelled(repo)}/{CONFIG}"
    file = fetch(repo, CONFIG, kind="model", what=f"the config.json of {spelled(repo)}", remedy=remedy)
    return repo, _read(file, file.parent / QUANTISED, where), where


def _read(file: Path, quantised: Path, where: str) -> dict[str, Any]:
    values = _json(file, where)
    if not isinstance(values, dict):
        raise UserError(f"{where}: not the config.json of a model: it holds no object")
    # Some weights are quantised by a tool that says so in a file of its own.
    if "quantization_config" not in values and quantised.is_file():
        beside = _json(quantised)
        values |= {"quantization_config": beside.get("quantization") if isinstance(beside, dict) else beside}
    return values


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
