"""What `bench calibrate attention` needs of a model, and how its times stand to the tables of the project."""

from __future__ import annotations

from pathlib import Path

from harness.core.errors import UserError
from harness.profiles.kernels.calls import COLUMNS, read_calls
from harness.profiles.kernels.check import against_tables
from harness.profiles.kernels.model import Kernels
from harness.profiles.models import find_model, read_model
from harness.profiles.pair import load_pair

HEADER = ",".join(COLUMNS) + "\n"


def calls_in(path: Path) -> set[tuple[int, int, int, int]]:
    """The calls that a file has: new tokens, tokens before them, decodes, their context. UserError where it is none."""
    return {(int(a), int(b), int(c), int(d)) for a, b, c, d in read_calls(path).times}


def heads_of(model: str, tp: int) -> tuple[int, int, int]:
    """Query heads and KV heads of one GPU of `tp`, and their size; UserError where no config.json is known."""
    name, config = read_model(model)
    shape = find_model(name, config)[1]
    if shape is None:
        raise UserError(f"{name}: no config.json of it is known: name the path of one with --model")
    if shape.query_heads % tp:
        raise UserError(f"{name}: --tp {tp}: its {shape.query_heads} query heads cannot be shared so")
    part = shape.part(tp)
    return part.query_heads, part.kv_heads, part.head_size


def checked(path: Path, gpu: str | None, model: str, tp: int) -> list[str]:
    """A line a kind of call: the median of measured over the tables' time; why not, where there are no tables."""
    if gpu is None or gpu == "cpu":
        return ["held against no tables: --gpu names none that has them"]
    name, config = read_model(model)
    pair = load_pair(gpu, name, tp, config)
    if refusal := pair.refusal("kernels"):
        return [f"held against no tables: {refusal}"]
    cost = pair.cost("kernels")
    assert isinstance(cost, Kernels)
    assert pair.shape is not None
    found = against_tables(path, cost.attention, pair.shape.layers)
    return [
        f"{kind}: {count} calls, {ratio:.2f} of the tables' time in the median"
        for kind, (count, ratio) in found.items()
    ]
