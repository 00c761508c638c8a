"""What a simulated run says of its step costs, and that its spec alone makes it again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.engines.base import Status
from harness.runs.run import Run
from harness.session.one_run import prepare, run

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}
SPEC = RunSpec(
    gpu="h200",
    model="Qwen/Qwen3-8B",
    policy="v1",
    workload="synthetic:mu_l=200,mu_o=100",
    arrival="closed:concurrency=32",
    requests=64,
    slots=32,
    token_budget=2048,
    cost_model="kernels",
)


def ran(spec: RunSpec, out: Path) -> Run:
    def progress(_: Status) -> None:
        pass

    return run(prepare(spec), out, (), progress, lambda: False)


def costs(found: Run) -> dict[str, Any]:
    told = found.manifest["provenance"]["cost_model"]
    assert isinstance(told, dict)
    return told


def test_the_manifest_names_every_kernel_and_its_source(tmp_path: Path) -> None:
    found = ran(SPEC, tmp_path)
    told = costs(found)
    assert (told["name"], told["basis"], told["mixed_call"]) == ("kernels", "measured kernels", "law, unmeasured")
    assert told["source"].startswith("PyPI aiconfigurator-core 0.12.0")
    assert told["parameters"] == {"host_s": 0.0025, "decode_s": 5e-6}
    assert told["kernels"]["decode bfloat16 q32 kv8 d128"] == "vllm_flash_attn_fa3"
    assert "2.32 times 65536" in told["kernels"]["gemm bfloat16 151936x4096"]
    assert found.manifest["off_grid"] == {"share": 0, "axes": {}}
    # So short a run is DEGRADED by that alone.
    (reason,) = found.manifest["verdict"]["reasons"]
    assert "waves" in reason


def test_a_run_beyond_the_tables_is_degraded(tmp_path: Path) -> None:
    found = ran(replace(SPEC, workload="synthetic:mu_l=20000,mu_o=50,jitter=0", token_budget=32768), tmp_path)
    axes = found.manifest["off_grid"]["axes"]
    assert axes["prompt length"]["steps"] > 0
    assert axes["decode context"]["steps"] > 0
    assert found.level == "DEGRADED"
    assert any("time priced beyond the measured kernels" in why for why in found.manifest["verdict"]["reasons"])
    assert any("prompt length in" in note for note in found.manifest["notes"])


def test_a_config_in_the_spec_is_all_that_a_run_needs(tmp_path: Path) -> None:
    spec = replace(SPEC, model="mine", config=CONFIG, tp=2, host="t0=0.001,h=0")
    again = RunSpec.from_dict(json.loads(json.dumps(spec.to_dict())))
    assert again == spec
    a, b = ran(spec, tmp_path / "a"), ran(again, tmp_path / "b")
    assert a.requests().equals(b.requests())
    assert costs(a)["gpus"] == 2
    assert costs(a)["parameters"] == {"host_s": 0.001, "decode_s": 0.0}
    # The same sizes under their own name cost the same.
    named = ran(replace(spec, model="meta-llama/Llama-3.1-8B", config={}), tmp_path / "c")
    assert named.requests()["last_token_s"].equals(a.requests()["last_token_s"])


def test_policies_are_told_the_constants_of_the_model_named(tmp_path: Path) -> None:
    own = ran(replace(SPEC, policy="ebplus"), tmp_path / "a").manifest["provenance"]["policy_constants"]
    told = ran(replace(SPEC, policy="ebplus", policy_costs="linear"), tmp_path / "b")
    constants = told.manifest["provenance"]["policy_constants"]
    assert constants["alpha_p_s"] == 0.0012785933415095027  # the published ones
    assert own["alpha_p_s"] != constants["alpha_p_s"]
    assert costs(told)["name"] == "kernels"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"tp": 3}, "--tp 3: 32 query heads do not divide by 3"),
        ({"config": {"architectures": ["Odd"]}, "model": "odd"}, "the config.json of odd: the architecture 'Odd'"),
        ({"host": "t0=1ms", "cost_model": "linear"}, "--host: linear step costs"),
        ({"gpu": "l40s", "model": "Llama-3.1-70B"}, "4 of these GPUs hold it"),
    ],
)
def test_what_cannot_be_priced_is_refused_before_anything_runs(change: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError) as error:
        prepare(replace(SPEC, **change))
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_v0_engine_is_the_rule_of_v0_on_a_slow_host(tmp_path: Path) -> None:
    rule, engine = (ran(replace(SPEC, policy=policy), tmp_path / policy) for policy in ("v0", "v0-engine"))
    # The same decisions: as many steps, each later by the host's time alone.
    a, b = rule.steps(), engine.steps()
    assert a is not None
    assert b is not None
    assert a["decode_requests"].equals(b["decode_requests"])
    slower = b["duration_s"].to_numpy() - a["duration_s"].to_numpy()
    assert slower == pytest.approx(2.5e-3 + 95e-6 * a["decode_requests"].to_numpy(), abs=1e-8)
    # Arms still compare, and the run says whose host it is.
    assert costs(rule) == costs(engine)
    assert engine.manifest["provenance"]["policy_host"] == "t0=0.005,h=0.0001"
    assert "policy_host" not in rule.manifest["provenance"]
    with pytest.raises(UserError, match="v0-engine: linear step costs"):
        prepare(replace(SPEC, policy="v0-engine", cost_model="linear"))
