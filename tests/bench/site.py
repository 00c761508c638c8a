"""The leaderboard at scale: builds of many runs, timed, with their memory and the first page's size; printed, nothing
asserted.

    python tests/bench/site.py [--runs 500] [--repeats 3] [--requests 300] [--keep DIR] [--browser]

A few virtual runs are made and then copied under other GPUs, models and workloads, with specs and digests of their own,
so that every one of them passes `bench site check`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.core.runspec import RunSpec
from harness.runs.run import run_path

BENCH = str(Path(sys.executable).with_name("bench"))
POLICIES = ("v1", "v0", "eb", "ebplus", "eb:k=16")
GPUS = ("l40s", "rtx-pro-6000", "h100-sxm", "h200-sxm")
MODELS = ("Qwen/Qwen3-8B", "Qwen/Qwen3-14B", "meta-llama/Llama-3.1-8B-Instruct")


def patterns(directory: Path, repeats: int, requests: int) -> list[Path]:
    """Virtual runs of every policy, which the copies are made of."""
    load = ["--workload", "synthetic:mu_l=128,mu_o=64,jitter=0.5", "--concurrency", "96", "--slots", "48"]
    size = ["--requests", str(requests), "--repeat", str(repeats), "--out", str(directory), "--json"]
    command = [BENCH, "run", "--gpu", "l40s", "--policy", ",".join(POLICIES)]
    done = subprocess.run([*command, *load, *size], check=True, capture_output=True, text=True)
    return [Path(run["dir"]) for run in json.loads(done.stdout)["runs"]]


def make_runs(out: Path, count: int, repeats: int = 3, requests: int = 300) -> None:
    """At least `count` runs under `out`, in whole boards of every policy and repeat."""
    with tempfile.TemporaryDirectory(dir=out.parent) as scratch:
        found = patterns(Path(scratch), repeats, requests)
        for board in range(-(-count // len(found))):
            for pattern in found:
                copy(pattern, out, variant(board))


def variant(board: int) -> dict[str, Any]:
    """What tells a board from the others."""
    rest, gpu = divmod(board, len(GPUS))
    rest, model = divmod(rest, len(MODELS))
    return {"gpu": GPUS[gpu], "model": MODELS[model], "workload": f"synthetic:mu_l={128 + rest},mu_o=64,jitter=0.5"}


def copy(pattern: Path, out: Path, other: dict[str, Any]) -> Path:
    """The run once more under another spec; its tables are links to the pattern's."""
    manifest = json.loads((pattern / "run.json").read_text())
    spec = RunSpec.from_dict(manifest["spec"] | other)
    manifest |= {"spec": spec.to_dict(), "digest": spec.digest}
    path = run_path(out, spec, datetime.fromisoformat(manifest["started_utc"]))
    path.mkdir(parents=True)
    (path / "run.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n")
    for name in ("summary.json", "requests.parquet", "steps.parquet"):
        os.link(pattern / name, path / name)
    return path


def timed(*command: str) -> str:
    """Seconds and processor seconds of a command, the most memory of a process of it, and its last words."""
    begun, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([BENCH, *command], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    words = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
    # Of all children so far: the largest of them is the one that matters.
    return f"{time.perf_counter() - begun:7.2f} s, {cpu:7.2f} s of CPU, ≤ {after.ru_maxrss / 1024:,.0f} MiB: {words}"


def first_page(site: Path) -> Iterator[str]:
    """The parts of the first page without the chart script, with their bytes."""
    total = 0
    for name in (
        "index.html",
        "assets/site.css",
        "assets/site.js",
        "assets/charts.js",
        "assets/front.js",
        "assets/icon.svg",
    ):
        size = (site / name).stat().st_size
        total += size
        yield f"{name} {size:,}"
    yield f"together {total / 1000:,.1f} kB"


def drawn(site: Path) -> str:
    """Milliseconds from the start of the navigation to the first paint and to all rows laid out; medians of five."""
    from playwright.sync_api import sync_playwright

    paints, rows = [], []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", args=["--no-sandbox"])
        for _ in range(5):
            page = browser.new_context(locale="en-US", viewport={"width": 1280, "height": 900}).new_page()
            page.goto((site / "index.html").resolve().as_uri(), wait_until="load")
            paints.append(
                page.evaluate(
                    "() => new Promise(done => new PerformanceObserver(found => done(found.getEntries()[0].startTime))"
                    ".observe({type: 'paint', buffered: true}))"
                )
            )
            # By the end of this event the filters and the sorting are in place, too.
            rows.append(page.evaluate("() => performance.getEntriesByType('navigation')[0].loadEventEnd"))
            page.context.close()
        browser.close()
    return f"first paint {statistics.median(paints):,.0f} ms, all rows {statistics.median(rows):,.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--keep", type=Path, help="Where the runs and the site stay.  [default: nowhere]")
    parser.add_argument("--browser", action="store_true", help="Also time the first page in Chromium.")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root: Path = told.keep or Path(scratch)
        results, site = root / "results", root / "site"
        if not results.is_dir():
            results.mkdir(parents=True)
            make_runs(results, told.runs, told.repeats, told.requests)
        build = ("site", "build", "--results", str(results), "--out", str(site))
        print("first build  ", timed(*build))
        print("second build ", timed(*build))
        print("check        ", timed("site", "check", "--results", str(results)))
        print("first page   ", ", ".join(first_page(site)))
        if told.browser:
            print("drawn        ", drawn(site))


if __name__ == "__main__":
    main()
