"""Model 3: a step costs what its kernels take, as others measured them one by one (docs/cost-models.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import frexp
from typing import Any, ClassVar

import numpy as np

from harness.profiles.kernels.attention import CONTEXT, DECODES, Attention, equal_prompts
from harness.profiles.kernels.curves import Floats
from harness.profiles.kernels.fine import POINTS


@dataclass(frozen=True, slots=True)
class OffGrid:
    """What was asked beyond the measured tables, by axis: steps and their seconds."""

    steps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def count(self, axis: str, steps: int, seconds: float) -> None:
        """Adds steps that left the tables along an axis."""
        self.steps[axis] = self.steps.get(axis, 0) + steps
        self.seconds[axis] = self.seconds.get(axis, 0.0) + seconds


@dataclass(frozen=True, slots=True)
class Kernels:
    """Step costs from measured kernels: body, head and attention of one step, and the host's time.

    `body` has the seconds of a step's tokens through all layers by their number, `head` those of the output head
    and the sampler by the sequences that it serves (both from 0 on); `prefill` and `decode` the attention of all
    layers. `law` says what decodes cost beside prompts. `host_s` t0, s a step; `decode_s` h, s a decode. `about` is
    what the manifest says of the tables.
    """

    name: ClassVar[str] = "kernels"

    body: list[float]
    head: list[float]
    attention: Attention
    host_s: float
    decode_s: float
    about: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    off_grid: OffGrid = field(default_factory=OffGrid, repr=False, compare=False)
    # What `seconds` would otherwise compute again and again.
    _rows: dict[int, tuple[list[float], Floats]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _first: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_first", self.attention.context.first)

    def counted_anew(self) -> Kernels:
        """The same costs for another run: what was computed is shared, what left the tables is counted from nought."""
        other = replace(self, off_grid=OffGrid())
        object.__setattr__(other, "_rows", self._rows)
        return other

    def seconds(
        self,
        prefill_tokens: int,
        prefill_work: float,
        decodes: int,
        decode_context: int,
        longest: int,  # not read: the step cost follows the sum of contexts, not the longest
    ) -> float:
        """The cost of one step, s.

        The prompts enter as equal ones of the same tokens and work, the decodes at their mean context. The
        output head serves the decodes and as many prompts as those equal ones.
        """
        if not prefill_tokens:
            seconds = self._without_attention(decodes, decodes, decodes)
            return seconds + self._alone(decodes, decode_context) if decodes else seconds
        equal = equal_prompts(prefill_tokens, prefill_work)
        seconds = self._without_attention(prefill_tokens + decodes, decodes + int(equal[0]), decodes)
        attention = self.attention
        if decodes:
            alone = self._alone(decodes, decode_context)
            seconds += attention.both(prefill_tokens, prefill_work, equal, decodes, decode_context, alone)
        else:
            seconds += attention.prompts(prefill_tokens, prefill_work, equal)
        if axis := attention.left_by(equal, decodes, decode_context):
            self.off_grid.count(axis, 1, seconds)
        return seconds

    def decode_seconds(self, decodes: int, decode_context: int, longest: int, steps: int) -> Floats:
        """The costs of `steps` decode-only steps in a row, s, shape (steps,).

        The operations and their order are those of `seconds`, so that both give the same bits.
        """
        row = self._row(decodes)[1]
        # Whole numbers far below 2**53: as floats they are exact.
        context = (decode_context + decodes * np.arange(steps, dtype=np.float64)) / decodes
        mantissa, exponent = np.frexp(context)
        place = (exponent - 2 + 2.0 * mantissa) * POINTS - self._first
        at = np.clip(place.astype(np.int64), 0, len(row) - 2)
        low = row[at]
        alone = low + (row[at + 1] - low) * (place - at)
        return np.asarray(self._without_attention(decodes, decodes, decodes) + alone)

    def see_decodes(self, decodes: Floats, decode_context: Floats, seconds: Floats) -> None:
        """Counts those of decode-only steps that left the tables; arrays have an entry a step."""
        many = decodes > self.attention.most_decodes
        for axis, beyond in (
            (DECODES, many),
            (CONTEXT, ~many & (decode_context > self.attention.most_context)),
        ):
            if beyond.any():
                self.off_grid.count(axis, int(beyond.sum()), float(seconds[beyond].sum()))

    def parameters(self) -> dict[str, float]:
        """The figures that are no table's: the host's time, s and s/decode."""
        return {"host_s": self.host_s, "decode_s": self.decode_s}

    def _without_attention(self, tokens: int, sequences: int, decodes: int) -> float:
        """Body, head and host, s; beyond the lists both grow in proportion."""
        body, head = self.body, self.head
        seconds = body[tokens] if tokens < len(body) else body[-1] * tokens / (len(body) - 1)
        seconds += head[sequences] if sequences < len(head) else head[-1] * sequences / (len(head) - 1)
        return seconds + self.host_s + self.decode_s * decodes

    def _alone(self, decodes: int, decode_context: int) -> float:
        """Attention of a decode-only call over all layers, s."""
        row = self._row(decodes)[0]
        mantissa, exponent = frexp(decode_context / decodes)
        place = (exponent - 2 + 2.0 * mantissa) * POINTS - self._first
        at = int(place)
        if at > len(row) - 2:
            at = len(row) - 2
        elif at < 0:
            at = 0
        low = row[at]
        return low + (row[at + 1] - low) * (place - at)

    def _row(self, decodes: int) -> tuple[list[float], Floats]:
        """Attention of so many decodes at the points of context, over all layers, s: as a list and as an array."""
        row = self._rows.get(decodes)
        if row is None:
            values = self.attention.row(decodes)
            row = self._rows[decodes] = (values.tolist(), values)
        return row
