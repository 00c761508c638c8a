"""Write the statistical twins: seeded length traces with the published moments of four data sets.

    python scripts/make_twins.py

No text and no download: each header says what is published, what is assumed, and by which law. The
figures are those of arXiv 2606.00516 (longbench, wildchat, numinamath), its reproduction's scripts
(weifang231/eb-vllm), and arXiv 2608.02244 (lmsys).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from workloads.core.trace import Floats, Ints

ROWS = 20_000
SEED = 20_260
FOLDER = Path(__file__).parents[1] / "workloads" / "lengths"
REPRODUCTION = "weifang231/eb-vllm"
BETA = "beta stretched over the published range, its two shapes fixed by the published mean and deviation"


def whole(values: Floats, low: int, high: int) -> Ints:
    return np.clip(np.rint(values), low, high).astype(np.int64)


def beta_between(rng: np.random.Generator, mean: float, sd: float, low: int, high: int) -> Ints:
    m, v = (mean - low) / (high - low), (sd / (high - low)) ** 2
    shapes = m * (1 - m) / v - 1
    return whole(low + (high - low) * rng.beta(m * shapes, (1 - m) * shapes, ROWS), low, high)


def lognormal(rng: np.random.Generator, mean: float, sigma: float, low: int, high: int) -> Ints:
    return whole(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, ROWS), low, high)


def longbench(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Ints]]:
    # E[min(G, 20)] = (1 − (1 − p)^20)/p = 11 for a geometric G, solved for p.
    p = 0.069285
    header = {
        "data_set": "THUDM/LongBench-v2",
        "published": {
            "total input tokens": "1000 to 4000, each as likely (random.randint, unseeded)",
            "output": "forced 20 by the reproduction; the paper: mean 11, cap 20",
        },
        "assumed": {"output before the cap": f"geometric, p = {p}, whose mean under the cap of 20 is 11"},
        "law": "prompt: uniform whole numbers; output: geometric",
        "contradictions": "mean 11 (paper) or exactly 20 (reproduction): forced=20 is the default, "
        "forced=0 gives the lengths of mean 11",
        "source": f"arXiv 2606.00516; {REPRODUCTION}:reproduce/common/export_dataset.py",
    }
    prompt = rng.integers(1000, 4000, ROWS, endpoint=True)
    return header, {"prompt_tokens": prompt, "output_tokens": rng.geometric(p, ROWS)}


def wildchat_turns(rng: np.random.Generator) -> list[int]:
    """Turns of each session, 6 to 12 with mean 9.3, that make ROWS together."""
    turns = np.arange(6, 13)
    # Of all laws on 6…12 with the mean of 27,900 requests over 3,000 conversations, the flattest.
    weight = np.exp(0.07535 * turns)
    sizes: list[int] = []
    left = ROWS
    while left > 12:
        size = int(rng.choice(turns, p=weight / weight.sum()))
        if left - size == 0 or left - size >= 6:
            sizes.append(size)
            left -= size
    return [*sizes, left] if left else sizes


def wildchat(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Ints]]:
    sizes = wildchat_turns(rng)
    header = {
        "data_set": "allenai/WildChat-1M",
        "published": {
            "turns": "6 to 12 a conversation; about 27,900 requests of 3,000 conversations, 9.3 each",
            "output": "312 ± 245, range 1 to 2000 (hazard script); the paper: mean 310; cap 256 a turn",
        },
        "assumed": {
            "prompt": "the turn's own message, without history: lognormal, mean 190, sigma 1.0, 1 to 4000 "
            "(decode ratio 0.62, inside the published band of 0.5 to 0.7)",
            "turns": "the flattest law of mean 9.3 on 6 to 12",
        },
        "law": f"output: {BETA}",
        "contradictions": "mean 310 is above the cap of 256: stored uncapped, output_cap=256 is the default",
        "source": f"arXiv 2606.00516; {REPRODUCTION}:reproduce/real_workloads/multiturn/run_benchmark.sh",
    }
    return header, {
        "prompt_tokens": lognormal(rng, 190, 1.0, 1, 4000),
        "output_tokens": beta_between(rng, 312, 245, 1, 2000),
        "session": np.repeat(np.arange(len(sizes)), sizes),
        "turn": np.concatenate([np.arange(size) for size in sizes]),
    }


def numinamath(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Ints]]:
    header = {
        "data_set": "AI-MO/NuminaMath-CoT",
        "published": {"output": "1842 ± 856, range 800 to 4000 (hazard script); filter 800, cap 4000"},
        "assumed": {
            "prompt": "lognormal, mean 128, sigma 0.6, 16 to 2000; the mean is what the paper's own decode "
            "ratio 0.89 and mean output 1039 imply"
        },
        "law": f"output: {BETA}",
        "contradictions": "mean output 1039 (paper), 1842 (hazard script), exactly 4000 (reproduction, rule A, "
        "which the published cells imply): stored are the data set's own lengths as the hazard script "
        "has them (rule B), the only ones that agree with the filter of 800; forced=4000 gives rule A",
        "source": f"arXiv 2606.00516; {REPRODUCTION}:reproduce/real_workloads/run_optimal_only.sh",
    }
    return header, {
        "prompt_tokens": lognormal(rng, 128, 0.6, 16, 2000),
        "output_tokens": beta_between(rng, 1842, 856, 800, 4000),
    }


def lmsys(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Ints]]:
    header = {
        "data_set": "lmsys/lmsys-chat-1m",
        "published": {"length of a request": "mean 126, median 90, max 905, variance 14938"},
        "assumed": {
            "which length": "prompt + output, the paper's o_i",
            "prompt": "a beta(2, 6) share of the length, a quarter in the mean, at least 1 token",
        },
        "law": "length: lognormal, median 90, sigma 0.8203 (fixed by mean and median; its variance, 15241, "
        "is within 2 % of the published one), cut to 2 … 905",
        "contradictions": "none; which length is meant, and how it splits, is not published",
        "source": "arXiv 2608.02244",
    }
    length = whole(rng.lognormal(np.log(90), 0.8203, ROWS), 2, 905)
    prompt = np.clip(np.rint(length * rng.beta(2, 6, ROWS)), 1, length - 1).astype(np.int64)
    return header, {"prompt_tokens": prompt, "output_tokens": length - prompt}


def write(number: int, make: Any) -> None:
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([SEED, number])))
    header, columns = make(rng)
    drawn = {
        name: f"{values.mean():.1f} ± {values.std():.1f}, range {values.min()} to {values.max()}"
        for name, values in columns.items()
        if name.endswith("_tokens")
    }
    description = {
        "kind": "twin",
        **header,
        "drawn": drawn,
        "seed": SEED,
        "rows": ROWS,
        "made_by": "scripts/make_twins.py",
    }
    table = np.column_stack(list(columns.values()))
    assert table.shape[0] == ROWS
    with (FOLDER / f"{make.__name__}.csv").open("w", encoding="utf-8", newline="\n") as file:
        file.write(f"# {json.dumps(description, ensure_ascii=False)}\n{','.join(columns)}\n")
        np.savetxt(file, table, fmt="%d", delimiter=",")
    means = ", ".join(f"{name} {table[:, i].mean():.1f}" for i, name in enumerate(list(columns)[:2]))
    print(f"{make.__name__}.csv: {ROWS} rows, means {means}")


def main() -> None:
    for number, make in enumerate((longbench, wildchat, numinamath, lmsys)):
        write(number, make)


if __name__ == "__main__":
    main()
