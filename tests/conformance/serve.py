"""Real vLLM on the CPU with a small random model: run by the engine's Python with a list of jobs in a file.

A job is as in policies/vllm_emulated.py, without times: requests are handed in a few at a time between
outputs, so that they arrive at steps that only the step log knows. Each job has an engine of its own in this process,
which has imported vLLM once for all.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
    "torch_dtype": "float32",
}


def serve(job: dict[str, Any]) -> None:
    from vllm import EngineArgs, SamplingParams
    from vllm.v1.engine.llm_engine import LLMEngine

    limits = job["limits"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(CONFIG))
        engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=folder,
                skip_tokenizer_init=True,
                load_format="dummy",
                dtype="float32",
                enforce_eager=True,
                max_model_len=limits["max_model_len"],
                max_num_seqs=limits["slots"],
                max_num_batched_tokens=limits["token_budget"],
                num_gpu_blocks_override=limits["kv_blocks"],
                block_size=limits["block_size"],
                watermark=limits["watermark"],
                enable_prefix_caching=False,
                scheduler_cls="policies.vllm_plugin.PolicyScheduler",
                additional_config={"bench_policy": {**job["policy"], "step_log": job["step_log"]}},
            )
        )
        rng = random.Random(job["seed"])
        waiting = list(enumerate(zip(job["prompt"], job["output"], strict=True)))[::-1]
        finished = 0
        while waiting or engine.has_unfinished_requests():
            for _ in range(rng.choice([0, 0, 1, 4])):
                if waiting:
                    row, (prompt, output) = waiting.pop()
                    params = SamplingParams(max_tokens=output, ignore_eos=True, detokenize=False)
                    tokens = [rng.randrange(1, 128) for _ in range(prompt)]
                    engine.add_request(f"cmpl-row-{row}-0", {"prompt_token_ids": tokens}, params)
            if engine.has_unfinished_requests():
                for one in engine.step():
                    if one.finished:
                        finished += 1
                        row = int(one.request_id.split("-")[2])
                        assert len(one.outputs[0].token_ids) == job["output"][row]
        assert finished == len(job["prompt"])
        engine.engine_core.shutdown()


if __name__ == "__main__":
    for job in json.loads(Path(sys.argv[1]).read_text()):
        serve(job)
