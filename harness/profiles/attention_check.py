"""What `bench calibrate attention` needs of a model, and how its times stand to the tables of the project."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.core.errors import UserError
from harness.profiles.kernels.attention import Attention, equal_prompts
from harness.profiles.kernels.calls import COLUMNS, read_calls
from harness.profiles.kernels.model import Kernels
from harness.profiles.models import find_model, read_model
from harness.profiles.pair import load_pair

KINDS = ("prompts alone", "decodes alone", "mixed calls")
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
        return ["compared with no tables: --gpu names none that has them"]
    name, config = read_model(model)
    pair = load_pair(gpu, name, tp, config)
    if refusal := pair.refusal("kernels"):
        return [f"compared with no tables: {refusal}"]
    cost = pair.cost("kernels")
    assert isinstance(cost, Kernels)
    assert pair.shape is not None
    found = against_tables(path, cost.attention, pair.shape.layers)
    return [
        f"{kind}: {count} calls, {ratio:.2f} of the tables' time in the median"
        for kind, (count, ratio) in found.items()
    ]


def against_tables(path: Path, attention: Attention, layers: int) -> dict[str, tuple[int, float]]:
    """By kind of call: how many were measured, and the median of measured over the tables' time.

    `attention` is that of the tables, over so many `layers`. UserError where the file is none.
    """
    ratios: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for (chunk, before, decodes, context), seconds in read_calls(path).times.items():
        tokens, many = int(chunk), int(decodes)
        work = tokens * (before + tokens / 2)
        alone = float(np.interp(context, attention.context.points, attention.row(many))) if many else 0.0
        if not tokens:
            kind, told = KINDS[1], alone
        elif not many:
            kind, told = KINDS[0], attention.prompts(tokens, work, equal_prompts(tokens, work))
        else:
            kind = KINDS[2]
            told = attention.both(tokens, work, equal_prompts(tokens, work), many, round(many * context), alone)
        ratios[kind].append(layers * seconds / told)
    return {kind: (len(values), float(np.median(values))) for kind, values in ratios.items() if values}
