"""`bench run`: several runs one after the other, watched, and the answer at the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from harness.comparable import arms
from harness.compare import compare_runs
from harness.document import run_table
from harness.engines.base import Status
from harness.errors import UserError
from harness.measure.verdict import LEVELS
from harness.plan import ENGINES, Asked, canonical_policies, plan_runs, read_arrival, read_slo
from harness.profile_table import nearest
from harness.run import prepare, rows_of, run
from harness.runs import Run
from harness.runspec import RunSpec
from harness.words import words

NOT_BUILT = {
    "vllm": "real vLLM deployments",
    "emulated": "vLLM's own scheduler in virtual time",
    "tokenstep": "the token-step model",
    "endpoint": "driving a server that already runs",
}


def asked_of(options: dict[str, Any]) -> Asked:
    """The runs that the options of `bench run` ask for; UserError where one is missing or cannot be had."""
    engine = options["engine"]
    if engine not in ENGINES:
        raise UserError(f"no engine {engine!r}{nearest(engine, ENGINES)} Use one of {', '.join(ENGINES)}")
    if engine in NOT_BUILT:
        raise UserError(
            f"--engine {engine}: {NOT_BUILT[engine]} is not in this version yet; "
            "leave --engine out to replay on the virtual-time engine (`simulated`)"
        )
    for name in ("gpus", "policies", "workloads"):
        if not options[name]:
            singular = {"gpus": "gpu l40s", "policies": "policy v1,ebplus", "workloads": "workload sharegpt"}[name]
            raise UserError(f"bench run needs --{singular.split()[0]}, such as --{singular}")
    template = RunSpec(
        gpu="",
        model=options["model"],
        policy="",
        workload="",
        engine="simulated",
        arrival=read_arrival(options["arrival"], options["rate"], options["concurrency"]).canonical,
        slots=options["slots"],
        token_budget=options["token_budget"],
        seed=options["seed"],
        kv_tokens=options["kv_tokens"],
        max_model_len=options["max_model_len"],
        watermark=options["watermark"],
        cost_model=options["cost_model"],
        max_duration_s=options["max_duration"],
        slo=read_slo(options["slo"]),
    )
    gpus = tuple(gpu for text in options["gpus"] for gpu in text.split(","))
    return Asked(gpus, options["policies"], options["workloads"], template, options["requests"], options["repeat"])


class RunSession:
    """Runs what was asked for; Ctrl-C ends the run under way readably, a second one at once."""

    def __init__(self, asked: Asked, out: Path, quiet: bool) -> None:
        self.interrupted = False
        self._out = out
        self._console = Console(stderr=True, highlight=False, soft_wrap=not sys.stderr.isatty())
        self._quiet = quiet
        self._policies = canonical_policies(asked.policies)
        self._specs = plan_runs(asked, lambda workload: rows_of(workload, asked.template.model))

    def go(self) -> list[Run]:
        """The finished runs in the order they ran; fewer after Ctrl-C."""
        self._say_what_this_is()
        runs = []
        with self._stoppable(), self._bar() as bar:
            for i, spec in enumerate(self._specs):
                label = f"{spec.policy} · {spec.workload} · {spec.gpu} · repeat {spec.repeat}"
                task = bar.add_task(label, total=spec.requests, clock="", rate="", place=f"{i + 1}/{len(self._specs)}")

                def progress(status: Status, task: Any = task) -> None:
                    rate = f"{status.output_tokens / status.now_s:,.0f} tok/s" if status.now_s else ""
                    bar.update(task, completed=status.finished, clock=f"virtual {status.now_s:,.1f} s", rate=rate)

                runs.append(run(prepare(spec), self._out, sys.argv, progress, lambda: self.interrupted))
                if self.interrupted:
                    self._console.print(f"interrupted: kept as {runs[-1].path}")
                    break
        return runs

    def report(self, runs: list[Run]) -> None:
        """Tables and words on standard output, then where the files are."""
        console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
        groups: dict[tuple[str, str], list[Run]] = {}
        for one in runs:
            groups.setdefault((one.spec.gpu, one.spec.workload), []).append(one)
        for (gpu, workload), group in groups.items():
            label = group[0].manifest["provenance"].get("trace_label", workload)
            console.print(f"\n{workload if label == workload else f'{workload} [{label}]'} on {gpu}", markup=False)
            console.print(run_table(group))
            for arm in arms(group):
                worst = max(arm, key=lambda one: LEVELS.index(one.level))
                for reason in worst.manifest["verdict"]["reasons"]:
                    console.print(f"  {worst.spec.policy} {reason}", markup=False)
            if self.interrupted:
                continue
            first, *others = sorted(arms(group), key=lambda arm: self._policies.index(arm[0].spec.policy))
            for other in others:
                console.print("\n".join(words(compare_runs(first, other))), markup=False)
        console.print()
        for one in runs:
            console.print(str(one.path), markup=False, soft_wrap=True)

    def _say_what_this_is(self) -> None:
        """What cannot run is refused, and what was put in another's place is said, before anything runs."""
        said: dict[str, None] = {}
        for spec in self._specs:
            if spec.repeat == 0:
                said.update(dict.fromkeys(prepare(spec).notes))
        self._console.print(
            "replaying on the virtual-time engine (this version has no real engine yet): results are `simulated`"
        )
        for note in said:
            self._console.print(note, markup=False)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        def stop(_signal: int, _frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        before = {one: signal.signal(one, stop) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _bar(self) -> Progress:
        columns = (
            TextColumn("{task.fields[place]}"),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[clock]}"),
            TextColumn("{task.fields[rate]}"),
        )
        hidden = self._quiet or not self._console.is_terminal
        return Progress(*columns, console=self._console, transient=True, disable=hidden)
