"""How long the fairness of a long step log takes: `python tests/bench/fairness.py`."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from harness.measure.fairness import estimates
from harness.measure.measured import step_states

ROWS = 1_000_000


def main() -> None:
    rng = np.random.default_rng(0)
    n, low, spread = rng.integers(0, 1024, ROWS), rng.integers(1, 500, ROWS), rng.integers(0, 3000, ROWS)
    columns = {
        "duration_s": rng.integers(1, 10**8, ROWS) / 1e9,
        "prefill_tokens": rng.integers(0, 100, ROWS),
        "producing": n,
    }
    for name, prompt in (("generated", 0), ("footprint", rng.integers(0, 20_000, ROWS))):
        least = low + prompt
        columns |= {f"{name}_sum": n * least, f"{name}_min": least, f"{name}_max": least + spread}
    table = pa.table(columns)
    start = time.perf_counter()
    for variant, state in step_states(table).items():
        estimates(table, variant, state, 100.0, 0.01)
    print(f"fairness of {ROWS:,} steps, decode and KV: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
