"""Writes what papers published as runs of the kind `reported`: run.json and summary.json under results/published.

Run from the repository's root: python scripts/publish_reported.py [--reference ../shared/reference]
One run is one cell: a GPU, model, workload, load and policy of arXiv 2606.00516 with every figure told of it, or a
row of Table 1 of arXiv 2608.02244. A figure keeps its table, its file and commit, and how it was read; where two
versions contradict each other one is shown and the other stands in the notes. Left out are figures that were read off
a chart although the plot's own numbers are there, and what is no measurement (bars of v0 made from those of v1).
What nobody told (slots, token budget, load, number of requests) is absent from the spec. A directory that is there
and equal is left alone; one that differs is replaced.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from harness.measure.metrics import METRICS
from harness.runs.run import slug
from harness.runs.writer import write_json

OUT = Path("results/published")
EXCLUSIVE, FAIR = "arXiv 2606.00516", "arXiv 2608.02244"

GPUS = {"H200": "h200", "RTX PRO 6000": "rtxpro6000", "L40S": "l40s", "B300": "b300"}
MODELS = {"Qwen3-8B": "Qwen/Qwen3-8B", "Qwen3-30B-A3B": "Qwen/Qwen3-30B-A3B", "Gemma-3-1B-IT": "google/gemma-3-1b-it"}
POLICIES = {"eb+": "ebplus"}
WORKLOADS = {
    "numina_math": "numinamath",
    "table4": "synthetic:jitter=0.25,mu_l=512,mu_o=256",
    # Its client sent the phases shuffled; see docs/workloads.md.
    "distribution_shift": "drift:distribution,order=paper",
    "concurrency_shift": "drift:concurrency-paper",
}
# The protocol of the real data sets, and what the authors' logs show of Table 4.
REQUESTS = dict.fromkeys(("sharegpt", "longbench", "wildchat", "numinamath"), 4000)
REQUESTS_TABLE4 = {32: 1000, 512: 3000, 2048: 4000}

# Their name: ours, the statistic (None of a plain number), and what makes it our unit.
FIGURES = {
    "request_throughput": ("request_throughput", None, 1.0),
    "total_token_throughput": ("total_throughput", None, 1.0),
    "output_token_throughput": ("output_throughput", None, 1.0),
    "best_fixed_k_total_token_throughput": ("total_throughput", None, 1.0),
    "mean_ttft": ("ttft_s", "mean", 1.0),
    "mean_tpot": ("tpot_s", "mean", 1e-3),
    "p99_tpot": ("tpot_s", "p99", 1e-3),
    "mean_itl": ("itl_s", "mean", 1.0),
}
UNITS = {"mean_ttft": "s", "mean_tpot": "ms", "p99_tpot": "ms", "mean_itl": "s"}
# The first of these that a figure has is shown.
TRUST = (
    "arxiv_v1_seed",
    "plot_script",
    "figure_legend_exact",
    "camera_ready_draft",
    "rebuttal_2026-04",
    "report quoting paper",
)
HOW = {
    "arxiv_v1_seed": "the arXiv version",
    "plot_script": "the numbers in the authors' plot script",
    "figure_legend_exact": "the figure's legend",
    "camera_ready_draft": "a draft of the camera-ready paper",
    "rebuttal_2026-04": "the authors' rebuttal of April 2026",
    "report quoting paper": "the authors' reproduction report, which quotes the paper",
}
# What the reference says of a figure, by words that it holds, in our words; None where it says nothing new.
NOTES: dict[str, str | None] = {
    "9815.50": "the printed total of v1 is 10 % below the authors' own log, which has 9,815.5 (v1), 13,246 (EB) and "
    "13,557 (EB+) tok/s for runs with these latencies",
    "OUTPUT tok/s": "printed under one header, but output tokens/s for this GPU and total tokens/s for the H200, as a "
    "log of the authors shows",
    "shuffles": "the client sent the rows of all phases shuffled, so this is a mixture and no shift",
    "average +0.8%": "from a draft in which EB gains 0.8 % on average; the arXiv version says 1.5 %",
    "average -6.1%": "from a draft in which EB loses 6.1 % on average; the arXiv version says 2.9 %",
    "TTFT (ms)": "the plot script calls it milliseconds; the size of the numbers says seconds",
    "not available on B300": "no v0 here: it does not run on this GPU",
    "seed: level": None,
    "total tok/s": None,
}
# What is known of a whole workload or cell.
KNOWN = {
    "numinamath": "the published mean answer of 1,039 tokens does not fit these rates, which imply about 4,000: "
    "every answer was probably forced to the cap",
    "l40s": "the paper's headline, +41.9 % for EB; a later README has 42.3 % for EB+ without a table",
}
# Which tables and figures tell of the same runs; a table of the leaderboard is of one such set.
REAL = "Tables 2 and 3 with Figures 5 and 6"
SETS = {"Table 2": REAL, "Table 3": REAL, "Fig 5": REAL, "Fig 6": REAL, "Fig 3": "Figure 3", "Fig 4": "Figure 4"}
SETS |= {f"Table {number}": f"Table {number}" for number in (4, 5, 6)}
Json = dict[str, Any]


def cells(rows: list[Json]) -> dict[tuple[Any, ...], list[Json]]:
    """The rows that are figures of a cell, by the cell: tables 2 and 3 with the figures 5 and 6 of the same runs."""
    figures: dict[tuple[Any, ...], list[Json]] = {}
    for row in rows:
        if row["metric"] not in FIGURES or row["provenance"] not in TRUST:
            continue
        names = ("gpu", "model", "workload", "mu_L", "mu_O", "concurrency", "policy")
        figures.setdefault((SETS[short(row["table"])], *(row[name] for name in names)), []).append(row)
    return figures


def spec_of(rows: list[Json]) -> Json:
    """What is told of a cell, under the names of a run's spec."""
    first = rows[0]
    workload = WORKLOADS.get(first["workload"], first["workload"])
    if first["workload"] in ("balanced", "decode_heavy", "prefill_heavy"):
        workload = f"synthetic:mu_l={first['mu_L']},mu_o={first['mu_O']}"
    policy = POLICIES.get(first["policy"], first["policy"].replace("eb_fixed_k_", "eb:k="))
    concurrency = first["concurrency"]
    spec = {
        "gpu": GPUS[first["gpu"]],
        "model": MODELS[first["model"]],
        "policy": policy,
        "workload": workload,
        "engine": "vllm",
        "arrival": "not told" if concurrency is None else f"closed:concurrency={concurrency}",
    }
    requests = REQUESTS_TABLE4.get(concurrency) if first["workload"] == "table4" else REQUESTS.get(str(workload))
    if requests and concurrency:
        spec["requests"] = requests
    for name, column in (("slots", "N"), ("token_budget", "B")):
        value = next((row[column] for row in rows if row[column] is not None), None)
        if value is not None:
            spec[name] = value
    return spec


def metrics_of(rows: list[Json]) -> tuple[Json, Json, list[str]]:
    """The metrics of a cell, each one's source, and what its versions say against each other."""
    metrics: Json = {}
    figures: Json = {}
    notes: list[str] = []
    for row in sorted(rows, key=lambda row: TRUST.index(row["provenance"])):
        name, statistic, scale = FIGURES[row["metric"]]
        assert UNITS.get(row["metric"], row["unit"]) == row["unit"], row
        key = f"{name}.{statistic}" if statistic else name
        where = f"{short(row['table'])}, {HOW[row['provenance']]}"
        value = float(f"{row['value'] * scale:.12g}")
        if key in figures:
            if figures[key]["value"] != value:
                notes.append(f"{METRICS[name].label}: {value:g} {METRICS[name].unit} in {where} ({row['source']})")
            continue
        metrics.setdefault(name, {})[statistic or "value"] = value
        metrics[name]["unit"] = METRICS[name].unit
        note = in_our_words(row["note"])
        figures[key] = {"value": value, "table": short(row["table"]), "read_from": HOW[row["provenance"]]}
        figures[key] |= {"source": row["source"], **({"note": note} if note else {})}
    notes += dict.fromkeys(f"{figure['table']}: {figure['note']}" for figure in figures.values() if "note" in figure)
    return metrics, figures, notes


def short(table: str) -> str:
    """A table or figure without what it shows: `Fig 5 (TTFT)` is `Fig 5`."""
    return table.partition(" (")[0]


def in_our_words(note: str | None) -> str | None:
    """The note on a figure; SystemExit where the reference says something that NOTES does not know."""
    if note is None:
        return None
    for words, ours in NOTES.items():
        if words in note:
            return ours
    sys.exit(f"a note that is not known here: {note}: say it in NOTES")


def exclusive(rows: list[Json]) -> None:
    """Every cell of arXiv 2606.00516."""
    for (experiment, *_), cell in cells(rows).items():
        metrics, figures, notes = metrics_of(cell)
        spec = spec_of(cell)
        notes += [KNOWN[name] for name in (spec["workload"], spec["gpu"]) if name in KNOWN]
        publish(spec, metrics, {"paper": EXCLUSIVE, "set": experiment, "figures": figures}, notes)


def fair(table: Json) -> None:
    """Table 1 of arXiv 2608.02244: a simulation in token-steps, so of no GPU and no model."""
    policies = {"FCFS": "v1", "LJF": "ljf"}
    besides = ("cost", "tau_Q", "c_T", "tau_E", "throughput_gain_pct_vs_LJF")
    for row in table["rows"]:
        spec = {
            "gpu": "none",
            "model": "token-step model",
            "policy": policies.get(row["policy"]) or f"isjl:alpha={row['alpha']}",
            "workload": "not told",
            "engine": "tokenstep",
            "arrival": "offline",
            "requests": table["n"],
            "slots": table["B"],
        }
        spec |= {} if row["policy"] == "FCFS" else {"lengths": "oracle"}
        metrics = {
            "profit_tokenstep": {"value": row["profit"], "unit": METRICS["profit_tokenstep"].unit},
            "gap_mean": {"value": row["mean_violation_tokens"], "unit": METRICS["gap_mean"].unit},
        }
        source = {"value": None, "table": "Table 1", "read_from": "the paper", "source": table["source"]}
        figures = {name: source | {"value": metrics[name]["value"]} for name in metrics}
        figures |= {name: source | {"value": row[name]} for name in besides}
        notes = [
            "Table 1: profit in abstract money, its prices and the lengths behind it are not told; throughput "
            f"{row['throughput_gain_pct_vs_LJF']:+g} % against LJF"
        ]
        publish(spec, metrics, {"paper": FAIR, "set": "Table 1", "figures": figures}, notes)


def publish(spec: Json, metrics: Json, provenance: Json, notes: list[str]) -> None:
    """Writes a cell's directory."""
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    name = slug(f"{provenance['paper']} {provenance['set']}") + f"-{digest[:8]}"
    path = OUT.joinpath(*(slug(spec[part]) for part in ("gpu", "model", "workload", "policy")), name)
    manifest = {
        "schema": 1,
        "spec": spec,
        "digest": digest,
        "kind": "reported",
        "status": "complete",
        "provenance": provenance,
        "notes": notes,
    }
    path.mkdir(parents=True, exist_ok=True)
    MADE.add(path)
    files: dict[Path, Json] = {
        path / "run.json": manifest,
        path / "summary.json": {"schema": 1, "window": None, "metrics": metrics},
    }
    text = {file: json.dumps(value, indent=1, ensure_ascii=False) + "\n" for file, value in files.items()}
    if any(not file.is_file() or file.read_text(encoding="utf-8") != content for file, content in text.items()):
        write_json(files)


MADE: set[Path] = set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, default=Path("../shared/reference"), help="the published figures")
    reference = parser.parse_args().reference
    if not (reference / "paper_tables.json").is_file():
        sys.exit(f"{reference}: no paper_tables.json there: name the published figures with --reference")
    exclusive(json.loads((reference / "paper_tables.json").read_text(encoding="utf-8")))
    fair(json.loads((reference / "isjl_tables.json").read_text(encoding="utf-8"))["tables"][0])
    for file in OUT.rglob("run.json"):
        if file.parent not in MADE:
            shutil.rmtree(file.parent)
    print(f"{len(MADE)} reported runs in {OUT}")


if __name__ == "__main__":
    main()
