"""`bench run --engine vllm`: a session that starts a server of its own for each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harness.against import client_of
from harness.engines.environments import engine_python, examine
from harness.engines.gpus_here import cards, is_cpu, is_here
from harness.engines.vllm import Deployment, Vllm
from harness.engines.vllm_command import read_engine_args
from harness.errors import UserError
from harness.runspec import RunSpec
from harness.session import RunSession, asked_of
from workloads.arrivals import Stream

READY_TIMEOUT_S = 900.0
# vLLM's attention on a CPU takes multiples of this.
CPU_BLOCK = 32


def deploy(options: dict[str, Any], out: Path, quiet: bool) -> RunSession:
    """The session that the options of `bench run` ask for, once engine and machine are known to be there."""
    gpus = [gpu for text in options["gpus"] for gpu in text.split(",")]
    if len(set(gpus)) != 1:
        raise UserError("--engine vllm runs on this machine: give one --gpu, its own (`--gpu cpu` without one)")
    (gpu,) = set(gpus)
    cpu, found = is_cpu(gpu), cards()
    if not cpu and not is_here(gpu, found):
        here = ", ".join(sorted({card.name for card in found})) or "no GPU that nvidia-smi knows (--gpu cpu)"
        raise UserError(f"--engine vllm --gpu {gpu}: this machine has {here}: name its own, or leave out --engine")
    environment = examine(engine_python(options["engine_python"], cpu))
    if cpu != (environment.kind == "cpu"):
        raise UserError(
            f"--engine-python {environment.python}: its vLLM is built for {environment.kind}, not for --gpu {gpu}: "
            f"`bench engine install {'cpu' if cpu else 'cuda'}`"
        )
    client = client_of(options)
    deployment = Deployment(environment, cpu, () if cpu else found, options["ready_timeout"] or READY_TIMEOUT_S)

    def make(spec: RunSpec, stream: Stream) -> Vllm:
        return Vllm(spec, stream, deployment, client)

    if options["block_size"] is None and cpu:
        options = options | {"block_size": CPU_BLOCK}
    options = options | {"engine": "vllm", "engine_args": read_engine_args(options["engine_args"])}
    return RunSession(asked_of(options, client.decides()), out, quiet, make)
