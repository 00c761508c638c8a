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
from harness.runs.run import Run
from harness.session.one_run import stream_of

WORKLOADS = ("sharegpt", "synthetic:mu_l=512,mu_o=256,jitter=0.5")
IN_FLIGHT, WAVES, OPEN, OVERLOAD = 64, 12, 1000, 2000
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
        return self._cost.seconds(*given) * float(self._noise(1)[0])

    def decode_seconds(self, *given: Any) -> npt.NDArray[np.float64]:
        """The costs of steps in a row, s."""
        return self._cost.decode_seconds(*given) * self._noise(given[-1])

    def parameters(self) -> dict[str, float]:
        """Those of the model itself."""
        return self._cost.parameters()

    def _noise(self, n: int) -> npt.NDArray[np.float64]:
        wobble = self._step * self._rng.standard_normal(n) if self._step else np.zeros(n)
        return self._factor * np.maximum(1 + wobble, 0.1)


@dataclass(slots=True)
class Tables:
    """Takes rows as a run directory does."""

    requests: list[pa.RecordBatch] = field(default_factory=list)
    steps: list[pa.RecordBatch] = field(default_factory=list)

    def add_requests(self, batch: pa.RecordBatch) -> None:
        """Keeps request rows."""
        self.requests.append(batch)

    def add_steps(self, batch: pa.RecordBatch) -> None:
        """Keeps step rows."""
        self.steps.append(batch)


@dataclass(frozen=True, slots=True)
class Light:
    """What a comparison reads of a run, and nothing else: memory holds thousands."""

    estimates: dict[str, Estimate | None]
    beyond: float | None
    # No tail is a headline here.
    episodes: Counter[str] = field(default_factory=Counter)


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


def simulate(spec: RunSpec, noise_seed: int = 0, step: float = 0.0, factor: float = 1.0) -> Run:
    """One run under this noise."""
    engine = Simulated(spec, stream_of(spec))
    engine.cost = Noisy(engine.cost, noise_seed, step, factor)
    tables = Tables()
    engine.replay(tables, lambda _: None, lambda: False)
    requests = pa.Table.from_batches(tables.requests, REQUESTS)
    measured = measure(requests, None, spec, is_closed_loop(spec))
    kept: dict[str, Estimate | None] = {}
    for name in HEADLINES:
        sample = measured.samples.get(name)
        kept[name] = sample.mean() if sample is not None else measured.rates.get(name)
    path = Path(str(next(COUNT)))
    MEMORY.runs[path] = Light(kept, measured.beyond)
    return Run(path, {"kind": "simulated", "status": "complete"}, spec, {})


@lru_cache
def capacity(workload: str) -> float:
    """Requests/s of a closed loop with a queue, which is what the slots can serve."""
    spec = replace(BASE, workload=workload, arrival=f"closed:concurrency={2 * IN_FLIGHT}", requests=3000)
    engine = Simulated(spec, stream_of(spec))
    tables = Tables()
    engine.replay(tables, lambda _: None, lambda: False)
    rate = measure(pa.Table.from_batches(tables.requests, REQUESTS), None, spec, True).rates[
        "request_throughput_steady"
    ]
    assert rate is not None
    return rate.value


def load(workload: str, share: float | None, requests: int | None = None) -> RunSpec:
    """A closed loop (`share` None), or an open one at this share of the capacity."""
    if share is None:
        arrival, n = f"closed:concurrency={IN_FLIGHT}", WAVES * IN_FLIGHT
    else:
        arrival, n = f"poisson:rate={share * capacity(workload):.6f}", OPEN
    return replace(BASE, workload=workload, arrival=arrival, requests=requests or n)


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
