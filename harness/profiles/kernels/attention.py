"""What attention costs in one step: from tables of pure calls and a law for mixed ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from typing import Protocol

import numpy as np

from harness.profiles.kernels.curves import DECIMALS, Curve, Floats, Surface
from harness.profiles.kernels.fine import Axis, Fine
from harness.profiles.kernels.mixed import MixedLaw

DECODES, CONTEXT, PROMPTS, LENGTH = "decodes", "decode context", "prompts", "prompt length"


class Attention(Protocol):
    """Attention of one call over all layers of a model, s.

    Prompts are told by their tokens, their work Σ n(context + n/2), token², and as `equal` ones (`equal_prompts`).
    """

    @property
    def context(self) -> Axis:
        """The points of context that `row` is told at."""

    def row(self, decodes: int) -> Floats:
        """So many decodes without prompts at the points of mean context, s."""

    def prompts(self, tokens: int, work: float, equal: tuple[float, float]) -> float:
        """Prompts without decodes."""

    def both(
        self,
        tokens: int,
        work: float,
        equal: tuple[float, float],
        decodes: int,
        decode_context: int,
        alone_s: float,
    ) -> float:
        """Prompts and decodes in one call; `alone_s` is what the decodes cost without prompts."""

    def left_by(self, equal: tuple[float, float], decodes: int, decode_context: int) -> str:
        """The axis along which a call leaves what was measured, empty where it does not."""

    @property
    def most_decodes(self) -> float:
        """The most decodes of a measured call."""

    @property
    def most_context(self) -> float:
        """The most context of all decodes of a measured call together, tokens."""


@dataclass(frozen=True, slots=True)
class PureCalls:
    """Tables of pure prefill and pure decode calls, over all layers, with the law of the calls that mix them.

    Prompts enter as equal ones of the same tokens and work, decodes at their mean context.
    """

    prefill: Surface
    decode: Surface
    law: MixedLaw
    context: Axis = field(init=False, repr=False, compare=False)
    most_decodes: float = field(init=False, repr=False, compare=False)
    most_context: float = field(init=False, repr=False, compare=False)
    _fine: Fine = field(init=False, repr=False, compare=False)
    _most_prompts: float = field(init=False, repr=False, compare=False)
    _longest: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        measured = self.prefill.measured.any(axis=0)
        for name, value in (
            ("context", Axis.over(self.decode.length)),
            ("most_decodes", float(self.decode.batch[-1])),
            ("most_context", self.decode.most_tokens),
            ("_fine", Fine.of(self.prefill)),
            ("_most_prompts", float(self.prefill.batch[-1])),
            ("_longest", float(self.prefill.length[measured][-1])),
        ):
            object.__setattr__(self, name, value)

    def row(self, decodes: int) -> Floats:
        """So many decodes without prompts at the points of mean context, s."""
        curve = Curve(self.decode.length, self.decode.of_batch(decodes))
        return np.round(curve.at(self.context.points), DECIMALS)

    def prompts(self, tokens: int, work: float, equal: tuple[float, float]) -> float:
        """The prefill table at the number and length of the equal prompts."""
        return self._fine.at(*equal)

    def both(
        self,
        tokens: int,
        work: float,
        equal: tuple[float, float],
        decodes: int,
        decode_context: int,
        alone_s: float,
    ) -> float:
        """The prefill part as it is, and the decode part by the law."""
        return self._fine.at(*equal) + self.law.seconds(decodes, decode_context, alone_s)

    def left_by(self, equal: tuple[float, float], decodes: int, decode_context: int) -> str:
        """The axis along which a call leaves what was measured, empty where it does not."""
        prompts, length = equal
        if length > self._longest:
            return LENGTH
        if prompts > self._most_prompts:
            return PROMPTS
        if decodes > self.most_decodes:
            return DECODES
        return CONTEXT if decode_context > self.most_context else ""


def equal_prompts(tokens: int, work: float) -> tuple[float, float]:
    """The number and length of equal prompts: P²/2W of 2W/P tokens, one of √2W where that number is below one."""
    prompts = tokens * tokens / (2.0 * work)
    return (prompts, tokens / prompts) if prompts >= 1.0 else (1.0, sqrt(2.0 * work))
