"""The GPUs' own state while a run goes on: clocks, power, temperature, what slows them, who else uses them.

Asked of the driver's management library (NVML) through nvidia-ml-py, the extra `nvml`.
"""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

FILE = "gpu.jsonl"
# Longer than a driver that hangs may hold up a run's end.
_PATIENCE_S = 5.0
# Of the reasons for a lower clock those that take speed from a card at work: power, heat, the board's own guard.
_SLOWING = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
_NUMBERS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c", "processes")


class GpuState:
    """Samples every card once in `every_s` seconds, from its making on, into `gpu.jsonl` of a run directory.

    A line has `t_s` (seconds since the start) and `cards`, each with its numbers (null where the driver does not say)
    and `reasons`, NVML's bits of what holds its clock down. `notes` say why there is nothing, or less than asked for.
    """

    def __init__(self, directory: Path, every_s: float = 1.0) -> None:
        self.notes: list[str] = []
        self._path = directory / FILE
        self._every_s = every_s
        self._samples: list[list[dict[str, Any]]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpu-state", daemon=True)
        self._start = time.monotonic()
        self._nvml = self._library()

    def __enter__(self) -> GpuState:
        if self._nvml is not None:
            self._sample()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is None:
            return
        self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            self.notes.append("the GPUs' driver no longer answers: their state is known up to then")
        else:
            self._sample()

    @property
    def observed(self) -> list[dict[str, float | None]]:
        """What joins run.json: of each card its mean clocks, power and temperature, the rest by its worst.

        `sm_clock_least_mhz`, `temperature_most_c` and `processes` are of the worst sample, `slowed` is the share of
        samples in which power or heat held the clock down.
        """
        by_card = zip(*self._samples, strict=True) if self._samples else ()
        return [_summary(list(card)) for card in by_card]

    def _library(self) -> Any | None:
        """NVML, ready; None where it or its binding is not there, which a note says."""
        try:
            # An extra, and without types.
            nvml: Any = importlib.import_module("pynvml")
        except ImportError:
            self.notes.append(
                "the GPUs' clocks, power and temperature are not recorded: pip install 'schedbench[nvml]'"
            )
            return None
        try:
            nvml.nvmlInit()
            self._cards = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            self.notes.append(f"the GPUs' clocks, power and temperature are not recorded: NVML says {error}")
            return None
        return nvml

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._sample()

    def _sample(self) -> None:
        cards = [self._state(card) for card in self._cards]
        self._samples.append(cards)
        line = orjson.dumps(
            {"t_s": round(time.monotonic() - self._start, 6), "cards": cards}, option=orjson.OPT_APPEND_NEWLINE
        )
        try:
            with self._path.open("ab") as file:
                file.write(line)
        except OSError:
            # A full disk ends the run where its rows go; this file is only company.
            return

    def _state(self, card: Any) -> dict[str, Any]:
        """One card now; what its driver does not know is null."""
        nvml = self._nvml
        assert nvml is not None
        asked: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM),
            "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(card) / 1000,
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(card, nvml.NVML_TEMPERATURE_GPU),
            "processes": lambda: len(nvml.nvmlDeviceGetComputeRunningProcesses(card)),
            # Older drivers have it by its older name alone.
            "reasons": lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(card),
        }
        state = {}
        for name, ask in asked.items():
            try:
                state[name] = ask()
            except nvml.NVMLError:
                state[name] = None
        return state


def _summary(samples: list[dict[str, Any]]) -> dict[str, float | None]:
    """One card's samples in a few numbers, None where none of them has it."""
    known = {name: [one[name] for one in samples if one[name] is not None] for name in (*_NUMBERS, "reasons")}
    means = {
        name: sum(known[name]) / len(known[name]) if known[name] else None
        for name in ("sm_clock_mhz", "memory_clock_mhz", "power_w", "temperature_c")
    }
    slowed = [bool(reasons & _SLOWING) for reasons in known["reasons"]]
    return means | {
        "sm_clock_least_mhz": min(known["sm_clock_mhz"], default=None),
        "temperature_most_c": max(known["temperature_c"], default=None),
        "slowed": sum(slowed) / len(slowed) if slowed else None,
        "processes": max(known["processes"], default=None),
    }
