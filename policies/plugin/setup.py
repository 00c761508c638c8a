"""What --additional-config says to the plugin: the policy, its options, the step costs, where the step log goes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from policies.core import PolicyError, StepCosts

KEYS = ("name", "options", "costs", "step_log", "file", "sha256", "ttft_s")


@dataclass(frozen=True, slots=True)
class Setup:
    """`bench_policy` as it was read; `step_log` names a new file, None for none.

    Of a policy in a user's file `file` says where that lies, and `sha256` (hex) what it must hold. `ttft_s` is the
    run's limit on TTFT, None where it has none.
    """

    name: str
    options: dict[str, str]
    costs: StepCosts | None
    step_log: str | None
    file: str | None = None
    sha256: str | None = None
    ttft_s: float | None = None


def read_setup(vllm_config: Any) -> Setup:
    """`bench_policy` of --additional-config, checked; PolicyError says what is wrong."""
    additional = vllm_config.additional_config
    setup = additional.get("bench_policy") if isinstance(additional, dict) else None
    if not isinstance(setup, dict) or not isinstance(setup.get("name"), str):
        raise PolicyError(
            "PolicyScheduler needs to know its policy: "
            '--additional-config \'{"bench_policy": {"name": "eb", "options": {"k": "32"}}}\''
        )
    unknown = sorted(setup.keys() - set(KEYS))
    if unknown:
        raise PolicyError(f"bench_policy: unknown key {unknown[0]!r}: it has {', '.join(KEYS)}")
    options = setup.get("options") or {}
    if not isinstance(options, dict):
        raise PolicyError(f"bench_policy: options is {options!r}: it must be names and values")
    costs = setup.get("costs")
    if costs is not None:
        names = [field.name for field in fields(StepCosts)]
        if not isinstance(costs, dict) or sorted(costs) != sorted(names):
            raise PolicyError(f"bench_policy: costs must have {', '.join(names)}")
        costs = StepCosts(**{name: float(costs[name]) for name in names})
    options = {str(key): str(value) for key, value in options.items()}
    ttft_s = setup.get("ttft_s")
    return Setup(
        setup["name"],
        options,
        costs,
        setup.get("step_log"),
        setup.get("file"),
        setup.get("sha256"),
        None if ttft_s is None else float(ttft_s),
    )
