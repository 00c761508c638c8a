"""The mock server's /metrics: vLLM's names and labels in Prometheus text, so that a scraper finds what it knows."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip


@dataclass(slots=True)
class Metrics:
    """Gauges of now and counters since the server started; a reset leaves them, as Prometheus expects."""

    model: str
    kv_tokens: int
    running: int = 0
    waiting: int = 0
    held_tokens: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[str, int] = field(default_factory=lambda: {"stop": 0, "length": 0, "abort": 0, "error": 0})
    ttft_counts: list[int] = field(default_factory=lambda: [0] * (len(TTFT_BUCKETS_S) + 1))
    ttft_sum_s: float = 0.0

    def saw_first_token(self, ttft_s: float) -> None:
        """Count one request's time to first token."""
        self.ttft_counts[bisect_left(TTFT_BUCKETS_S, ttft_s)] += 1
        self.ttft_sum_s += ttft_s

    def text(self) -> str:
        """The exposition."""
        model = self.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        labels = f'engine="0",model_name="{model}"'
        lines: list[str] = []

        def add(name: str, kind: str, what: str, *samples: tuple[str, float]) -> None:
            lines.append(f"# HELP vllm:{name} {what}")
            lines.append(f"# TYPE vllm:{name.removesuffix('_total') if kind == 'counter' else name} {kind}")
            lines.extend(f"vllm:{sample} {float(value)}" for sample, value in samples)

        def add_single(name: str, kind: str, what: str, value: float) -> None:
            add(name, kind, what, (f"{name}{{{labels}}}", value))

        add_single("num_requests_running", "gauge", "Requests that hold a slot.", self.running)
        add_single("num_requests_waiting", "gauge", "Requests that wait for a slot.", self.waiting)
        share = min(1.0, self.held_tokens / self.kv_tokens)
        add_single("kv_cache_usage_perc", "gauge", "Tokens of running requests, as a share of kv_tokens.", share)
        add_single("num_preemptions_total", "counter", "Preemptions: this server has none.", 0)
        add_single("prompt_tokens_total", "counter", "Prompt tokens of requests that started.", self.prompt_tokens)
        add_single("generation_tokens_total", "counter", "Tokens written.", self.generation_tokens)
        ended = [
            (f'request_success_total{{{labels},finished_reason="{reason}"}}', count)
            for reason, count in self.finished.items()
        ]
        add("request_success_total", "counter", "Requests that ended, by reason.", *ended)
        buckets, seen, name = [], 0, "time_to_first_token_seconds"
        for edge, number in zip((*map(str, TTFT_BUCKETS_S), "+Inf"), self.ttft_counts, strict=True):
            seen += number
            buckets.append((f'{name}_bucket{{{labels},le="{edge}"}}', seen))
        sums = [(f"{name}_count{{{labels}}}", seen), (f"{name}_sum{{{labels}}}", self.ttft_sum_s)]
        add(name, "histogram", "From arrival to the first token.", *buckets, *sums)
        return "\n".join(lines) + "\n"
