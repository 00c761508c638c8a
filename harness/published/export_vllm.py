"""A run of ours as `vllm bench serve --save-result --save-detailed` writes one."""

from __future__ import annotations

from typing import Any

from harness.published.answers import answers_of, spread
from harness.runs.run import Run
from workloads.core.arrivals import Closed, Constant, Gamma, Poisson, parse_arrival


def to_vllm(run: Run) -> dict[str, Any]:
    """The document, its figures by vLLM's definitions: latencies from the send, rates over the whole duration."""
    answers, spec = answers_of(run), run.spec
    completed = int(answers.completed.sum())
    inputs = [tokens if ok else 0 for tokens, ok in zip(answers.prompt_tokens, answers.completed, strict=True)]
    total_in, total_out = sum(inputs), sum(answers.output_tokens)
    duration = answers.duration_s
    rate, burstiness, limit = _load(spec.arrival)

    def per_second(count: int) -> float:
        return count / duration if duration > 0 else 0.0

    document: dict[str, Any] = {
        "date": run.started.strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": "openai",
        "backend": "openai",
        "label": spec.label,
        "model_id": spec.model,
        "tokenizer_id": spec.model,
        "num_prompts": len(answers.completed),
        "request_rate": rate,
        "burstiness": burstiness,
        "max_concurrency": limit,
        "duration": duration,
        "completed": completed,
        "failed": len(answers.completed) - completed,
        "total_input_tokens": total_in,
        "total_output_tokens": total_out,
        "request_throughput": per_second(completed),
        "request_goodput": run.summary.get("metrics", {}).get("goodput", {}).get("value"),
        "output_throughput": per_second(total_out),
        "total_token_throughput": per_second(total_in + total_out),
        "input_lens": answers.prompt_tokens,
        "output_lens": answers.output_tokens,
        "ttfts": answers.ttft_s.tolist(),
        "itls": answers.gaps_s,
        "latencies": answers.e2el_s.tolist(),
        "start_times": answers.started_s,
        # No text of an answer is kept.
        "generated_texts": [""] * len(answers.completed),
        "errors": answers.errors,
    }
    for name, values in (
        ("ttft", answers.ttft_s[answers.completed]),
        ("tpot", answers.tpot_s),
        ("itl", answers.itl_s),
        ("e2el", answers.e2el_s[answers.completed]),
    ):
        document |= {f"{key}_{name}_ms": 1e3 * value for key, value in spread(values).items()}
    return document


def _load(arrival: str) -> tuple[float | str, float, int | None]:
    """vLLM's request rate (`inf` where nothing paces), burstiness and most requests in flight."""
    match parse_arrival(arrival):
        case Closed(concurrency):
            return "inf", 1.0, concurrency
        case Poisson(rate) | Constant(rate):
            return rate, 1.0, None
        case Gamma(rate, cv):
            return rate, 1 / cv**2, None
        case _:
            return "inf", 1.0, None
