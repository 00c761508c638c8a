"""Attention calls measured one by one, mixed ones too: the table that `bench calibrate attention` writes.

A file has a line a call of one layer: `prefill_chunk` new tokens of one prompt behind `kv_prefill` others, beside
`n_decode` decodes of `kv_decode` tokens of context each, and `time_us`. LLMServingSim's profiler writes the same.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import math
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np

from harness.core.errors import UserError
from harness.core.text import spelled
from harness.profiles.kernels.attention import CONTEXT, DECODES, LENGTH
from harness.profiles.kernels.curves import DECIMALS, Curve, Floats
from harness.profiles.kernels.fine import Axis
from workloads.core.reading import open_regular

COLUMNS = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
# No table is larger.
LARGEST_FILE = 64 << 20
# Of a file's mixed calls so many at least must lie in one whole grid.
LEAST_USED = 1 / 3
# An axis that begins at 0 is spread by this, so that its logarithm exists: two tokens apart weigh little beyond it.
SHIFT = 16.0

Grid = dict[tuple[float, ...], float]


@dataclass(frozen=True, slots=True)
class Calls:
    """Measured calls of one layer as a file has them: times (s) by chunk, context before it, decodes and context."""

    where: str
    times: Grid


def read_calls(path: Path) -> Calls:
    """The calls of a file; UserError where it is none, or its pure calls have holes."""
    where = spelled(path)
    with open_regular(path) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise UserError(f"{where}: larger than any table of attention calls: name one")
    try:
        rows = list(csv.reader(io.StringIO(data.decode("utf-8"))))
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{where}: not a CSV file of attention calls ({', '.join(COLUMNS)})") from None
    if not rows or tuple(rows[0]) != COLUMNS:
        raise UserError(f"{where}: its first line must be {','.join(COLUMNS)}")
    times: Grid = {}
    for number, row in enumerate(rows[1:], 2):
        try:
            values = [float(text) for text in row]
        except ValueError:
            values = []
        key = tuple(values[:4])
        sound = len(values) == 5 and all(math.isfinite(one) and 0 <= one <= 1e9 for one in values) and values[4] > 0
        if not sound or not (key[0] or key[2]) or (key[1] and not key[0]) or bool(key[2]) != bool(key[3]):
            raise UserError(f"{where}, line {number}: not a call of new tokens or decodes with its time: measure again")
        times[key] = values[4] * 1e-6
    return Calls(where, times)


def digest_of(path: Path) -> str:
    """The sha256 (hex) of a file of calls."""
    with open_regular(path) as stream:
        return hashlib.sha256(stream.read(LARGEST_FILE)).hexdigest()


def measured_calls(path: Path, layers: int) -> MeasuredCalls:
    """Attention from the calls of a file, over so many layers; read once as long as the file stays as it is."""
    try:
        state = path.stat()
    except OSError:
        return MeasuredCalls.of(read_calls(path), layers)
    return _measured_calls(path, layers, state.st_mtime_ns, state.st_size)


@functools.lru_cache(maxsize=8)
def _measured_calls(path: Path, layers: int, _changed: int, _size: int) -> MeasuredCalls:
    return MeasuredCalls.of(read_calls(path), layers)


def whole(calls: Calls, axes: list[list[float]]) -> Floats:
    """The times over a grid, s, shape of the axes; UserError names the first hole."""
    seconds = np.empty([len(axis) for axis in axes])
    for place, key in zip(np.ndindex(*seconds.shape), product(*axes), strict=True):
        if key not in calls.times:
            told = ", ".join(f"{name} {value:g}" for name, value in zip(COLUMNS, key, strict=False))
            raise UserError(f"{calls.where}: a hole at {told}: a call of every combination is needed: measure it")
        seconds[place] = calls.times[key]
    return seconds


def logs(values: Floats | list[float]) -> Floats:
    """Where sizes lie along an axis that may begin at 0."""
    return np.log2(np.asarray(values, dtype=np.float64) + SHIFT)


@dataclass(frozen=True, slots=True)
class LogGrid:
    """Times over a whole grid, multilinear in the logarithms of axes and value; `ends` are the axes' last values."""

    axes: tuple[list[float], ...]
    ends: tuple[float, ...]
    log_seconds: Floats

    @classmethod
    def of(cls, axes: list[list[float]], seconds: Floats) -> LogGrid:
        """The grid of these values; `seconds` of the shape of the axes."""
        return cls(tuple(logs(axis).tolist() for axis in axes), tuple(axis[-1] for axis in axes), np.log2(seconds))

    def at(self, point: tuple[float, ...]) -> float:
        """The time at a point, s; at the edge where it lies beyond."""
        part = self.log_seconds
        for axis, value in zip(self.axes, point, strict=True):
            place = min(max(math.log2(value + SHIFT), axis[0]), axis[-1])
            high = min(max(bisect_left(axis, place), 1), len(axis) - 1)
            weight = (place - axis[high - 1]) / (axis[high] - axis[high - 1])
            part = part[high - 1] + (part[high] - part[high - 1]) * weight
        return float(np.exp2(part))


@dataclass(frozen=True, slots=True)
class MeasuredCalls:
    """Attention from measured calls alone, over all layers: mixed ones by chunk, context before it, decodes, context.

    Several prompts are one chunk of the same tokens and work, decodes enter at their mean context. `decode` has the
    times of decodes alone, s, shape (decodes, contexts).
    """

    mixed: LogGrid
    prefill: LogGrid
    counts: Floats
    contexts: Floats
    decode: Floats
    context: Axis = field(init=False, repr=False, compare=False)
    most_decodes: float = field(init=False, repr=False, compare=False)
    most_context: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "context", Axis.over(self.contexts))
        object.__setattr__(self, "most_decodes", float(self.counts[-1]))
        object.__setattr__(self, "most_context", float(self.counts[-1] * self.contexts[-1]))

    @property
    def used(self) -> int:
        """The mixed calls of the whole grid."""
        return int(self.mixed.log_seconds.size)

    @classmethod
    def of(cls, calls: Calls, layers: int) -> MeasuredCalls:
        """The calls of a file over so many layers; UserError where pure or mixed calls have holes."""
        mixed = mixed_axes(calls)
        chunks, before = pure_axes(calls, 0)
        counts, contexts = pure_axes(calls, 2)

        def seconds(axes: list[list[float]]) -> Floats:
            return layers * whole(calls, axes)

        return cls(
            mixed=LogGrid.of(mixed, seconds(mixed)),
            prefill=LogGrid.of([chunks, before], seconds([chunks, before, [0.0], [0.0]])[:, :, 0, 0]),
            counts=np.array(counts),
            contexts=np.array(contexts),
            decode=seconds([[0.0], [0.0], counts, contexts])[0, 0],
        )

    def row(self, decodes: int) -> Floats:
        """So many decodes without prompts at the points of mean context, s."""
        if decodes >= self.counts[-1]:
            times = self.decode[-1] * (decodes / self.counts[-1])
        else:
            times = np.array([float(Curve(self.counts, column).at(decodes)) for column in self.decode.T])
        return np.round(Curve(self.contexts, times).at(self.context.points), DECIMALS)

    def prompts(self, tokens: int, work: float, equal: tuple[float, float]) -> float:
        """One chunk of these tokens behind as many others as give this work."""
        return self.prefill.at((tokens, max(0.0, work / tokens - tokens / 2)))

    def both(
        self,
        tokens: int,
        work: float,
        equal: tuple[float, float],
        decodes: int,
        decode_context: int,
        alone_s: float,
    ) -> float:
        """The measured mixed call; where more decodes run than in any, as much more as they take alone."""
        context = decode_context / decodes
        seconds = self.mixed.at((tokens, max(0.0, work / tokens - tokens / 2), decodes, context))
        most = int(self.mixed.ends[2])
        if decodes > most:
            seconds += alone_s - float(np.interp(context, self.context.points, self.row(most)))
        return seconds

    def left_by(self, equal: tuple[float, float], decodes: int, decode_context: int) -> str:
        """The axis along which a call leaves what was measured, empty where it does not."""
        chunk, before, counts, context = self.mixed.ends
        if equal[1] > chunk + before:
            return LENGTH
        if decodes > counts:
            return DECODES
        return CONTEXT if decode_context > context * decodes else ""


def mixed_axes(calls: Calls) -> list[list[float]]:
    """The largest whole grid of mixed calls: of chunk, context before it, decodes and context.

    A file may have more points of some chunks than of others: those chunks are kept that, with what all of them have,
    give the most calls. UserError where two sizes along each axis are not there.
    """
    rest: dict[float, set[tuple[float, ...]]] = {}
    for key in calls.times:
        if key[0] and key[2]:
            rest.setdefault(key[0], set()).add(key[1:])
    best: list[list[float]] = [[], [], [], []]
    for least in {len(found) for found in rest.values()}:
        chunks = sorted(chunk for chunk, found in rest.items() if len(found) >= least)
        common = set.intersection(*(rest[chunk] for chunk in chunks))
        axes = [chunks, *(sorted({key[place] for key in common}) for place in range(3))]
        if math.prod(map(len, axes)) == len(chunks) * len(common) > math.prod(map(len, best)):
            best = axes
    _enough(calls, "mixed calls", best)
    there = sum(map(len, rest.values()))
    if math.prod(map(len, best)) < LEAST_USED * there:
        raise UserError(
            f"{calls.where}: its {there:,} mixed calls have holes, the largest whole grid takes "
            f"{math.prod(map(len, best)):,}: measure what is missing"
        )
    return best


def pure_axes(calls: Calls, place: int) -> list[list[float]]:
    """The sizes of calls without the other part, of prompts (`place` 0) or decodes (2): the second that all have."""
    rest: dict[float, set[float]] = {}
    for key in calls.times:
        if key[place] and not key[2 - place]:
            rest.setdefault(key[place], set()).add(key[place + 1])
    axes = [sorted(rest), sorted(set.intersection(*rest.values()))] if rest else [[], []]
    _enough(calls, "prompts alone" if place == 0 else "decodes alone", axes)
    return axes


def _enough(calls: Calls, what: str, axes: list[list[float]]) -> None:
    if min(map(len, axes)) < 2:
        raise UserError(f"{calls.where}: too few {what}, or holes among them: measure two sizes at least of each axis")
