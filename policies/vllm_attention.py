"""One layer's attention call, timed in vLLM's own environment with vLLM's own backend: prompts, decodes, and both.

    PYTHONPATH=… ENGINE_PYTHON -m policies.vllm_attention     # a job on stdin, answers on stdout, a JSON object a line

It first says {"ready": {"vllm": "0.32.0"}}, then takes one job:

    {"query_heads", "kv_heads", "head_size", "dtype", "kv_tokens", "repeats",
     "points": [[prefill_chunk, kv_prefill, n_decode, kv_decode]…]}

and answers {"about": {"backend", "device", "kv_tokens"}}, then for each point, in order,
    {"point": […], "time_us": t}     the median of the repeats, or
    {"point": […], "why": "…"}       where it does not fit the cache;
    {"done": n}                      or {"error": "one line"}.

A model of one small layer with the heads asked for is loaded with random weights, so that the cache, its layout and the
builder of the call's metadata are those that vLLM would use. Each request of a call has blocks of its own.
"""

from __future__ import annotations

import inspect
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

BLOCK = 32
VOCABULARY = 64
HIDDEN = 64
# What is read before a call is timed, so that a repeat finds the caches as a step of many layers would.
WARM = 2


def main() -> None:
    """Reads the job and answers it; what vLLM prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        import vllm

        _say(answers, {"ready": {"vllm": vllm.__version__}})
        job = sys.stdin.readline()
        if job:
            _measure(json.loads(job), answers)
    except Exception as error:
        # The parent has no other way to know, and vLLM raises whatever it likes.
        _say(answers, {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no word'}"})


def _say(answers: TextIO, value: dict[str, Any]) -> None:
    answers.write(json.dumps(value) + "\n")


def _measure(job: dict[str, Any], answers: TextIO) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-attention-") as folder:
        call = _Call(job, Path(folder))
        _say(answers, {"about": call.about()})
        for point in job["points"]:
            if (needed := call.blocks_of(point)) > call.blocks:
                _say(
                    answers, {"point": point, "why": f"{needed * BLOCK} tokens do not fit a cache of {call.kv_tokens}"}
                )
                continue
            _say(answers, {"point": point, "time_us": call.time_us(point, job["repeats"])})
        _say(answers, {"done": len(job["points"])})


class _Call:
    """The layer, its cache and the builder of its metadata, as vLLM set them up."""

    def __init__(self, job: dict[str, Any], folder: Path) -> None:
        import torch
        from vllm import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        self.torch = torch
        # On a CPU vLLM would take half of the free memory, or refuse where less is. A token has keys and values.
        gib = -(-job["kv_tokens"] * 2 * job["kv_heads"] * job["head_size"] * 4 // (1 << 30))
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(gib))
        self.heads, self.kv_heads, self.size = job["query_heads"], job["kv_heads"], job["head_size"]
        self.dtype = getattr(torch, job["dtype"])
        (folder / "config.json").write_text(json.dumps(_config(job)), encoding="utf-8")
        longest = max(chunk + before + context for chunk, before, _, context in job["points"])
        many = max(decodes for _, _, decodes, _ in job["points"])
        engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=str(folder),
                load_format="dummy",
                skip_tokenizer_init=True,
                enforce_eager=True,
                enable_prefix_caching=False,
                block_size=BLOCK,
                dtype=job["dtype"],
                max_model_len=longest + BLOCK,
                max_num_batched_tokens=max(2048, many + 1),
                max_num_seqs=many + 1,
                num_gpu_blocks_override=job["kv_tokens"] // BLOCK,
            )
        )
        worker = engine.engine_core.engine_core.model_executor.driver_worker
        runner = getattr(worker, "worker", worker).model_runner
        ((group,),) = runner.attn_groups
        self.builder = group.get_metadata_builder()
        self.backend = group.backend.get_name()
        (self.name,) = group.layer_names
        self.layer = engine.vllm_config.compilation_config.static_forward_context[self.name]
        self.device = runner.device
        self.cache = self.layer.kv_cache
        # Block 0 is vLLM's own.
        self.blocks = job["kv_tokens"] // BLOCK - 1
        self.kv_tokens = self.blocks * BLOCK
        self.engine = engine

    def about(self) -> dict[str, Any]:
        """What the times hold for."""
        return {"backend": self.backend, "device": str(self.device), "kv_tokens": self.kv_tokens}

    def blocks_of(self, point: list[int]) -> int:
        """The blocks of the cache that a call reads."""
        return sum(-(-length // BLOCK) for _, length in _requests(point))

    def time_us(self, point: list[int], repeats: int) -> float:
        """The median time of the call, µs."""
        torch = self.torch
        tokens = sum(new for new, _ in _requests(point))
        query = torch.rand(tokens, self.heads, self.size, dtype=self.dtype, device=self.device)
        key, value = (
            torch.rand(tokens, self.kv_heads, self.size, dtype=self.dtype, device=self.device) for _ in range(2)
        )
        output = torch.empty_like(query)
        metadata = self._metadata(point)

        def call() -> None:
            self.layer.impl.forward(self.layer, query, key, value, self.cache, metadata, output=output)

        return statistics.median(self._times(call, repeats)) * 1e6

    def _times(self, call: Callable[[], None], repeats: int) -> list[float]:
        """Seconds of each call; the device is waited for before and after."""
        torch = self.torch
        wait = getattr(torch, self.device.type).synchronize if self.device.type != "cpu" else (lambda: None)
        took = []
        with torch.inference_mode():
            for _ in range(WARM + repeats):
                wait()
                start = time.perf_counter()
                call()
                wait()
                took.append(time.perf_counter() - start)
        return took[WARM:]

    def _metadata(self, point: list[int]) -> Any:
        """The metadata of the call: decodes first, as vLLM orders them, then the prompt's chunk."""
        from vllm.v1.attention.backend import CommonAttentionMetadata

        torch = self.torch
        requests = _requests(point)
        new, lengths = ([one[place] for one in requests] for place in range(2))
        starts = [0]
        for tokens in new:
            starts.append(starts[-1] + tokens)
        widest = -(-max(lengths) // BLOCK)
        table = torch.zeros(len(requests), widest, dtype=torch.int32)
        slots, taken = [], 1
        for place, (tokens, length) in enumerate(requests):
            count = -(-length // BLOCK)
            table[place, :count] = torch.arange(taken, taken + count, dtype=torch.int32)
            slots += [(taken + at // BLOCK) * BLOCK + at % BLOCK for at in range(length - tokens, length)]
            taken += count

        def ints(values: list[int], dtype: Any = torch.int32) -> Any:
            return torch.tensor(values, dtype=dtype)

        cpu = {"query_start_loc": ints(starts), "seq_lens": ints(lengths)}
        given = {
            "query_start_loc": cpu["query_start_loc"].to(self.device),
            "query_start_loc_cpu": cpu["query_start_loc"],
            "seq_lens": cpu["seq_lens"].to(self.device),
            "seq_lens_cpu_upper_bound": cpu["seq_lens"],
            "num_reqs": len(requests),
            "num_actual_tokens": starts[-1],
            "max_query_len": max(new),
            "max_seq_len": max(lengths),
            "block_table_tensor": table.to(self.device),
            "slot_mapping": ints(slots, torch.int64).to(self.device),
            "is_prefilling": torch.tensor([tokens > 1 for tokens in new]),
        }
        known = inspect.signature(CommonAttentionMetadata).parameters
        return self.builder.build(0, CommonAttentionMetadata(**{name: given[name] for name in given if name in known}))


def _requests(point: list[int]) -> list[tuple[int, int]]:
    """New tokens and the length after them of each request of a call; a decode's own token is part of its context."""
    chunk, before, decodes, context = point
    prompt = [(chunk, before + chunk)] if chunk else []
    return [(1, context)] * decodes + prompt


def _config(job: dict[str, Any]) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 1,
        "num_attention_heads": job["query_heads"],
        "num_key_value_heads": job["kv_heads"],
        "head_dim": job["head_size"],
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 1 << 22,
        "rope_theta": 1e6,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "torch_dtype": job["dtype"],
    }


if __name__ == "__main__":
    main()
