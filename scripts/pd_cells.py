"""Published throughputs of prefill and decode apart, beside the virtual engine's: `python scripts/pd_cells.py`.

Qwen3-8B on two and on four GPUs, total tokens/s: the authors' reply to reviewers of arXiv 2606.00516
(rucnyz/vllm:pd_exp/paper/rebuttal.md@744d0d84), vLLM's disaggregation with v1 on each engine. Slots and token budget
are not stated; here 1,024 and 8,192.
"""

from __future__ import annotations

import statistics

import pyarrow as pa

from harness.core.records import REQUESTS, STEPS
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.engines.simulated import Simulated
from harness.measure.summary import summarise
from harness.runs.in_memory import RowsInMemory
from harness.session.one_run import stream_of

# GPU, mean prompt and output, in flight; then tokens/s of 1P+3D, 2P+2D and 3P+1D. None: it failed there.
FOUR: dict[tuple[str, int, int, int], tuple[int | None, int | None, int | None]] = {
    ("rtxpro6000", 1024, 128, 128): (23245, 42577, 31490),
    ("rtxpro6000", 512, 512, 128): (12629, 11640, 9023),
    ("rtxpro6000", 128, 1024, 128): (7469, 6848, 5450),
    ("rtxpro6000", 1024, 128, 512): (22531, 43326, None),
    ("rtxpro6000", 512, 512, 512): (25080, 20397, None),
    ("rtxpro6000", 128, 1024, 512): (17224, 13169, 7579),
    ("h200", 1024, 128, 128): (40535, 82400, 70255),
    ("h200", 512, 512, 128): (31341, 29388, 21963),
    ("h200", 128, 1024, 128): (18861, 17227, 13536),
    ("h200", 1024, 128, 512): (39925, 78486, None),
    ("h200", 512, 512, 512): (46261, 48895, None),
    ("h200", 128, 1024, 512): (38287, 30567, 17544),
}
# The same of 1P+1D.
TWO = {
    ("h200", 512, 256, 64): 22825,
    ("h200", 512, 256, 512): 39649,
    ("rtxpro6000", 512, 256, 64): 8606,
    ("rtxpro6000", 512, 256, 512): 16467,
}


def simulated(gpu: str, mu_l: int, mu_o: int, concurrency: int, prefill: int, decode: int) -> float:
    spec = RunSpec(
        gpu=gpu,
        model="Qwen/Qwen3-8B",
        policy=f"pd:prefill={prefill},decode={decode}",
        workload=f"synthetic:mu_l={mu_l},mu_o={mu_o}",
        arrival=f"closed:concurrency={concurrency}",
        requests=2000,
        token_budget=8192,
        cost_model="kernels",
        replicas=prefill + decode,
        router="least-loaded",
    )
    tables = RowsInMemory()

    def progress(_: Status) -> None:
        pass

    Simulated(spec, stream_of(spec)).replay(tables, progress, lambda: False)
    requests, steps = pa.Table.from_batches(tables.requests, REQUESTS), pa.Table.from_batches(tables.steps, STEPS)
    return float(summarise(requests, steps, spec, True)["metrics"]["total_throughput"]["value"])


def main() -> None:
    cells = [(*setting, 1, 1, published) for setting, published in TWO.items()]
    for setting, row in FOUR.items():
        cells += [(*setting, p, 4 - p, told) for p, told in enumerate(row, start=1) if told is not None]
    errors = []
    print("| GPU | prompt : output | in flight | engines | published tok/s | virtual tok/s | off by |")
    print("|---|---|---|---|---|---|---|")
    for gpu, mu_l, mu_o, concurrency, prefill, decode, published in cells:
        found = simulated(gpu, mu_l, mu_o, concurrency, prefill, decode)
        errors.append(100 * (found / published - 1))
        where = f"| {gpu} | {mu_l} : {mu_o} | {concurrency} | {prefill}P+{decode}D"
        print(f"{where} | {published:,} | {found:,.0f} | {errors[-1]:+.1f} % |", flush=True)
    sizes, mean = [abs(error) for error in errors], statistics.fmean(errors)
    print(f"\n{len(errors)} cells: off by {statistics.median(sizes):.1f} % in the median, {max(sizes):.1f} % at most")
    print(f"mean {mean:+.1f} %")


if __name__ == "__main__":
    main()
