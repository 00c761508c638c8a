"""Makes the published runs of the virtual-time engine in results/: one `bench run` a line of JOBS.

Run from the repository's root: python scripts/publish_virtual.py [--only WORD] [--list]
What results/ has whole is not run again; what an interrupted call left of a job is taken away first and made anew.
Requests and slots are as few as give a steady window of more than half of every run (a verdict of VALID), so that
the repository stays small: every run keeps its tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path("results")

FOUR = "v1,v0,eb,ebplus"
THREE = "v1,eb,ebplus"


@dataclass(frozen=True, slots=True)
class Job:
    """One `bench run`: its options, how many runs it makes."""

    options: str
    policies: str
    repeats: int = 3

    @property
    def runs(self) -> int:
        """How many run directories it makes."""
        return self.repeats * len(self.policies.split(","))

    @property
    def words(self) -> list[str]:
        """The command line after `bench`."""
        fixed = f"--engine simulated --repeat {self.repeats} --out {RESULTS}"
        return ["run", "--policy", self.policies, *shlex.split(self.options), *fixed.split()]


def closed(slots: int, waves: float, budget: int = 14336) -> str:
    """A closed loop that keeps a quarter more in flight than fits, for so many times what is in flight."""
    inflight = slots * 5 // 4
    return f"--slots {slots} --token-budget {budget} --concurrency {inflight} --requests {int(inflight * waves)}"


def jobs() -> Iterator[Job]:
    """Everything that is published, in the order in which it is made."""
    # The load of arXiv 2606.00516, on the GPUs whose step costs are published, long enough for what is learned online.
    paper = "--workload sharegpt --concurrency 2048 --requests 6000"
    for gpu in ("h200", "rtxpro6000"):
        yield Job(f"--gpu {gpu} {paper} --slots 1024 --token-budget 14336", FOUR)
        # Once more with step costs from data sheets: where the two models disagree neither is to be believed.
        yield Job(f"--gpu {gpu} {paper} --slots 1024 --token-budget 14336 --cost-model roofline", FOUR)
    for gpu, policies, chat, waves, long_prompts, long_answers in (
        ("h200", FOUR, 512, 2.5, 128, 256),
        ("rtxpro6000", FOUR, 512, 2.5, 128, 256),
        ("b300", THREE, 512, 2.75, 128, 256),  # nobody has v0 there: it does not run on this GPU
        ("l40s", FOUR, 256, 3, 48, 96),
    ):
        for workload in ("wildchat",) if gpu in ("h200", "rtxpro6000") else ("sharegpt", "wildchat"):
            yield Job(f"--gpu {gpu} --workload {workload} {closed(chat, waves)}", policies)
        yield Job(f"--gpu {gpu} --workload lmsys {closed(256, 4)}", policies)
        yield Job(f"--gpu {gpu} --workload longbench {closed(long_prompts, 4)}", policies)
        yield Job(
            f"--gpu {gpu} --workload numinamath {closed(long_answers, 2.5)}", "v1,ebplus" if gpu == "l40s" else THREE
        )
    # Light load on the lengths of the paper's Table 4 (512 tokens and the chat template's 8): where EB waits.
    table4 = "--workload synthetic:mu_l=520,mu_o=256,jitter=0.25 --slots 2048 --token-budget 18432"
    for gpu in ("h200", "rtxpro6000"):
        yield Job(f"--gpu {gpu} {table4} --concurrency 32 --requests 128", FOUR)
    # Open loop, with limits for goodput: 40 s of arrivals or more (20 s at 30 requests/s), from light load to what v1
    # can serve at all (39 requests/s on the H200 and 15 on the L40S, in a closed loop).
    slo = "--slo ttft_s=1,tpot_s=0.05"
    for gpu, rate, requests in (
        ("h200", 15, 600),
        ("h200", 30, 600),
        ("h200", 45, 1800),
        ("l40s", 5, 240),
        ("l40s", 10, 450),
        ("l40s", 15, 600),
    ):
        yield Job(f"--gpu {gpu} --workload sharegpt --rate {rate} --requests {requests} {slo}", FOUR)
    # The published drifts, their phases shortened in proportion; the second is long, so once.
    yield Job("--gpu h200 --workload drift:distribution --slots 512 --concurrency 640 --requests 2400", THREE)
    drift = "--gpu h200 --workload drift:concurrency-paper --slots 2048 --token-budget 18432 --requests 7800"
    yield Job(drift, THREE, 1)
    # Resource-fair orders: they go by output lengths, known exactly or as a predictor would know them.
    fair = f"--gpu h200 --workload lmsys --alpha 100 {closed(128, 6.5)}"
    isjl = ",".join(f"isjl:alpha={alpha}" for alpha in (50, 100, 150, 400))
    yield Job(f"{fair} --lengths oracle", f"v1,sjf,ljf,{isjl}")
    yield Job(f"{fair} --lengths noisy:sigma=0.3", "isjl:alpha=100")
    yield Job(f"{fair} --lengths interval:sigma=0.3", "isjl:alpha=100")
    # Slots and budgets around the first job's (1024, 14336), for every policy at its own best.
    for slots, budget in ((512, 14336), (1024, 4096)):
        yield Job(f"--gpu rtxpro6000 {paper} --slots {slots} --token-budget {budget}", THREE, 1)
    # A fixed threshold below and above what is found online.
    yield Job(f"--gpu rtxpro6000 {paper} --slots 1024 --token-budget 14336", "eb:k=64,eb:k=768", 1)


def made() -> dict[str, list[Path]]:
    """The complete runs under results/ by the command that made them."""
    runs: dict[str, list[Path]] = {}
    for file in sorted(RESULTS.rglob("run.json")):
        manifest = json.loads(file.read_bytes())
        command = manifest.get("provenance", {}).get("command")
        if isinstance(command, list) and command[:1] == ["bench"]:
            runs.setdefault(shlex.join(command[1:]), []).append(file.parent)
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="WORD", help="jobs with this in their command line")
    parser.add_argument("--list", action="store_true", help="name the jobs and how many of their runs are there")
    options = parser.parse_args()
    if not (Path("scripts") / Path(__file__).name).is_file():
        sys.exit("run this from the repository's root: the command lines in the manifests name no other place")
    bench = Path(sysconfig.get_path("scripts")) / "bench"
    runs_of = made()
    for job in jobs():
        line = shlex.join(job.words)
        if options.only not in line:
            continue
        runs = [path for path in runs_of.get(line, []) if not path.name.endswith(".partial")]
        if options.list or len(runs) == job.runs:
            print(f"{len(runs):>3} of {job.runs:>3}  bench {line}", flush=True)
            continue
        for path in runs_of.get(line, []):
            shutil.rmtree(path)
        print(f"making    bench {line}", flush=True)
        process = subprocess.run(
            [bench, *job.words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False
        )
        if process.returncode:
            sys.exit(f"bench ended with {process.returncode}:\n{process.stderr}")


if __name__ == "__main__":
    main()
