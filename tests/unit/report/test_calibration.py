"""A seeded few of what scripts/calibration.py measures in full (docs/calibration.md)."""

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from harness.report.best import best_line, words_among
from harness.report.comparison import Comparison
from harness.report.words import BETTER, NO_DIFFERENCE, WORSE

SYNTHETIC = "synthetic:mu_l=512,mu_o=256,jitter=0.5"


@pytest.fixture(scope="module")
def calibration() -> Iterator[ModuleType]:
    scripts = str(Path(__file__).parents[3] / "scripts")
    sys.path.insert(0, scripts)
    yield importlib.import_module("calibration")
    sys.path.remove(scripts)


def test_equals_seldom_get_a_word_and_slower_ones_do(calibration: ModuleType) -> None:
    spec = calibration.load(SYNTHETIC, None, 400)
    told = 0
    for trial in range(6):
        pairs = calibration.arms(spec, "runs ±1 %", 3, trial + 1)
        told += any(map(calibration.is_word, calibration.words(pairs).values()))
        if trial < 2:
            slower = calibration.words(calibration.arms(spec, "runs ±1 %", 3, trial + 1, 1.3))
            assert {row.word for name, row in slower.items() if "ttft" not in name} == {WORSE}
    assert told <= 2


def test_rates_of_twelve_waves_are_those_of_a_hundred(calibration: ModuleType) -> None:
    """With the first wave and the last in it the ratio is 0.4 % too high, and no interval over repeats holds it."""
    spec = calibration.load(SYNTHETIC, None)
    name = "output_throughput_steady"

    def ratio(seed: int, requests: int) -> float:
        runs = [calibration.simulate(replace(spec, seed=seed, requests=requests, policy=p)) for p in ("v1", "eb:k=16")]
        a, b = (calibration.MEMORY.runs[run.path].estimates[name].value for run in runs)
        return float(b / a)

    long = ratio(1, 100 * calibration.IN_FLIGHT)
    short = [ratio(seed, 12 * calibration.IN_FLIGHT) for seed in range(10)]
    assert np.mean(short) == pytest.approx(long, rel=0.002)


def test_a_slower_engine_is_the_same_one_with_a_slower_clock(calibration: ModuleType) -> None:
    spec = calibration.load(SYNTHETIC, None, 200)
    scaled = calibration.MEMORY.runs[calibration.simulate(spec, factor=1.1).path]
    # A step noise too small to matter makes the script simulate instead.
    made = calibration.MEMORY.runs[calibration.simulate(spec, step=1e-15, factor=1.1).path]
    for name, one in made.estimates.items():
        assert scaled.estimates[name].value == pytest.approx(one.value, rel=1e-6)


def test_the_best_of_several_allows_for_the_choice(calibration: ModuleType) -> None:
    spec = calibration.load(SYNTHETIC, None, 400)
    comparisons = []
    for arm in range(4):
        pairs = calibration.arms(spec, "runs ±1 %", 3, 9, 0.8 if arm == 3 else 1.0 + arm / 1000)
        rows = calibration.words(pairs)
        runs = tuple(zip(*pairs, strict=True))
        comparisons.append(Comparison(runs[0], runs[1], {}, (), "", None, rows, tuple(rows)))
    words = words_among(comparisons, "output_throughput_steady")
    assert words[3] == BETTER
    assert words[:3] == [NO_DIFFERENCE] * 3
    line = best_line(comparisons)
    assert line is not None
    assert line.startswith("largest of 4 in output tok/s: v1 +2")
    assert line.endswith("better (Dunnett)")
    assert best_line(comparisons[:1]) is None


def test_binomial_intervals_are_clopper_and_pearsons(calibration: ModuleType) -> None:
    assert calibration.binomial(0, 60) == "0.0 % (0 of 60; 0.0–6.0)"
    assert calibration.binomial(3, 60) == "5.0 % (3 of 60; 1.0–13.9)"
