"""The command line and the environment of one vLLM server: pure, so that the manifest can hold what was started."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.runs.run import POLICY_FILE
from policies.catalog import INTERVAL, read_options, read_policy
from policies.core import StepCosts

SCHEDULER = "policies.vllm_plugin.PolicyScheduler"

# What bench decides in every arm, and the option of ours that decides it.
_OURS = {
    "--model": "--model",
    "--served-model-name": "--model",
    "--host": "nothing: it is 127.0.0.1",
    "--port": "nothing: a free one is taken",
    "--uds": "nothing: a free port is taken",
    "--scheduler-cls": "--policy",
    "--additional-config": "--policy",
    "--prefill-schedule-interval": "--policy v1-interval:n=…",
    "--max-num-seqs": "--slots",
    "--max-num-batched-tokens": "--token-budget",
    "--max-model-len": "--max-model-len",
    "--num-gpu-blocks-override": "--kv-tokens",
    "--watermark": "--watermark",
    "--block-size": "--block-size",
    "--enable-prefix-caching": "--prefix-caching",
    "--no-enable-prefix-caching": "--prefix-caching",
    "--config": "nothing: give its flags one by one",
    "--tensor-parallel-size": "--tp",
    "--data-parallel-size": "nothing: one engine has one step log; of several give the server's address, --url",
}
_SHORT = {"-tp": "--tensor-parallel-size", "-dp": "--data-parallel-size"}
_SECRET = {
    "--api-key": "the server is bench's own and asks for none",
    "--hf-token": "put it in the environment variable HF_TOKEN",
}

# Of the client's own environment nothing may reach the engine: another Python's packages, a key it would ask for.
_NOT_PASSED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_API_KEY", "VLLM_CONFIG_ROOT")
_SHOWN = ("VLLM_", "CUDA_", "OMP_", "HF_HUB_OFFLINE", "NCCL_", "TORCH")
# On a CPU vLLM would take most of the memory for its KV cache, and another share of it at each start.
CPU_KV_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Plugin:
    """What our scheduler is told inside the engine: a policy of the catalog, its step costs, where its log goes."""

    policy: str
    costs: StepCosts | None
    step_log: Path
    policy_sha256: str = ""
    ttft_s: float | None = None

    @property
    def config(self) -> str:
        """The JSON for `--additional-config`."""
        name, options = read_policy(self.policy)
        policy: dict[str, Any] = {
            "name": name,
            "options": options,
            "costs": None if self.costs is None else dataclasses.asdict(self.costs),
            "step_log": str(self.step_log),
            **plugin_file(self.step_log.parent, self.policy_sha256),
            **({} if self.ttft_s is None else {"ttft_s": self.ttft_s}),
        }
        return json.dumps({"bench_policy": policy})


def plugin_file(directory: Path, sha256: str) -> dict[str, str]:
    """What the plugin is told of a policy in a user's file, whose copy lies in the run's directory."""
    return {"file": str(directory / POLICY_FILE), "sha256": sha256} if sha256 else {}


def read_engine_args(text: str) -> str:
    """Extra flags for vLLM in one canonical form; UserError for those that bench sets itself, and for secrets."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UserError(f"--engine-args {text!r}: {error}: close the quotation") from None
    if words and not words[0].startswith("-"):
        raise UserError(f"--engine-args {text!r}: starts with no flag: write it as for `vllm serve`, without the model")
    for word in words:
        flag = word.partition("=")[0].replace("_", "-")
        flag = _SHORT.get(flag, flag)
        if not flag.startswith("--"):
            continue
        if flag in _SECRET:
            raise UserError(f"--engine-args: leave out {flag}: {_SECRET[flag]}")
        # vLLM takes a flag's beginning for the flag.
        ours = next((known for known in _OURS if len(flag) > 4 and known.startswith(flag)), None)
        if ours:
            raise UserError(f"--engine-args: leave out {ours}: bench decides it by {_OURS[ours]}")
    return shlex.join(words)


def command(
    spec: RunSpec,
    python: Path,
    model: str,
    port: int,
    plugin: Plugin | None,
    flags: frozenset[str] = frozenset(),
    cpu: bool = False,
) -> list[str]:
    """The command that serves a run; the same in every arm but for the policy's part and the port.

    `plugin` is None for vLLM untouched. `flags` are those of SchedulerConfig's fields that the engine has,
    which not all versions do: UserError where the run needs one that lacks.
    """
    words = [str(python), "-m", "vllm.entrypoints.openai.api_server"]
    # Of a flag given twice the last one holds: the user's over this, and what bench decides over the user's.
    words += ["--kv-cache-memory-bytes", str(CPU_KV_BYTES)] if cpu else []
    words += shlex.split(spec.engine_args)
    words += ["--model", model, "--served-model-name", spec.model, "--host", "127.0.0.1", "--port", str(port)]
    words += ["--max-num-seqs", str(spec.slots), "--max-num-batched-tokens", str(spec.token_budget)]
    words += ["--max-model-len", str(spec.max_model_len), "--block-size", str(spec.block_size)]
    words += ["--no-enable-prefix-caching" if spec.prefix_caching is None else "--enable-prefix-caching"]
    words += ["--tensor-parallel-size", str(spec.tp)] if spec.tp > 1 else []
    # A line a request would be written while it is measured.
    words += ["--disable-uvicorn-access-log"]
    if spec.kv_tokens is not None:
        words += ["--num-gpu-blocks-override", str(spec.kv_tokens // spec.block_size)]
    if spec.watermark:
        _needs("watermark", flags, "--watermark")
        words += ["--watermark", f"{spec.watermark:g}"]
    name, options = read_policy(spec.policy)
    if name == INTERVAL:
        _needs("prefill_schedule_interval", flags, f"policy {INTERVAL}")
        words += ["--prefill-schedule-interval", str(read_options(name, options)["n"])]
    if plugin is not None:
        words += ["--scheduler-cls", SCHEDULER, "--additional-config", plugin.config]
    return words


def _needs(field: str, flags: frozenset[str], what: str) -> None:
    if field not in flags:
        raise UserError(f"{what}: this vLLM has no {field}: leave it out, or use a newer vLLM (docs/running-vllm.md)")


def environment(plugin_path: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment of the engine: the user's own, with our policies on the path and nothing else of ours."""
    env = {name: value for name, value in base.items() if name not in _NOT_PASSED}
    return env | {
        "PYTHONPATH": str(plugin_path),
        "PYTHONUNBUFFERED": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        # It lets the server say how it is configured (/server_info); it listens on this machine alone.
        "VLLM_SERVER_DEV_MODE": "1",
        # After five idle seconds vLLM closes a connection, and where it was kept from its sockets for a while it does
        # so on top of a request that has arrived already.
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": "3600",
        "NO_COLOR": "1",
    }


def shown(env: Mapping[str, str]) -> dict[str, str]:
    """What of the environment can change a number, for the manifest."""
    return {name: value for name, value in sorted(env.items()) if name.startswith(_SHOWN)}
