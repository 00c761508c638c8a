"""The options of other benchmarks and servers, and which of ours does what each of them asks for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# By the names that vLLM's and SGLang's bench serve, GuideLLM, AIPerf, GenAI-Perf, inference-perf, genai-bench,
# LLMPerf and `vllm serve` have for it.
_OURS: dict[str, tuple[str, ...]] = {
    "--requests N": ("num-prompts", "num-requests", "max-requests", "request-count", "max-num-completed-requests", "n"),
    "--concurrency N": ("max-concurrency", "num-concurrent-requests", "concurrent", "num-workers", "num-concurrency"),
    "--rate R, or --arrival offline for all at once": ("request-rate", "qps", "rps"),
    "--arrival, such as poisson, gamma:cv=2, constant or offline": (
        "burstiness",
        "rate-type",
        "profile",
        "load-type",
        "arrival-pattern",
        "request-rate-mode",
        "ramp-up-strategy",
        "traffic-scenario",
    ),
    "--max-duration S": ("max-seconds", "duration", "benchmark-duration", "max-time-per-run", "max-time"),
    "--url http://HOST:PORT": ("port", "base-url", "target", "server-url", "api-base", "endpoint-url", "u"),
    "--url, whose server may be any with OpenAI's API": ("backend", "service-kind", "api-backend", "llm-api"),
    "--path PATH, or --api chat for chat completions": ("endpoint", "endpoint-type", "endpoint-path", "request-type"),
    "--workload NAME, such as sharegpt or file:PATH (`bench workloads` lists them)": (
        "dataset-name",
        "dataset-path",
        "dataset",
        "data",
        "input-file",
        "public-dataset",
        "custom-dataset",
        "trace",
        "trace-file",
        "hf-dataset",
    ),
    "--workload synthetic:mu_l=1024,mu_o=128": (
        "random-input-len",
        "random-output-len",
        "random-input",
        "random-output",
        "input-len",
        "output-len",
        "isl",
        "osl",
        "prompt-tokens",
        "output-tokens",
        "synthetic-input-tokens-mean",
        "synthetic-output-tokens-mean",
        "output-tokens-mean",
        "mean-input-tokens",
        "mean-output-tokens",
        "sonnet-input-len",
        "sonnet-output-len",
    ),
    "--workload sharegpt:output_cap=N": ("sharegpt-output-len", "max-tokens", "output-length"),
    "--slo METRIC=S, such as ttft_s=0.5,tpot_s=0.05": ("goodput", "slos", "slo-config"),
    "--warmup N": ("num-warmups", "warmup-requests", "warmup-request-count", "warmups"),
    "--seed N": ("random-seed",),
    "--api chat, or completions, which streams as well": ("streaming", "stream"),
    "nothing: an answer has the length asked for, unless --no-ignore-eos is given": (
        "ignore-eos",
        "disable-ignore-eos",
    ),
    "--field NAME=VALUE, a field of every request's body": (
        "extra-request-body",
        "extra-inputs",
        "temperature",
        "top-p",
        "top-k",
        "additional-sampling-params",
        "extra-body",
    ),
    "--header-env NAME=VARIABLE, whose value stands in the environment": ("header", "headers", "extra-headers"),
    "--key-env VARIABLE, which holds the key": ("api-key", "key", "token", "auth-token", "openai-api-key"),
    "--model NAME": ("served-model-name", "model-name", "models", "m"),
    "--out DIR: every run is kept there, and `bench show` and `bench compare` read it (--json prints it)": (
        "save-result",
        "save-detailed",
        "result-dir",
        "result-filename",
        "output-file",
        "output-path",
        "artifact-dir",
        "results-dir",
        "output-format",
    ),
    "nothing: every run has p50, p90, p95 and p99 of every latency (`bench show`)": (
        "percentile-metrics",
        "metric-percentiles",
        "metrics",
    ),
    "--tp N": ("tensor-parallel-size",),
    "--slots N": ("max-num-seqs",),
    "--token-budget N": ("max-num-batched-tokens",),
    "--prefix-caching": ("enable-prefix-caching",),
    "--policy NAME (`bench policies` lists them)": ("scheduling-policy", "scheduler-cls"),
    "--engine-args with --engine vllm": (
        "gpu-memory-utilization",
        "dtype",
        "quantization",
        "enforce-eager",
        "trust-remote-code",
        "kv-cache-dtype",
    ),
    "--timeout S": ("request-timeout", "request-timeout-seconds"),
    "--repeat N": ("num-runs", "iterations", "num-iterations"),
}
_BY_NAME = {name: ours for ours, names in _OURS.items() for name in names}


def ours_for(option: str, known: Iterable[str]) -> str:
    """What to give in the place of an option that bench does not have: ours by name where another tool has it."""
    name = option.lstrip("-").replace("_", "-").lower()
    if name in _BY_NAME:
        return f"here it is {_BY_NAME[name]}"
    near = difflib.get_close_matches(option, list(known), n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    far = difflib.get_close_matches(name, _BY_NAME, n=1, cutoff=0.85)
    return f"here --{far[0]} is {_BY_NAME[far[0]]}" if far else ""
