"""Step costs from a folder of measured layers, as LLMServingSim's profiler writes it: dense.csv, attention.csv, …"""

from __future__ import annotations

import csv
import hashlib
import io
from pathlib import Path

import numpy as np

from harness.core.errors import UserError
from harness.core.text import spelled
from harness.profiles.kernels.build import MOST_SEQUENCES, MOST_TOKENS, captured
from harness.profiles.kernels.calls import LARGEST_FILE, measured_calls
from harness.profiles.kernels.curves import DECIMALS, Curve
from harness.profiles.kernels.model import Kernels
from workloads.core.reading import open_regular

DENSE, ATTENTION, SEQUENCES, EXPERTS = "dense.csv", "attention.csv", "per_sequence.csv", "moe.csv"
# Layers of dense.csv that a step runs once; the others run in every layer of the model.
ONCE = ("embedding", "final_layernorm")
# Matrices that no step goes without; where moe.csv has experts, they stand for the last two.
MATRICES, FEED_FORWARD, HEAD = ("qkv_proj", "o_proj"), ("gate_up_proj", "down_proj"), ("lm_head",)


def from_folder(folder: Path, layers: int, host_s: float, decode_s: float) -> Kernels:
    """The cost model of a folder's tables, for a model of so many layers; UserError where one lacks or has holes.

    The tables are of one GPU's part of the model. Experts are measured with the most that tokens can activate.
    """
    experts = (folder / EXPERTS).is_file()
    dense = _curves(folder / DENSE, "tokens", MATRICES if experts else (*MATRICES, *FEED_FORWARD))
    sequences = _curves(folder / SEQUENCES, "sequences", HEAD)
    tokens = captured(np.arange(1, MOST_TOKENS + 1, dtype=np.float64))
    body = np.zeros(len(tokens))
    for name, curve in dense.items():
        body += (1 if name in ONCE else layers) * curve.at(tokens)
    if experts:
        body += layers * _experts(folder / EXPERTS).at(tokens)
    served = np.arange(1, MOST_SEQUENCES + 1, dtype=np.float64)
    head = np.sum([curve.at(served) for curve in sequences.values()], axis=0)
    attention = measured_calls(folder / ATTENTION, layers)
    return Kernels(
        body=[0.0, *np.round(body, DECIMALS).tolist()],
        head=[0.0, *np.round(head, DECIMALS).tolist()],
        attention=attention,
        host_s=host_s,
        decode_s=decode_s,
        about={"source": f"tables of {folder.name}", "mixed_call": "measured", "tables": digests(folder)},
    )


def digests(folder: Path) -> dict[str, str]:
    """The sha256 (hex) of each table of a folder."""
    names = [name for name in (DENSE, ATTENTION, SEQUENCES, EXPERTS) if (folder / name).is_file()]
    return {name: hashlib.sha256(_bytes(folder / name)).hexdigest() for name in names}


def _experts(path: Path) -> Curve:
    """The experts of a layer by tokens, as many activated as were measured at most."""
    rows = _rows(path, ("tokens", "activated_experts", "time_us"))
    slowest: dict[float, float] = {}
    for number, (tokens, _, time_us) in enumerate(rows, 2):
        seconds = _number(path, number, time_us) * 1e-6
        size = _number(path, number, tokens)
        slowest[size] = max(slowest.get(size, 0.0), seconds)
    return _curve(path, "experts", slowest)


def _curves(path: Path, size: str, needed: tuple[str, ...]) -> dict[str, Curve]:
    """The layers of a table; UserError where a needed one lacks, or one ends before the others."""
    points: dict[str, dict[float, float]] = {}
    for number, (layer, sizes, time_us) in enumerate(_rows(path, ("layer", size, "time_us")), 2):
        points.setdefault(layer, {})[_number(path, number, sizes)] = _number(path, number, time_us) * 1e-6
    curves = {layer: _curve(path, layer, found) for layer, found in points.items()}
    if lacking := [layer for layer in needed if layer not in points]:
        raise UserError(f"{spelled(path)}: no {', '.join(lacking)} in it, and no step goes without: measure again")
    longest = max(float(curve.x[-1]) for curve in curves.values())
    for layer, curve in curves.items():
        if curve.x[-1] < longest:
            raise UserError(
                f"{spelled(path)}: {layer} ends at {curve.x[-1]:g} {size}, others at {longest:g}: measure the rest"
            )
    return curves


def _curve(path: Path, what: str, points: dict[float, float]) -> Curve:
    if len(points) < 2:
        raise UserError(f"{spelled(path)}: {what} has one size alone: two are needed: measure again")
    sizes = sorted(points)
    return Curve(np.array(sizes), np.array([points[size] for size in sizes]))


def _number(path: Path, line: int, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise UserError(f"{spelled(path)}, line {line}: {text!r} must be a number above 0: measure again")
    return value


def _rows(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    where = spelled(path)
    try:
        rows = list(csv.reader(io.StringIO(_bytes(path).decode("utf-8"))))
    except (UnicodeDecodeError, csv.Error):
        rows = []
    if not rows or tuple(rows[0]) != columns or any(len(row) != len(columns) for row in rows):
        raise UserError(f"{where}: must be a CSV file of {','.join(columns)}")
    return rows[1:]


def _bytes(path: Path) -> bytes:
    with open_regular(path) as stream:
        data = stream.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise UserError(f"{spelled(path)}: larger than any table of kernels: name one")
    return data
