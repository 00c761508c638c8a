"""A GPU of your own: one profile file, used by its path."""

from pathlib import Path

import schedbench as sb

path = Path("my-gpu.toml")
path.write_text(
    """
label = "A GPU of mine"
aliases = []
memory_gb = { value = 96.0, source = "the data sheet" }
bandwidth_tb_s = { value = 1.6, source = "the data sheet" }
dense_bf16_tflops = { value = 400.0, source = "the data sheet" }
attention = { value = "fa2", source = "the backend that vLLM takes here" }
attention_efficiency = { value = 0.6, source = "assumed, as of similar GPUs" }
"""
)
runs = sb.run(gpu=f"./{path}", policy="v1,ebplus", workload="sharegpt", requests=1500, concurrency=256, slots=128)
print(runs.summary[["gpu", "policy", "output_throughput_tok_per_s", "verdict"]])
print(sb.compare(runs))
