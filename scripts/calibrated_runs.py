"""Small runs in memory under noise of a known kind, which scripts/calibration.py compares."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.core.records import REQUESTS
from harness.core.runspec import RunSpec
from harness.engines.simulated import Simulated
from harness.measure.estimate import Estimate
from harness.measure.measured import is_closed_loop, measure
from harness.profiles.cost import CostModel
from harness.report.alpha import CommonAlpha
from harness.runs.in_memory import RowsInMemory
from harness.runs.run import Run
from harness.session.one_run import stream_of
from workloads.core.stream import Stream

WORKLOADS = ("sharegpt", "synthetic:mu_l=512,mu_o=256,jitter=0.5")
IN_FLIGHT, WAVES, OVERLOAD = 32, 12, 2000
BASE = RunSpec(gpu="l40s", model="Qwen/Qwen3-8B", policy="v1", workload="", slots=IN_FLIGHT, cost_model="roofline")
# Another policy, to have a ratio that is not one.
OTHER = "eb:k=16"
NO_ALPHA = CommonAlpha(None, frozenset(), None)
NOISES = {"other requests": (True, 0.0, 0.0), "steps ±10 %": (False, 0.1, 0.0), "runs ±1 %": (False, 0.0, 0.01)}


class Noisy:
    """A cost model whose runs are slower or faster as wholes, and whose steps vary, each by a normal factor."""

    def __init__(self, cost: CostModel, seed: int, step: float, factor: float) -> None:
        self._cost, self._rng, self._step, self._factor = cost, np.random.default_rng([seed, 7]), step, factor
        self.name = cost.name

    def seconds(self, *given: Any) -> float:
        """The cost of one step, s."""
        own = self._cost.seconds(*given)
        return own * float(self._noise(1)[0]) if self._step else own * self._factor

    def decode_seconds(self, *given: Any) -> npt.NDArray[np.float64]:
        """The costs of steps in a row, s."""
        own = self._cost.decode_seconds(*given)
        return own * (self._noise(given[-1]) if self._step else self._factor)

    def parameters(self) -> dict[str, float]:
        """Those of the model itself."""
        return self._cost.parameters()

    def _noise(self, n: int) -> npt.NDArray[np.float64]:
        return self._factor * np.maximum(1 + self._step * self._rng.standard_normal(n), 0.1)


@dataclass(frozen=True, slots=True)
class Light:
    """What a comparison reads of a run, and nothing else: memory holds thousands."""

    estimates: dict[str, Estimate | None]
    beyond: float | None
    # No tail is a headline here.
    episodes: Counter[str] = field(default_factory=Counter)

    def slower(self, factor: float) -> Light:
        """The same of a closed loop whose every step takes a factor longer: its clock is the engine's alone."""
        told = {
            name: one and replace(one, value=one.value / factor if "throughput" in name else one.value * factor)
            for name, one in self.estimates.items()
        }
        return Light(told, self.beyond)


class Memory:
    """Stands in for the reader of run directories."""

    def __init__(self) -> None:
        self.runs: dict[Path, Light] = {}

    def values(self, run: Run, _: float | None) -> dict[str, float | None]:
        """Values by name."""
        return {name: one.value for name, one in self.runs[run.path].estimates.items() if one is not None}

    def estimate(self, run: Run, _: float | None, name: str) -> Estimate | None:
        """A value with its parts."""
        return self.runs[run.path].estimates[name]

    def facts(self, run: Run) -> Light:
        """What is kept of the run."""
        return self.runs[run.path]


MEMORY = Memory()
COUNT = iter(range(10**9))
HEADLINES = (*("output_throughput_steady", "output_throughput", "ttft_s_steady", "ttft_s", "tpot_s_steady", "tpot_s"),)


@lru_cache(maxsize=2)
def _stream(workload: str, arrival: str, requests: int, seed: int) -> Stream:
    """The requests of a run: those of the other arm of its pair as well."""
    return stream_of(replace(BASE, workload=workload, arrival=arrival, requests=requests, seed=seed))


def simulate(spec: RunSpec, noise_seed: int = 0, step: float = 0.0, factor: float = 1.0) -> Run:
    """One run under this noise; of closed loops under none each is made once, and slower ones are scaled."""
    asked = (spec.workload, spec.arrival, spec.requests, spec.seed, spec.policy, spec.slots)
    if step or not is_closed_loop(spec):
        light = _simulated(*asked, noise_seed, step, factor)
    else:
        light = _quiet(*asked).slower(factor)
    path = Path(str(next(COUNT)))
    MEMORY.runs[path] = light
    return Run(path, {"kind": "simulated", "status": "complete", "verdict": {"level": "VALID"}}, spec, {})


@lru_cache(maxsize=64)
def _quiet(workload: str, arrival: str, requests: int, seed: int, policy: str, slots: int) -> Light:
    """A run without noise."""
    return _simulated(workload, arrival, requests, seed, policy, slots, 0, 0.0, 1.0)


def _simulated(
    workload: str,
    arrival: str,
    requests: int,
    seed: int,
    policy: str,
    slots: int,
    noise_seed: int,
    step: float,
    factor: float,
) -> Light:
    """What a run is like whose steps take a factor longer, each by a normal share more or less."""
    spec = replace(BASE, workload=workload, arrival=arrival, requests=requests, seed=seed, policy=policy, slots=slots)
    engine = Simulated(spec, _stream(workload, arrival, requests, seed))
    engine.cost = Noisy(engine.cost, noise_seed, step, factor)
    tables = RowsInMemory()
    engine.replay(tables, lambda _: None, lambda: False)
    measured = measure(pa.Table.from_batches(tables.requests, REQUESTS), None, spec, is_closed_loop(spec))
    kept: dict[str, Estimate | None] = {}
    for name in HEADLINES:
        sample = measured.samples.get(name)
        kept[name] = sample.mean() if sample is not None else measured.rates.get(name)
    return Light(kept, measured.beyond)


@lru_cache
def capacity(workload: str, requests: int = 20_000, seed: int = 0) -> float:
    """Requests/s of a closed loop with a queue, which is what the slots can serve of these requests."""
    spec = replace(BASE, workload=workload, arrival=f"closed:concurrency={2 * IN_FLIGHT}", requests=requests, seed=seed)
    engine = Simulated(spec, stream_of(spec))
    tables = RowsInMemory()
    engine.replay(tables, lambda _: None, lambda: False)
    rates = measure(pa.Table.from_batches(tables.requests, REQUESTS), None, spec, True).rates
    rate = rates["request_throughput_steady"]
    assert rate is not None
    return rate.value


def load(workload: str, share: float | None, requests: int | None = None, slots: int = IN_FLIGHT) -> RunSpec:
    """A closed loop of so many slots (`share` None), or an open one at this share of the capacity."""
    arrival = f"closed:concurrency={slots}"
    if share is not None:
        arrival = f"poisson:rate={share * capacity(workload):.6f}"
    return replace(BASE, workload=workload, arrival=arrival, requests=requests or WAVES * slots, slots=slots)


def arms(
    spec: RunSpec, noise: str, repeats: int, seed: int, slower: float = 1.0, policy: str = "v1"
) -> list[tuple[Run, Run]]:
    """Paired repeats of equals (B slower by a factor, or of another policy, if told) under a kind of noise."""
    other, step, run = NOISES[noise]
    pairs = []
    for repeat in range(repeats):
        own = seed * 1000 + repeat
        draw = np.random.default_rng([own, 5]).standard_normal(2)
        a = simulate(replace(spec, seed=own, repeat=repeat), own, step, 1 + run * draw[0])
        b_seed = own + 500 if other else own
        b = simulate(
            replace(spec, seed=b_seed, repeat=repeat, policy=policy), own + 500, step, slower * (1 + run * draw[1])
        )
        pairs.append((a, b))
    return pairs
