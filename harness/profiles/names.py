"""What a model is called on a GPU: by the project's names, by the GPU's measured pairs, or by its own."""

from __future__ import annotations

from typing import Any

from harness.core.errors import UserError
from harness.profiles.figures import Gpu
from harness.profiles.files import load_gpu, spelled_as
from harness.profiles.models import all_model_names, canonical_model, read_model


def model_name(gpu: str, model: str) -> str:
    """A model's full name on a GPU: of the project's models, or of the GPU's measured pairs; any other as it is."""
    return full_name(load_gpu(gpu), model)


def model_on(gpu: str, model: str) -> tuple[str, dict[str, Any]]:
    """The same, with the keys of a config.json where the model is neither: read from a path or from the hub."""
    the_gpu = load_gpu(gpu)
    name = full_name(the_gpu, model)
    return (name, {}) if name in the_gpu.fits else read_model(name)


def full_name(gpu: Gpu, model: str) -> str:
    """A model's full name on a GPU that is read already; UserError where a profile has its measured pairs alone."""
    if name := spelled_as(model, (*gpu.fits, *all_model_names())):
        return name
    if gpu.fits and not gpu.has_sheet:
        raise UserError(f"{gpu.name}: no measured pair of {model!r}; it has {measured_on(gpu)}: name one with --model")
    return canonical_model(model)


def measured_on(gpu: Gpu) -> str:
    """The models that were measured on a GPU, for a message."""
    return ", ".join(gpu.fits) or "none"
