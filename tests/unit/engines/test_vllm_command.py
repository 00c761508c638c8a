"""The command line of a vLLM server, its environment, and why one ended."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.engines.serving.command import Plugin, command, environment, read_engine_args, shown
from harness.engines.serving.failures import cause_of
from policies.catalog import read_policy
from policies.core import StepCosts

SPEC = RunSpec(
    gpu="l40s", model="Qwen/Qwen3-8B", policy="eb:k=32", workload="sharegpt", engine="vllm", slots=64, token_budget=2048
)
PYTHON = Path("/engine/bin/python")
ALL = frozenset({"watermark", "prefill_schedule_interval"})
COSTS = StepCosts(1e-3, 1e-5, 2e-3, 1e-6, 1e-3, 1e-5, 1e-6, 0.0)


def words_of(spec: RunSpec, plugin: Plugin | None = None, flags: frozenset[str] = ALL) -> list[str]:
    return command(spec, PYTHON, spec.model, 8123, plugin, flags)


def value(words: list[str], flag: str) -> str:
    assert words.count(flag) == 1
    return words[words.index(flag) + 1]


def test_the_command_says_all_that_the_spec_decides() -> None:
    words = words_of(SPEC, Plugin(SPEC.policy, None, Path("/run/steps.log")))
    assert words[:3] == [str(PYTHON), "-m", "vllm.entrypoints.openai.api_server"]
    told = {
        "--model": "Qwen/Qwen3-8B",
        "--served-model-name": "Qwen/Qwen3-8B",
        "--host": "127.0.0.1",
        "--port": "8123",
        "--max-num-seqs": "64",
        "--max-num-batched-tokens": "2048",
        "--max-model-len": "40960",
        "--block-size": "16",
        "--scheduler-cls": "policies.vllm_plugin.PolicyScheduler",
    }
    assert {flag: value(words, flag) for flag in told} == told
    assert "--no-enable-prefix-caching" in words
    assert "--watermark" not in words
    assert json.loads(value(words, "--additional-config")) == {
        "bench_policy": {"name": "eb", "options": {"k": "32"}, "costs": None, "step_log": "/run/steps.log"}
    }


def test_arms_differ_in_the_policy_alone() -> None:
    arms = [
        words_of(dataclasses.replace(SPEC, policy=policy), Plugin(policy, COSTS, Path("/run/steps.log")))
        for policy in ("v1", "ebplus:delta=1e-05")
    ]
    differ = [(a, b) for a, b in zip(*arms, strict=True) if a != b]
    assert len(differ) == 1
    a, b = (json.loads(text)["bench_policy"] for text in differ[0])
    assert (a.pop("name"), b.pop("name")) == ("v1", "ebplus")
    assert (a.pop("options"), b.pop("options")) == ({}, {"delta": "1e-05"})
    assert a == b
    assert a["costs"] == dataclasses.asdict(COSTS)


def test_stock_is_vllm_untouched() -> None:
    words = words_of(dataclasses.replace(SPEC, policy="stock"))
    assert not {"--scheduler-cls", "--additional-config", "--prefill-schedule-interval"} & set(words)


def test_what_is_asked_for_becomes_a_flag() -> None:
    spec = dataclasses.replace(
        SPEC, kv_tokens=1000, watermark=0.05, prefix_caching=0.3, engine_args="--dtype float32 --enforce-eager"
    )
    words = words_of(spec)
    assert value(words, "--num-gpu-blocks-override") == "62"
    assert value(words, "--watermark") == "0.05"
    assert "--enable-prefix-caching" in words
    # What bench sets comes later and so wins.
    assert words.index("--dtype") < words.index("--model")


def test_on_a_cpu_the_kv_cache_has_one_size_unless_the_user_gives_another() -> None:
    spec = dataclasses.replace(SPEC, engine_args="--kv-cache-memory-bytes 4096")
    words = command(spec, PYTHON, spec.model, 1, None, cpu=True)
    sizes = [words[i + 1] for i, word in enumerate(words) if word == "--kv-cache-memory-bytes"]
    assert sizes == [str(1 << 30), "4096"]
    assert "--kv-cache-memory-bytes" not in words_of(SPEC)


def test_a_version_without_the_setting_is_named() -> None:
    interval = dataclasses.replace(SPEC, policy="v1-interval:n=3")
    assert value(words_of(interval), "--prefill-schedule-interval") == "3"
    by_default = words_of(dataclasses.replace(SPEC, policy="v1-interval"))
    assert value(by_default, "--prefill-schedule-interval") == "4"
    for spec, said in (
        (interval, "prefill_schedule_interval"),
        (dataclasses.replace(SPEC, watermark=0.1), "watermark"),
    ):
        with pytest.raises(UserError, match=said):
            words_of(spec, flags=frozenset())


def test_the_gpus_that_share_the_model_are_told_where_there_are_several() -> None:
    assert value(words_of(dataclasses.replace(SPEC, tp=2)), "--tensor-parallel-size") == "2"
    assert "--tensor-parallel-size" not in words_of(SPEC)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--max-num-seqs 4", "--slots"),
        ("--max_num_seqs=4", "--slots"),
        ("--tensor-parallel-size 2", "decides it by --tp$"),
        ("--enforce-eager -tp 2", "decides it by --tp$"),
        ("--data-parallel-size=2", "one engine has one step log.*--url"),
        ("-dp 2", "leave out --data-parallel-size"),
        ("--max-num-s 4", "--slots"),
        ("--enforce-eager --port 1", "a free one"),
        ("--scheduler-cls x.Y", "--policy"),
        ("--no-enable-prefix-caching", "--prefix-caching"),
        ("--api-key secret", "--api-key"),
        ("--hf-token=secret", "HF_TOKEN"),
        ("Qwen/Qwen3-8B", "without the model"),
        ("--dtype 'float32", "quotation"),
    ],
)
def test_flags_that_bench_decides_are_refused(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        read_engine_args(text)
    assert "secret" not in str(caught.value)


def test_extra_flags_have_one_form() -> None:
    assert (
        read_engine_args("  --dtype   float32 --hf-overrides '{\"a\": 1}' ")
        == "--dtype float32 --hf-overrides '{\"a\": 1}'"
    )
    assert read_engine_args("--model-impl vllm -pp 2") == "--model-impl vllm -pp 2"
    assert read_engine_args("") == ""


def test_the_engine_gets_our_policies_and_nothing_else_of_ours() -> None:
    base = {"PATH": "/bin", "PYTHONPATH": "/ours", "VIRTUAL_ENV": "/ours/.venv", "VLLM_API_KEY": "s", "HF_TOKEN": "t"}
    env = environment(Path("/plugin"), base)
    assert env["PYTHONPATH"] == "/plugin"
    assert not {"VIRTUAL_ENV", "VLLM_API_KEY"} & env.keys()
    assert "t" not in shown(env).values()


def test_options_of_a_policy_are_strings() -> None:
    config = json.loads(Plugin("ebplus:delta=1e-05,window=100", COSTS, Path("x")).config)["bench_policy"]
    assert (config["name"], config["options"]) == read_policy("ebplus:delta=1e-05,window=100")


CORE = "(EngineCore pid=8180) ERROR 11-30 05:46:46 [core.py:1] "


@pytest.mark.parametrize(
    ("log", "code", "said", "mend"),
    [
        ("OSError: [Errno 98] Address already in use", 1, "port", True),
        ("ModuleNotFoundError: No module named 'vllm'", 1, "engine install", True),
        ("api_server.py: error: unrecognized arguments: --foo", 2, "--engine-args", True),
        (
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
            "  Value error, Invalid repository ID or local directory specified: 'nowhere/none'.",
            1,
            "correct --model",
            True,
        ),
        (CORE + "RuntimeError: Cannot find any model weights with `/models/tiny`", 1, "--load-format dummy", True),
        (CORE + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", 1, "--kv-tokens", True),
        (CORE + "ValueError: No available memory for the cache blocks.", 1, "out of memory", True),
        (
            CORE + "ValueError: To serve at least one request with the models's max seq len (40960), 5.00 GiB KV "
            "cache is needed, which is larger than the available KV cache memory",
            1,
            "--max-model-len",
            True,
        ),
        (CORE + "policies.core.PolicyError: the policies do not know this", 1, "the policy was refused", True),
        (
            CORE + "policies.vllm_plugin.PolicyFault: policy eb failed at step 7 in plan: ValueError: x\n"
            "RuntimeError: Engine core initialization failed. See root cause above.",
            1,
            "policy eb failed at step 7",
            True,
        ),
        (
            CORE + "KeyError: 'one'\nRuntimeError: Engine core initialization failed. See root cause above.",
            1,
            "KeyError: 'one'",
            False,
        ),
        (
            "ERROR 11-30 06:36:08 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered",
            1,
            "died without a word",
            False,
        ),
        ("INFO all is well", 137, "SIGKILL", False),
        ("INFO all is well", 143, "signal 15", False),
        ("INFO all is well", 3, "all is well", False),
        ("", 3, "empty", False),
        # A flag that names our class, or a warning about memory, is no error.
        ("INFO args: {'scheduler_cls': 'policies.vllm_plugin.PolicyScheduler'} out of memory", 3, "code 3", False),
    ],
)  # fmt: skip
def test_the_cause_is_one_line(log: str, code: int, said: str, mend: bool) -> None:
    cause = cause_of(f"INFO before\n{log}\n" if log else "", code)
    assert said in cause.line
    assert cause.mend is mend
    assert cause.line.isprintable()
    assert len(cause.line) < 500
