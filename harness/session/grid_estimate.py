"""How long a grid may take and how much memory, before it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.session.grid_plan import Cell

# Of the virtual engine on one core of a usual machine: a run's own time, and a request's; the other cost models that it
# is held against take as long again, each.
RUN_S, REQUEST_S, MODELS = 0.08, 0.1e-3, 3
# A process that has imported everything, and what its tables take a request.
PROCESS_BYTES, REQUEST_BYTES = 200 * 2**20, 4096
# Until a server of vLLM's has loaded its model.
START_S = 60.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds on so many processes, bytes of them all; `unknown` cells have no duration that could be told before."""

    seconds: float
    memory_bytes: int
    unknown: int


def estimate(cells: Sequence[Cell], jobs: int) -> Estimate:
    """What these cells may take on `jobs` processes: good to a factor of two."""
    virtual_s = real_s = 0.0
    unknown = 0
    largest = max((cell.spec.requests for cell in cells), default=0)
    for cell in cells:
        spec = cell.spec
        if cell.is_virtual:
            models = 1 if cell.options.alone else MODELS
            virtual_s += RUN_S + models * REQUEST_S * spec.requests
            continue
        rate = _rate(spec.arrival)
        known = [limit for limit in (spec.requests / rate if rate else None, spec.max_duration_s) if limit is not None]
        unknown += not known
        real_s += (START_S if spec.engine == "vllm" else 0.0) + min(known, default=0.0)
    jobs = max(1, min(jobs, len(cells)))
    return Estimate(real_s + virtual_s / jobs, jobs * (PROCESS_BYTES + REQUEST_BYTES * largest), unknown)


def _rate(arrival: str) -> float | None:
    """Requests/s of an open loop with one rate."""
    for part in arrival.partition(":")[2].split(","):
        name, _, value = part.partition("=")
        if name == "rate":
            return float(value)
    return None
