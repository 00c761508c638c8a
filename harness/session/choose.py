"""Which engine replays: the one asked for, or with `auto` the most real one that can be had here."""

from __future__ import annotations

from dataclasses import dataclass

from harness.core.errors import UserError
from harness.core.text import nearest
from harness.session.options import RunOptions

ENGINES = ("auto", "simulated", "emulated", "tokenstep", "vllm", "endpoint")


@dataclass(frozen=True, slots=True)
class Chosen:
    """The engine, and why it is this one: empty where it was asked for by name."""

    engine: str
    why: str = ""


def choose(options: RunOptions) -> Chosen:
    """The engine of a command, chosen once.

    `auto` is an endpoint where there is a --url, real vLLM where it can be started here (see `real_engine`), and
    the virtual-time engine elsewhere. UserError where the engine is not known, or --url does not go with it.
    """
    engine = options.engine
    if engine not in ENGINES:
        raise UserError(f"no engine {engine!r}{nearest(engine, ENGINES)} Use one of {', '.join(ENGINES)}")
    if options.drivers is not None and not (options.urls or options.arms):
        raise UserError(
            "--drivers goes with --url: a server that other hosts reach, such as --url http://10.0.0.5:8000"
        )
    if engine == "auto":
        if options.urls or options.arms:
            return Chosen("endpoint")
        real, why = real_engine(options)
        return Chosen("vllm" if real else "simulated", why)
    if engine == "endpoint" and not (options.urls or options.arms):
        raise UserError("--engine endpoint needs --url, such as --url http://127.0.0.1:8000")
    if engine != "endpoint" and (options.urls or options.arms):
        name = "--url" if options.urls else "--arm"
        raise UserError(f"{name} goes with --engine endpoint; --engine {engine} drives no server of yours")
    return Chosen(engine)


def real_engine(options: RunOptions) -> tuple[bool, str]:
    """Whether `--engine auto` starts real vLLM here, and why: the GPU named must be there, and an environment."""
    from harness.engines.serving.environments import engine_python
    from harness.engines.serving.gpus import cards, is_cpu, is_here

    gpus = options.gpu_names
    if not gpus:
        return False, ""
    if len(gpus) > 1:
        return False, "several GPUs are named"
    cpu = is_cpu(gpus[0])
    if not cpu and not is_here(gpus[0], cards()):
        return False, f"there is no {gpus[0]} in this machine"
    try:
        python = engine_python(options.engine_python, cpu)
    except UserError as error:
        return False, f"{gpus[0]} is here, but {error}"
    return True, f"{gpus[0]} is here, and {python} has vLLM"
