"""What is known of each GPU and model: how many GPUs hold it, which cost models price it, where tables are thin."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.profiles.kernels.build import find_kernels
from harness.profiles.pair import KINDS, Pair, load_pair

# The numbers of GPUs that share a model, as people buy them.
SHARED_BY = (1, 2, 4, 8)
_BETWEEN = re.compile(r"([a-z ]+) between (\d+) and (\d+)")
_TIMES = re.compile(r"(\d+) ([A-Za-z ]+) as ([\d.]+) times")


@dataclass(frozen=True, slots=True)
class Gap:
    """How far a size of the model lies from what was measured: a factor, and which size it is."""

    factor: float
    what: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """A GPU and a model: on the fewest GPUs that hold it (`tp`), its KV cache in tokens and its cost models.

    `cost_models` has the basis of each by its name, `auto` is the one that a run takes; `mixed_call` is how the law of
    mixed calls is known, None without kernels; `gap` the largest in the kernel tables. `why_not` says why there is
    no cost model at all, `no_kernels` why there is no kernel time where another model prices the pair.
    """

    gpu: str
    model: str
    tp: int | None
    kv_tokens: int | None
    cost_models: dict[str, str]
    auto: str | None
    mixed_call: str | None
    gap: Gap | None
    why_not: str | None
    no_kernels: str | None = None


def coverage(gpu: str, model: str) -> Coverage:
    """What is known of a model on a GPU of the project's."""
    first: UserError | None = None
    for tp in SHARED_BY:
        try:
            return _of_pair(load_pair(gpu, model, tp))
        except UserError as error:
            first = first or error
    return Coverage(gpu, model, None, None, {}, None, None, None, str(first))


def _of_pair(pair: Pair) -> Coverage:
    refusals = {kind: pair.refusal(kind) for kind in KINDS if kind != "auto"}
    known = {
        kind: {"linear": pair.basis, "roofline": "derived"}.get(kind, "measured kernels")
        for kind, refusal in refusals.items()
        if refusal is None
    }
    auto = pair.chosen()
    mixed_call = gap = None
    if "kernels" in known and pair.shape is not None:
        mixed_call = pair.mixed_call
        notes = find_kernels(pair.gpu.name, pair.shape, pair.tp).operations.values()
        gap = largest_gap(one.note for one in notes)
    return Coverage(
        gpu=pair.gpu.name,
        model=pair.model_name,
        tp=pair.tp,
        kv_tokens=pair.kv_tokens,
        cost_models=known,
        auto=auto if auto in known else None,
        mixed_call=mixed_call,
        gap=gap,
        why_not=None if auto in known else refusals[auto],
        no_kernels=refusals["kernels"] if auto in known else None,
    )


def largest_gap(notes: Iterable[str]) -> Gap | None:
    """The largest factor between neighbours, or beyond the last one, that these notes of kernels name."""
    gaps: list[Gap] = []
    for note in notes:
        for what, low, high in _BETWEEN.findall(note):
            gaps.append(Gap(int(high) / int(low), f"{what.strip()} between {int(low):,} and {int(high):,}"))
        for size, what, factor in _TIMES.findall(note):
            gaps.append(Gap(float(factor), f"{int(size):,} {what}"))
    return max(gaps, key=lambda gap: gap.factor, default=None)
