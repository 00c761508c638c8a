"""Measured attention calls beside the tables: of prompts alone, decodes alone, and of both the law."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from harness.profiles.kernels.attention import Attention, equal_prompts
from harness.profiles.kernels.calls import read_calls

KINDS = ("prompts alone", "decodes alone", "mixed calls")


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
