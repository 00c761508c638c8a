"""Results of `vllm bench serve --save-result`, with or without --save-detailed."""

from __future__ import annotations

import math
from typing import Any

from harness.core.errors import UserError
from harness.published.foreign import NOT_TOLD, PERCENTILES, Fields, Foreign

TOOL = "vllm bench serve"
# vLLM's names of latencies, ours, and what vLLM means by them.
_LATENCIES = {
    "ttft": ("ttft_from_sent_s", "first chunk of the answer - start of the request, successful requests"),
    "tpot": ("tpot_s", "(E2EL - TTFT) / (output tokens - 1), one value a successful request of two tokens or more"),
    "itl": ("itl_s", "time between two chunks of an answer, each once, successful requests"),
    "e2el": ("e2el_s", "last chunk of the answer - start of the request, successful requests, open loop as well"),
}
_RATES = {
    "request_throughput": ("request_throughput", "successful requests / duration of the benchmark"),
    "output_throughput": ("output_throughput", "output tokens of successful requests / duration of the benchmark"),
    "total_throughput": ("total_token_throughput", "prompt and output tokens / duration of the benchmark"),
    "goodput": ("request_goodput", "requests that meet --goodput's limits / duration of the benchmark"),
}


def is_vllm(document: Any) -> bool:
    """Whether a document looks like a result of this tool."""
    return isinstance(document, dict) and {"completed", "request_throughput", "total_input_tokens"} <= document.keys()


def read_vllm(fields: Fields) -> list[Foreign]:
    """The one run of a file; UserError where its own details contradict its summary."""
    completed = fields.count("completed", needed=True) or 0
    failed = fields.count("failed")
    if failed is None:
        # Older versions do not count what failed.
        failed = max(0, (fields.count("num_prompts") or completed) - completed)
    counts = {"requests": completed + failed, "completed": completed, "failed": failed}
    for ours, theirs in (("prompt_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        counts[ours] = fields.count(theirs, needed=True) or 0
    definitions = {}
    for ours, (theirs, meaning) in _RATES.items():
        # Older versions write a colon after the name of one.
        for name in (f"{theirs}:", theirs):
            fields.take(ours, name)
        definitions[ours] = meaning
    for theirs, (ours, meaning) in _LATENCIES.items():
        fields.take(f"{ours}.mean", f"mean_{theirs}_ms", 1e-3)
        fields.take(f"{ours}.p50", f"median_{theirs}_ms", 1e-3)
        for percent in PERCENTILES:
            fields.take(f"{ours}.{percent}", f"{percent}_{theirs}_ms", 1e-3)
        definitions[ours] = meaning
    checked = _check_details(fields, counts)
    notes = ("its summary is what its own list of requests gives",) if checked else ()
    return [
        Foreign(
            TOOL,
            fields.text("version"),
            counts,
            fields.figures,
            fields.defined(definitions),
            model=fields.text("model_id"),
            arrival=_arrival(fields),
            notes=notes,
        )
    ]


def _arrival(fields: Fields) -> str:
    rate, limit = fields.at("request_rate"), fields.count("max_concurrency")
    if rate in ("inf", math.inf):
        return f"closed:concurrency={limit}" if limit else "offline"
    rate = fields.number("request_rate")
    if not rate or limit:
        return NOT_TOLD
    burstiness = fields.number("burstiness") or 1.0
    return f"poisson:rate={rate!r}" if burstiness == 1 else f"gamma:cv={1 / math.sqrt(burstiness)!r},rate={rate!r}"


def _check_details(fields: Fields, counts: dict[str, int]) -> bool:
    """Whether there is a list of requests to hold the summary against; UserError where they do not agree."""
    errors, ttfts, lengths = (fields.at(name) for name in ("errors", "ttfts", "output_lens"))
    if not all(isinstance(one, list) for one in (errors, ttfts, lengths)):
        return False
    if not len(errors) == len(ttfts) == len(lengths) == counts["requests"]:
        raise UserError(
            f"{fields.path}: its lists hold {len(errors)}, {len(ttfts)} and {len(lengths)} requests, its summary "
            f"{counts['requests']}: the file was cut or edited"
        )
    good = [place for place, error in enumerate(errors) if not error]
    numbers = [one for one in (*ttfts, *lengths) if isinstance(one, int | float)]
    if len(numbers) < len(ttfts) + len(lengths):
        raise UserError(f"{fields.path}: ttfts and output_lens hold what is no number: the file was edited")
    _agree(fields, "completed", counts["completed"], len(good))
    _agree(fields, "total_output_tokens", counts["output_tokens"], sum(lengths[place] for place in good))
    mean = fields.number("mean_ttft_ms")
    if good and mean is not None:
        _agree(fields, "mean_ttft_ms", mean, 1e3 * math.fsum(ttfts[place] for place in good) / len(good))
    return True


def _agree(fields: Fields, name: str, told: float, made: float) -> None:
    if not math.isclose(told, made, rel_tol=1e-6, abs_tol=1e-9):
        raise UserError(f"{fields.path}: {name} is {told:g}, its list of requests gives {made:g}: the file was edited")
