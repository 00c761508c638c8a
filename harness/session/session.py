"""`bench run`: several runs one after the other, watched, and compared at the end."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.progress import Progress, TaskID

from harness.core.console import plain_console
from harness.core.errors import USER_ERRORS, Interrupted, RunFailed
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.report.arms import arms_of
from harness.report.comparison import Comparison, compare_runs
from harness.runs.run import Run
from harness.session.ask import Asked, dropped, split_policies
from harness.session.clock import SessionClock
from harness.session.finished import Finished
from harness.session.grid import canonical_policies, plan_runs
from harness.session.one_run import Prepared, prepare, run, trace_of
from harness.session.repeats import RepeatPlan
from harness.session.start import Started
from harness.session.stopping import Stopping
from harness.session.terminal import few_waves, opening, print_answer, print_places, progress_bar, status_line

# Engines that start a server or a scheduler of their own for each run: one run's failure says nothing of the next.
OWN_SERVERS = ("vllm", "emulated")
# What two servers may differ in.
OF_A_SERVER = frozenset({"engine_version", "async_scheduling", "url", "path"})


class RunSession:
    """Runs what was asked for; Ctrl-C or a hang-up ends the run under way readably, a second Ctrl-C at once.

    `why` is what is said of the choice of the engine, `plan` what was named beforehand of repeats and words. Runs that
    `out` has already are taken and not run, unless `again`. Afterwards `failure` is the first error of a run, if any.
    """

    def __init__(
        self,
        started: Started,
        out: Path,
        quiet: bool,
        why: str = "",
        plan: RepeatPlan | None = None,
        again: bool = False,
    ) -> None:
        self.failure: Exception | None = None
        self._why = why
        self._out = out
        self._make = started.make
        self._console = plain_console(stderr=True)
        self._quiet = quiet
        self._again = again
        self._stopping = Stopping()
        self._clock = SessionClock(0)
        self._ready: dict[str, Prepared] = {}
        self._said: list[str] = []
        asked, template = started.asked, started.asked.template
        self.specs = plan_runs(
            asked, lambda workload, requests: trace_of(workload, requests, template.seed, template.model)
        )
        self._plan = plan or RepeatPlan()
        self.specs = self._plan.with_equals(self.specs, template.engine, self._first_policy(asked))
        self._alone = asked.alone
        self._given = split_policies(asked.policies)
        # The order in which they were given decides which one the others are compared with.
        self.policies = list(asked.policies)
        if template.engine != "endpoint":
            self.policies = canonical_policies(asked.policies, template.engine)
        # Whoever names two servers asks what the difference between them does.
        self._may_differ = OF_A_SERVER if template.engine == "endpoint" else frozenset()
        self._goes_on_after_failure = template.engine in OWN_SERVERS
        self._warnings = started.warn(self.specs[0])

    @property
    def interrupted(self) -> bool:
        """Whether the user ended the runs."""
        return self._stopping.wanted

    def go(self) -> list[Run]:
        """The finished runs in the order they ran; fewer after Ctrl-C."""
        for warning in self._warnings:
            self._console.print(warning)
        self._prepare_first_repeats()
        self._say_what_this_is()
        runs: list[Run] = []
        finished = self._finished()
        self._clock = SessionClock(sum(spec.requests for spec in finished.left(self.specs)))
        with self._stopping.listening(), progress_bar(self._console, self._quiet) as bar:
            for place, spec in enumerate(self.specs):
                if (there := finished.take(spec)) is not None:
                    runs.append(there)
                elif self._one(spec, place, runs, bar):
                    self._say_how_far(spec, place + 1)
                else:
                    break
                if self._is_enough(runs, place):
                    break
        return runs

    def comparisons(self, runs: list[Run]) -> list[Comparison]:
        """The first policy named against each of the others, a GPU, workload, slots and arrival at a time.

        None after Ctrl-C.
        """
        if self.interrupted or self.failure:
            return []
        comparisons = []
        for first, *others in self._groups(runs):
            comparisons += [compare_runs(first, other, self._may_differ, rules=self._plan.rules) for other in others]
        return comparisons

    def report(self, runs: list[Run], comparisons: list[Comparison]) -> None:
        """Tables and sentences on standard output, then where the files are."""
        print_answer(self._groups(runs), comparisons, self._said)
        print_places(runs)

    def _finished(self) -> Finished:
        """The runs that need not run, once it is said which."""
        wanted = [] if self._again else self.specs
        finished = Finished(self._out, wanted, self._prepared, self._plan.named, self._alone)
        for line in finished.lines:
            self._console.print(line, soft_wrap=True)
        return finished

    def _prepared(self, spec: RunSpec) -> Prepared:
        return self._ready.get(spec.digest) or prepare(spec, self._make)

    def _one(self, spec: RunSpec, place: int, runs: list[Run], bar: Progress) -> bool:
        """Runs one spec and adds it to `runs`; whether the next one starts."""
        label = f"{spec.label} · {spec.workload} · {spec.gpu} · repeat {spec.repeat}"
        task = bar.add_task(label, total=spec.requests, told="", place=f"{place + 1}/{len(self.specs)}")
        try:
            finished = self._replay(spec, bar, task)
        except Interrupted as error:
            self._stopping.wanted = True
            self._console.print(str(error), soft_wrap=True)
            return False
        except (RunFailed, *USER_ERRORS) as error:
            first = not runs and self.failure is None
            if first and not (self._goes_on_after_failure and isinstance(error, RunFailed)):
                raise
            return self._goes_on(error, place)
        runs.append(finished)
        if finished.status == "failed":
            reason = f"{finished.path}: {finished.manifest['reason']}; what was recorded is kept"
            return self._goes_on(RunFailed(reason), place)
        if self.interrupted:
            self._console.print(f"{finished.status}: kept as {finished.path}", soft_wrap=True)
        return not self.interrupted

    def _replay(self, spec: RunSpec, bar: Progress, task: TaskID) -> Run:
        def progress(status: Status) -> None:
            told = f"{status_line(status)}  {self._clock.told(status.finished)}"
            bar.update(task, completed=status.finished, told=told)

        prepared = self._ready.pop(spec.digest, None) or prepare(spec, self._make)
        return run(prepared, self._out, sys.argv, progress, self._stopping, self._alone, self._plan.named)

    def _first_policy(self, asked: Asked) -> str:
        """The policy that is A, by its canonical name."""
        engine = asked.template.engine
        return asked.policies[0] if engine == "endpoint" else canonical_policies(asked.policies, engine)[0]

    def _is_enough(self, runs: list[Run], place: int) -> bool:
        """Whether the repeats so far make every headline interval as narrow as asked for; said where they do."""
        if not self._plan.looks_after(self.specs, place):
            return False
        told = self._plan.narrow(self.comparisons(runs))
        if told is None:
            return False
        self._console.print(told, soft_wrap=True)
        return True

    def _goes_on(self, failure: Exception, place: int) -> bool:
        """Remembers a failure; whether the next run starts."""
        self.failure = self.failure or failure
        rest = len(self.specs) - place - 1
        if not self._goes_on_after_failure or self.interrupted or not rest:
            return False
        self._console.print(f"{failure}; the next run goes on ({rest} left)", soft_wrap=True)
        return True

    def _say_how_far(self, spec: RunSpec, ended: int) -> None:
        self._clock.ended(spec.requests)
        line = self._clock.line(ended, len(self.specs))
        if line and not self._quiet and not self._console.is_terminal:
            self._console.print(line, soft_wrap=True)

    def _groups(self, runs: list[Run]) -> list[list[list[Run]]]:
        """The arms of each GPU, workload, slots and arrival, in the order in which their policies were named."""
        groups: dict[tuple[str, str, int, str], list[Run]] = {}
        for finished in runs:
            spec = finished.spec
            groups.setdefault((spec.gpu, spec.workload, spec.slots, spec.arrival), []).append(finished)
        return [sorted(arms_of(group), key=self._place_of) for group in groups.values()]

    def _place_of(self, arm: list[Run]) -> int:
        return self.policies.index(arm[0].spec.policy)

    def _prepare_first_repeats(self) -> None:
        """Makes the first repeat of each arm ready, so that what cannot run is refused before anything runs."""
        for spec in self.specs:
            if spec.repeat == 0:
                self._ready[spec.digest] = prepare(spec, self._make)

    def _say_what_this_is(self) -> None:
        """Says what was put in another's place, before anything runs."""
        notes = [note for prepared in self._ready.values() for note in prepared.notes]
        notes += dropped(self._given, self.policies)
        notes += [note for spec in self.specs for note in few_waves(spec)]
        self._said = list(dict.fromkeys(notes))
        line = opening(self.specs[0], self._why)
        for text in [line, *self._said] if line else self._said:
            self._console.print(text, soft_wrap=text == line)
