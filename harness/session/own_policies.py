"""`bench policy`: a file to begin with, and the trial of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import RunFailed, UserError
from harness.core.text import spelled
from harness.engines.policy_cases import COSTS
from harness.engines.policy_check import Tried, hold_against_vllm, try_policy
from harness.engines.serving.environments import examine
from harness.engines.serving.scheduler_process import SchedulerProcess
from harness.session.confined import Confines, confined
from policies import options
from policies.own import template
from policies.own.file import PolicyFile, read_file, split
from policies.own.load import canonical_own, make_own

CLASS = "Mine"
# A trial takes seconds; what takes longer does not end.
TRIAL = Confines(seconds=300.0)


@dataclass(frozen=True, slots=True)
class Trial:
    """What was found: lines on what is in order, and lines on what is not."""

    name: str
    tried: Tried
    vllm: str
    problems: tuple[str, ...]


def write_new(path: Path) -> None:
    """Writes a policy that runs, with what else it could say in comments; UserError where something lies there."""
    if path.suffix != ".py":
        raise UserError(f"{path}: a policy's file ends in .py: {path.with_suffix('.py')}")
    text = inspect.getsource(template).replace("mine.py", path.name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UserError(f"{path}: there already: name a new file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from None


def named(text: str) -> tuple[PolicyFile, dict[str, str]]:
    """The file and the options of `./mine.py:Mine,k=8`."""
    path, class_name, rest = split(text)
    if not path.endswith(".py"):
        raise UserError(f"{spelled(text, 80)}: name a file and its class: ./mine.py:{CLASS}")
    file = read_file(path, class_name)
    given = options.split(f"{class_name}:{rest}")[1]
    return file, given


def check_policy(text: str, cases: int, python: Callable[[], Path | None]) -> Trial:
    """Tries a policy on the virtual engine, and on vLLM's scheduler where `python` gives one that has it.

    PolicyError or UserError where the file holds no policy.
    """
    file, given = named(text)
    name = canonical_own(file, given)
    make_own(file, given, 1024, COSTS)
    try:
        tried = confined(try_policy, (file, given, cases), TRIAL)
    except RunFailed as error:
        return Trial(name, Tried(()), "", (f"policy {file.name} {error}",))
    if tried.problems:
        return Trial(name, tried, "", tried.problems)
    engine = python()
    if engine is None:
        return Trial(name, tried, "", ())
    process = SchedulerProcess(examine(engine).python)
    try:
        problems = hold_against_vllm(file, given, tried, max(1, cases // 3), process)
        return Trial(name, tried, process.version, tuple(problems))
    finally:
        process.close()
