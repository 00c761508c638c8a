"""Measured calls beside the tables, and the grids that are measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.engines.serving.attention_calls import GRIDS, Sizes
from harness.profiles.attention_check import checked, heads_of
from harness.profiles.kernels.attention import equal_prompts
from harness.profiles.kernels.calls import COLUMNS, measured_calls
from harness.profiles.kernels.model import Kernels
from harness.profiles.pair import load_pair

SIZES = Sizes((128, 512), (0, 1024), (8, 64), (512, 2048))


def write_calls(path: Path, prompts: float, decodes: float, mixed: float) -> None:
    """What the tables give for Qwen3-8B on the L40S, a layer, each kind times a factor."""
    cost = load_pair("l40s", "Qwen3-8B").cost("kernels")
    assert isinstance(cost, Kernels)
    lines = [",".join(COLUMNS)]
    for chunk, before, many, context in SIZES.points():
        work = chunk * (before + chunk / 2)
        alone = cost._alone(many, many * context) if many else 0.0
        if not chunk:
            seconds = decodes * alone
        elif not many:
            seconds = prompts * cost.attention.prompts(chunk, work, equal_prompts(chunk, work))
        else:
            equal = equal_prompts(chunk, work)
            seconds = mixed * cost.attention.both(chunk, work, equal, many, many * context, alone)
        lines.append(f"{chunk},{before},{many},{context},{seconds / 36 * 1e6:.9f}")
    path.write_text("\n".join(lines) + "\n")


def test_each_kind_of_call_is_held_against_the_tables(tmp_path: Path) -> None:
    path = tmp_path / "calls.csv"
    write_calls(path, 1.1, 0.9, 1.5)
    assert checked(path, "l40s", "Qwen3-8B", 1) == [
        "prompts alone: 4 calls, 1.10 of the tables' time in the median",
        "decodes alone: 4 calls, 0.90 of the tables' time in the median",
        "mixed calls: 16 calls, 1.50 of the tables' time in the median",
    ]
    assert measured_calls(path, 36).used == 16


def test_without_tables_it_says_so(tmp_path: Path) -> None:
    assert checked(tmp_path / "none", "cpu", "Qwen3-8B", 1) == [
        "compared with no tables: --gpu names none that has them"
    ]
    (line,) = checked(tmp_path / "none", "a100", "google/gemma-7b", 1)
    assert line.startswith("compared with no tables: ")


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_a_grid_is_whole_and_fits_its_cache(kind: str) -> None:
    sizes = GRIDS[kind]
    points = sizes.points()
    prompts, decodes = len(sizes.chunks) * len(sizes.before), len(sizes.decodes) * len(sizes.contexts)
    assert len(points) == len(set(points)) == prompts + decodes + prompts * decodes
    assert points != sorted(points)
    most = max(-(-context // 32) * many + -(-(chunk + before) // 32) for chunk, before, many, context in points)
    assert most <= sizes.kv_tokens // 32 - 1


def test_the_heads_are_those_of_one_gpu() -> None:
    assert heads_of("Qwen3-8B", 1) == (32, 8, 128)
    assert heads_of("Llama-3.1-70B", 4) == (16, 2, 128)
    with pytest.raises(UserError, match="cannot be shared so"):
        heads_of("Qwen3-8B", 3)
