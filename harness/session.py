"""`bench run`: several runs one after the other, watched, and the answer at the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from harness.comparable import arms
from harness.compare import Comparison, compare_runs
from harness.console import leave_terminal, plain_console
from harness.document import fairness_table, mixed_share, run_table
from harness.engines.base import Status
from harness.engines.simulated import Simulated
from harness.engines.tokenstep import TokenStep
from harness.errors import USER_ERRORS, Interrupted, RunFailed, UserError
from harness.measure.verdict import LEVELS, verdict_so_far
from harness.plan import ENGINES, Asked, canonical_policies, dropped, plan_runs, read_arrival, read_slo, split_policies
from harness.profile_table import nearest
from harness.profiles import BLOCK
from harness.run import MakeEngine, Prepared, prepare, run, trace_of
from harness.runs import Run
from harness.runspec import RunSpec
from harness.words import words
from workloads.arrivals import Offline
from workloads.hints import canonical_lengths

DEFAULT_MODEL = "Qwen/Qwen3-8B"
# What replays where no server does.
MAKE: dict[str, MakeEngine] = {"simulated": Simulated, "tokenstep": TokenStep}
EXAMPLES = {"gpus": "gpu l40s", "policies": "policy v1,ebplus", "workloads": "workload sharegpt"}


def asked_of(options: dict[str, Any], client: dict[str, Any] | None = None) -> Asked:
    """The runs that the options of `bench run` ask for; UserError where one is missing or cannot be had.

    `client` says how a server is driven, where one is.
    """
    engine = engine_of(options)
    if engine == "endpoint":
        options = options | {"gpus": options["gpus"] or ("unknown",), "policies": options["policies"] or ("external",)}
    check_sharing(options, engine)
    for name, example in EXAMPLES.items():
        if not options[name]:
            raise UserError(f"bench run needs --{example.split()[0]}, such as --{example}")
    template = RunSpec(
        gpu="",
        model=options["model"] or DEFAULT_MODEL,
        policy="",
        workload="",
        engine=engine,
        arrival=_arrival(options, engine),
        slots=options["slots"],
        token_budget=options["token_budget"],
        seed=options["seed"],
        block_size=options["block_size"] or BLOCK,
        kv_tokens=options["kv_tokens"],
        max_model_len=options["max_model_len"],
        watermark=options["watermark"],
        cost_model=options["cost_model"],
        max_duration_s=options["max_duration"],
        slo=read_slo(options["slo"]),
        client=client or {},
        alpha=options["alpha"],
        lengths=canonical_lengths(options["lengths"]),
        engine_args=options["engine_args"],
        sessions=options["sessions"],
        think_s=options["think_time"],
        prefix_caching=options["prefix_caching"],
    )
    gpus = tuple(gpu for text in options["gpus"] for gpu in text.split(","))
    return Asked(gpus, options["policies"], options["workloads"], template, options["requests"], options["repeat"])


def check_sharing(options: dict[str, Any], engine: str) -> None:
    """UserError where a time to think or a prefix cache is asked for that could not be had."""
    if options["think_time"] and not options["sessions"]:
        raise UserError("--think-time goes with --sessions: only a conversation's next turn waits")
    if engine == "endpoint" and options["prefix_caching"] is not None:
        raise UserError("--prefix-caching: a server that runs already has its own setting: leave it out")


def _arrival(options: dict[str, Any], engine: str) -> str:
    """The arrival asked for, empty where nothing is said; all requests at once then for the token-step model."""
    given = options["arrival"], options["rate"], options["concurrency"]
    if engine == "tokenstep" and given == (None, None, None):
        return Offline().canonical
    arrival = read_arrival(*given)
    return "" if arrival is None else arrival.canonical


def engine_of(options: dict[str, Any]) -> str:
    """The engine asked for.

    `auto` is an endpoint where there is a --url, real vLLM where it can be started here (see `real_engine`), and
    the virtual-time engine elsewhere.
    """
    engine = str(options["engine"])
    if engine not in ENGINES:
        raise UserError(f"no engine {engine!r}{nearest(engine, ENGINES)} Use one of {', '.join(ENGINES)}")
    if engine == "auto":
        if options["url"] is not None:
            return "endpoint"
        return "vllm" if real_engine(options)[0] else "simulated"
    if engine == "endpoint" and options["url"] is None:
        raise UserError("--engine endpoint needs --url, such as --url http://127.0.0.1:8000")
    if engine != "endpoint" and options["url"] is not None:
        raise UserError(f"--url goes with --engine endpoint; --engine {engine} drives no server of yours")
    return engine


def real_engine(options: dict[str, Any]) -> tuple[bool, str]:
    """Whether `--engine auto` starts real vLLM here, and why: the GPU named must be there, and an environment."""
    from harness.engines.environments import engine_python
    from harness.engines.gpus_here import cards, is_cpu, is_here

    gpus = sorted({gpu for text in options["gpus"] for gpu in text.split(",")})
    if not gpus:
        return False, ""
    if len(gpus) > 1:
        return False, "several GPUs are named"
    cpu = is_cpu(gpus[0])
    if not cpu and not is_here(gpus[0], cards()):
        return False, f"there is no {gpus[0]} in this machine"
    try:
        python = engine_python(options["engine_python"], cpu)
    except UserError as error:
        return False, f"{gpus[0]} is here, but {error}"
    return True, f"{gpus[0]} is here, and {python} has vLLM"


class RunSession:
    """Runs what was asked for; Ctrl-C or a hang-up ends the run under way readably, a second Ctrl-C at once."""

    def __init__(self, asked: Asked, out: Path, quiet: bool, make: MakeEngine | None = None) -> None:
        self.interrupted = False
        self.failure: Exception | None = None
        # What was said of the choice of the engine, before anything of the runs.
        self.why = ""
        self._out = out
        self._make = make or MAKE[asked.template.engine]
        self._own_servers = asked.template.engine in ("vllm", "emulated")
        self._console = plain_console(stderr=True)
        self._quiet = quiet
        self.specs = plan_runs(
            asked, lambda workload, requests: trace_of(workload, requests, asked.template.seed, asked.template.model)
        )
        self._given = split_policies(asked.policies)
        self.policies = list(dict.fromkeys(spec.policy for spec in self.specs))
        if asked.template.engine != "endpoint":
            # The order in which they were given decides which one the others are held against.
            self.policies = canonical_policies(asked.policies, asked.template.engine)

    def warn(self, lines: list[str]) -> None:
        """Says what a user should know before the run begins."""
        for line in lines:
            self._console.print(line)

    def go(self) -> list[Run]:
        """The finished runs in the order they ran; fewer after Ctrl-C."""
        self._say_what_this_is()
        runs = []
        with self._stoppable(), self._bar() as bar:
            for i, spec in enumerate(self.specs):
                label = f"{spec.label} · {spec.workload} · {spec.gpu} · repeat {spec.repeat}"
                task = bar.add_task(label, total=spec.requests, told="", place=f"{i + 1}/{len(self.specs)}")

                def progress(status: Status, task: Any = task) -> None:
                    bar.update(task, completed=status.finished, told=_told(status))

                prepared = self._ready.pop(spec.digest, None) or prepare(spec, self._make)
                try:
                    runs.append(run(prepared, self._out, sys.argv, progress, lambda: self.interrupted))
                except Interrupted as error:
                    self.interrupted = True
                    self._console.print(str(error), soft_wrap=True)
                    break
                except (RunFailed, *USER_ERRORS) as error:
                    if not runs and self.failure is None and not (self._own_servers and isinstance(error, RunFailed)):
                        raise
                    if self._goes_on(error, i):
                        continue
                    break
                if runs[-1].status == "failed":
                    reason = f"{runs[-1].path}: {runs[-1].manifest['reason']}; what was recorded is kept"
                    if self._goes_on(RunFailed(reason), i):
                        continue
                    break
                if self.interrupted:
                    self._console.print(f"{runs[-1].status}: kept as {runs[-1].path}", soft_wrap=True)
                    break
        return runs

    def _goes_on(self, failure: Exception, place: int) -> bool:
        """Remembers a failure; whether the next run starts: each has a server of its own, where bench starts them."""
        self.failure = self.failure or failure
        rest = len(self.specs) - place - 1
        if not self._own_servers or self.interrupted or not rest:
            return False
        self._console.print(f"{failure}; the next run goes on ({rest} left)", soft_wrap=True)
        return True

    def comparisons(self, runs: list[Run]) -> list[Comparison]:
        """The first policy named against each of the others, a GPU and workload at a time; none after Ctrl-C."""
        if self.interrupted or self.failure:
            return []
        found = []
        for group in _groups(runs):
            first, *others = self._arms(group)
            found += [compare_runs(first, other) for other in others]
        return found

    def report(self, runs: list[Run], comparisons: list[Comparison]) -> None:
        """Tables and words on standard output, then where the files are."""
        console = plain_console()
        for group in _groups(runs):
            spec = group[0].spec
            label = group[0].manifest["provenance"].get("trace_label", spec.workload)
            heading = spec.workload if label == spec.workload else f"{spec.workload} [{label}]"
            console.print(f"\n{heading} on {spec.gpu}: {spec.requests:,} requests, {spec.arrival}")
            arms_ = self._arms(group)
            console.print(run_table([run for arm in arms_ for run in arm]))
            fairness = fairness_table([run for arm in arms_ for run in arm])
            if fairness is not None:
                console.print(fairness)
            for arm in arms_:
                for line in _about(arm):
                    console.print(f"  {line}")
            for note in dict.fromkeys(note for one in group for note in one.manifest["notes"]):
                if note not in self._said:
                    console.print(f"  note: {note}")
            for comparison in comparisons:
                if comparison.a[0] in group:
                    console.print("\n".join(words(comparison)))
        console.print()
        for one in runs:
            console.print(str(one.path), markup=False, soft_wrap=True)

    def _arms(self, group: list[Run]) -> list[list[Run]]:
        """The arms of a group in the order in which their policies were named."""
        return sorted(arms(group), key=lambda arm: self.policies.index(arm[0].spec.policy))

    def _say_what_this_is(self) -> None:
        """What cannot run is refused, and what was put in another's place is said, before anything runs."""
        self._said: dict[str, None] = {}
        self._ready: dict[str, Prepared] = {}
        for spec in self.specs:
            if spec.repeat == 0:
                ready = self._ready[spec.digest] = prepare(spec, self._make)
                self._said.update(dict.fromkeys(ready.notes))
        spec = self.specs[0]
        for text in dropped(self._given, self.policies):
            self._said[text] = None
        if spec.arrival.startswith("closed:"):
            in_flight = int(spec.arrival.partition("=")[2])
            if spec.requests < 4 * in_flight:
                self._said[
                    f"{spec.requests:,} requests at {in_flight:,} in flight are {spec.requests / in_flight:.1f} waves: "
                    "the run's start and end weigh in; more --requests show the steady state"
                ] = None
        if spec.engine == "simulated":
            why = f" ({self.why})" if self.why else ""
            self._console.print(f"replaying on the virtual-time engine{why}: results are `simulated`", soft_wrap=True)
        elif spec.engine == "emulated":
            self._console.print("replaying with vLLM's own scheduler in virtual time: results are `emulated`")
        elif self.why:
            self._console.print(f"starting real vLLM: {self.why}", soft_wrap=True)
        for note in self._said:
            self._console.print(note)

    @contextmanager
    def _stoppable(self) -> Iterator[None]:
        def stop(_signal: int, _frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        def hang_up(_signal: int, _frame: FrameType | None) -> None:
            # The shell and the kernel both tell of a terminal that closes: the second is no wish to end at once.
            self.interrupted = True
            leave_terminal()

        handlers = {signal.SIGINT: stop, signal.SIGTERM: stop}
        # Under nohup a run is meant to go on.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            handlers[signal.SIGHUP] = hang_up
        before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
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
            TextColumn("{task.fields[told]}", markup=False),
        )
        hidden = self._quiet or not self._console.is_terminal
        return Progress(*columns, console=self._console, transient=True, disable=hidden)


def _groups(runs: list[Run]) -> list[list[Run]]:
    groups: dict[tuple[str, str], list[Run]] = {}
    for one in runs:
        groups.setdefault((one.spec.gpu, one.spec.workload), []).append(one)
    return list(groups.values())


def _about(arm: list[Run]) -> list[str]:
    """Why an arm is not VALID, and how its policy went about it where it can choose."""
    worst = max(arm, key=lambda one: LEVELS.index(one.level))
    which = f" (worst of {len(arm)}: repeat {worst.spec.repeat})" if len(arm) > 1 else ""
    lines = [f"{worst.spec.label} {reason}{which}" for reason in worst.manifest["verdict"]["reasons"]]
    share = mixed_share(arm)
    if share is not None:
        lines.append(f"{worst.spec.policy} spent {100 * share:.0f} % of its steps in mixed mode")
    return lines


def _told(status: Status) -> str:
    rate = f"{status.output_tokens / status.now_s:,.0f} tok/s" if status.now_s > 0 else ""
    if status.doing:
        return status.doing
    if status.in_flight is None:
        return f"virtual {status.now_s:,.1f} s  {rate}"
    lag = "" if status.lag_s is None else f"  lag {status.lag_s * 1e3:.1f} ms"
    so_far = verdict_so_far(status.finished, status.failed, status.cpu_share)
    return f"{status.now_s:,.1f} s  {rate}  {status.in_flight} in flight  {status.failed} failed{lag}  {so_far} so far"
