"""`bench run --engine emulated`: a session whose runs share one process with vLLM's scheduler in it."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

from harness.engines.emulated import Emulated
from harness.engines.emulated_process import SchedulerProcess
from harness.engines.environments import engine_python, examine, installed
from harness.errors import UserError
from harness.runspec import RunSpec
from harness.session import RunSession, asked_of
from workloads.arrivals import Stream


def emulate(options: dict[str, Any], out: Path, quiet: bool) -> RunSession:
    """The session that the options of `bench run` ask for, once a Python with vLLM is known to be there."""
    for name, flag in (("engine_args", "--engine-args"), ("prefix_caching", "--prefix-caching")):
        if options[name] not in (None, ""):
            raise UserError(f"{flag} goes with --engine vllm: the emulated one has no model and no prefix cache")
    environment = examine(_python(options["engine_python"]))
    process = SchedulerProcess(environment.python)
    atexit.register(process.close)

    def make(spec: RunSpec, stream: Stream) -> Emulated:
        return Emulated(spec, stream, environment, process)

    return RunSession(asked_of(options), out, quiet, make)


def _python(given: str | None) -> Path:
    """The Python given, else one that `bench engine install` made: without a model either kind will do."""
    if given or not (there := installed()):
        try:
            return engine_python(given, cpu=True)
        except UserError:
            raise UserError(
                "--engine emulated needs a Python with vLLM: make one with `bench engine install cpu`, or give "
                "--engine-python"
            ) from None
    return there.get("cpu") or next(iter(there.values()))
