"""How well a grid of virtual cells uses the cores, and how long the scan of finished ones takes.

python tests/bench/grid.py [--cells 1000] [--requests 50 1000] [--finished 100000]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import orjson

from harness.core.machine import cores
from harness.runs.run import run_path
from harness.session.grid_file import points_of, read_grid
from harness.session.grid_local import LocalExecutor
from harness.session.grid_plan import Plan, plan_grid
from harness.session.grid_run import GridSession, resume
from harness.session.grid_state import alone_in
from harness.session.grid_worker import run_cell

GRID = """
engine = "simulated"
gpu = ["l40s", "h200"]
policy = ["v1", "v0", "eb", "ebplus"]
workload = "lmsys"
requests = {requests}
rate = {rates}
slots = 16
repeat = {repeat}
alone = true
"""


def planned(folder: Path, cells: int, requests: int, repeat: int) -> Plan:
    """A plan of so many cells: two GPUs, four policies, rates, repeats."""
    rates = [round(1 + place / 8, 3) for place in range(cells // (8 * repeat))]
    (folder / "grid.toml").write_text(GRID.format(requests=requests, rates=rates, repeat=repeat))
    return plan_grid(points_of(read_grid(folder / "grid.toml")))


def run_cells(folder: Path, cells: int, requests: int) -> None:
    """Runs a grid and prints how busy its processes were, and what a cell takes beside its run."""
    plan = planned(folder, cells, requests, 5)
    out = folder / f"runs{requests}"
    started_s = time.perf_counter()
    tally = GridSession(plan, out, quiet=True).go(lambda: LocalExecutor(out, None, ()), retry_failed=False)
    wall_s = time.perf_counter() - started_s
    busy = tally.busy_s / (wall_s * cores())
    each_s = (wall_s * cores() - tally.busy_s) / cells
    print(f"{tally.done} cells of {requests} requests in {wall_s:.1f} s, on {cores()} cores {100 * busy:.1f} % busy")
    print(f"  a cell: {wall_s * cores() / cells:.3f} core seconds, {tally.cpu_s / cells:.3f} s of processor in it")
    print(f"  processor used {100 * tally.cpu_s / (wall_s * cores()):.1f} %; the rest waits for the disk or other work")
    print(f"  beside its run {each_s:.4f} s")


def scan(folder: Path, finished: int) -> None:
    """Makes run directories of finished cells and prints how long the plan and the scan of them take."""
    started_s = time.perf_counter()
    plan = planned(folder, finished, 20, 5)
    plan_s = time.perf_counter() - started_s
    out = folder / "finished"
    outcome = run_cell(plan.cells[0], folder / "one", lambda: False)
    run = Path(outcome.path)
    manifest = json.loads((run / "run.json").read_text())
    now = datetime.now(UTC)
    for cell in plan.cells:
        held = manifest | {"spec": cell.spec.to_dict(), "digest": cell.digest}
        path = run_path(out, cell.spec, now)
        path.mkdir(parents=True)
        (path / "run.json").write_bytes(orjson.dumps(held, option=orjson.OPT_INDENT_2))
    print(f"{len(plan.cells):,} cells planned in {plan_s:.2f} s")
    with alone_in(out):
        for what in ("of which nothing is known", "that the index knows"):
            started_s, started_cpu_s = time.perf_counter(), time.process_time()
            todo = resume(plan, out, retry_failed=False)
            todo.index.write()
            cpu_s = time.process_time() - started_cpu_s
            assert not todo.units
            print(
                f"  finished ones {what} found in {time.perf_counter() - started_s:.2f} s ({cpu_s:.2f} s of processor)"
            )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--requests", type=int, nargs="+", default=[50, 1000])
    parser.add_argument("--finished", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-grid-") as folder:
        for requests in options.requests:
            if options.cells:
                run_cells(Path(folder), options.cells, requests)
        if options.finished:
            scan(Path(folder), options.finished)


if __name__ == "__main__":
    main()
