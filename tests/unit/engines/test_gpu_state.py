"""The GPUs' state through nvidia-ml-py, against a library made as NVML's documentation tells: no test ran on a GPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.report.comparable import mean_clock, unequal_clocks
from harness.runs.run import Run, load_run
from tests.support.runfactory import toy_run, write_run

SOURCE = Path(__file__).parents[2] / "support" / "fake_nvml.c"
# The binding finds the library by its name as the process starts.
RECORD = """
import json, sys
from pathlib import Path
from harness.engines.serving.gpu_state import GpuState
with GpuState(Path(sys.argv[1]), every_s=0.01) as state:
    while len(state._samples) < 4 and state._nvml is not None:
        state._stop.wait(0.005)
print(json.dumps([state.observed, state.notes]))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the made library."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make a library with")
    place = tmp_path_factory.mktemp("nvml")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(place / "libnvidia-ml.so.1"), str(SOURCE)], check=True)
    return place


def record(directory: Path, library: Path | None, odd: str = "", *more: str) -> tuple[list[dict[str, Any]], list[str]]:
    env = os.environ | {"PYTHONPATH": os.getcwd(), "FAKE_NVML": odd, "LD_LIBRARY_PATH": str(library or "")}
    words = [sys.executable, *more, "-c", RECORD, str(directory)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env, check=True)
    observed, notes = json.loads(done.stdout)
    return observed, notes


def test_each_card_is_sampled_and_summed_up(library: Path, tmp_path: Path) -> None:
    (first, second), notes = record(tmp_path, library)
    assert notes == []
    assert first == {
        "sm_clock_mhz": 1800,
        "memory_clock_mhz": 2619,
        "power_w": 350.5,
        "temperature_c": 60,
        "sm_clock_least_mhz": 1800,
        "temperature_most_c": 60,
        "slowed": 0,
        "processes": 2,
    }
    assert 1600 < second["sm_clock_mhz"] < 1800
    assert (second["sm_clock_least_mhz"], second["temperature_most_c"]) == (1600, 88)
    assert (second["slowed"], second["processes"]) == (1, None)
    lines = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert len(lines) >= 5
    assert [line["t_s"] for line in lines] == sorted(line["t_s"] for line in lines)
    assert {card["reasons"] for line in lines for card in line["cards"]} == {0x1, 0x44}


def test_what_a_card_does_not_say_is_null(library: Path, tmp_path: Path) -> None:
    (first, _), notes = record(tmp_path, library, "lost")
    assert (first["sm_clock_mhz"], first["sm_clock_least_mhz"], first["power_w"]) == (None, None, 350.5)
    assert notes == []


def test_a_driver_or_a_binding_that_is_not_there_is_said(library: Path, tmp_path: Path) -> None:
    assert record(tmp_path, library, "unloaded") == (
        [],
        ["the GPUs' clocks, power and temperature are not recorded: NVML says Driver Not Loaded"],
    )
    observed, (note,) = record(tmp_path, None)
    assert observed == []
    assert note.startswith("the GPUs' clocks, power and temperature are not recorded: NVML says")
    assert not (tmp_path / "gpu.jsonl").exists()


def run_at(out: Path, *clocks: float | None) -> Run:
    cards = [{"sm_clock_mhz": clock} for clock in clocks]
    requests, steps = toy_run(20)
    return load_run(write_run(out, requests, steps, observed={"machine": {"elsewhere": 0.0, "gpus": cards}}))


def test_clocks_that_differ_by_more_than_three_percent_are_told_of_arms(tmp_path: Path) -> None:
    cool, warm, hot, unknown = (
        run_at(tmp_path / str(i), *clocks)
        for i, clocks in enumerate([(1800, 1800), (1750, 1746), (1700, 1700), (None,)])
    )
    assert mean_clock(warm) == 1748
    assert unequal_clocks([(cool, cool), (cool, warm), (cool, unknown), (unknown, hot)]) is None
    said = str(unequal_clocks([(cool, warm), (cool, hot)]))
    assert said.startswith("DEGRADED: the GPUs' mean clocks differ by 5.9 % (1,800 and 1,700 MHz)")
