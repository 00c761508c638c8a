"""A trace of your own: write rows as JSON lines, look at them, replay them under two policies."""

import json
import random
from pathlib import Path

import schedbench as sb

path = Path("my-trace.jsonl")
draw = random.Random(1)
time_s = 0.0
with path.open("w") as file:
    for _ in range(1500):
        time_s += draw.expovariate(12.0)
        row = {
            "timestamp_s": round(time_s, 6),
            "prompt_tokens": draw.randint(20, 900),
            "output_tokens": 1 + int(draw.expovariate(1 / 180)),
        }
        file.write(json.dumps(row) + "\n")

workload = f"file:{path}"
print(sb.trace(workload).frame.describe())
runs = sb.run(gpu="l40s", policy="v1,eb", workload=workload, arrival="trace:scale=1", slots=256)
print(sb.compare(runs))
