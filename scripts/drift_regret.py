"""What EB+ loses on a drift against the best single policy in hindsight, and what δ trades (TTFT against TPOT).

Run: python scripts/drift_regret.py [--gpu h200] [--seeds 5] [--plot runs/drift.html]
Everything is simulated: the virtual-time engine on the published step times, N = 2,048 and B = 18,432 as the
published drifts have them. Regret = 1 − total tok/s of EB+ ÷ that of the best single policy of the same seed.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.engines.simulated import replay
from harness.profiles.pair import Pair, load_pair
from harness.session.grid import arrival_of
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import Rows, joined
from harness.trace.stats import phase_rows
from policies.catalog import make_policy, read_policy
from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.stream import schedule
from workloads.core.trace import Ints, Trace

MODEL = "Qwen/Qwen3-8B"
SLOTS, TOKEN_BUDGET, LONGEST = 2048, 18432, 16384
WORKLOADS = (
    "drift:distribution",
    "drift:distribution,order=paper",
    "drift:concurrency-paper",
    "drift:concurrency-script",
    "drift:concurrency-log",
    "drift:concurrency-early",
)
SINGLE = ("v1", "v0", "eb", "eb:theta_min=0.7")
SWITCHING = ("ebplus", "ebplus:theta_min=0.7")
DELTAS = (-1e-5, 0.0, 2e-6, 5e-6, 1e-5, 1.5e-5, 2e-5, 4e-5)
SWEPT = ("drift:distribution", "drift:concurrency-log")


@dataclass(frozen=True)
class Played:
    """A run: total tok/s, mean TTFT (s) and TPOT (ms), share of time in mixed mode, and its rows.

    Of its requests, in the trace's order: when they were sent and had their last token (ns), and their output tokens.
    """

    trace: Trace
    rows: Rows
    total: float
    ttft_s: float
    tpot_ms: float
    mixed: float
    sent: Ints
    last: Ints
    output_tokens: Ints
    modes: list[str | None]

    def phase_total(self, rows: slice) -> float:
        """Total tok/s of the requests of a phase, over their own first send to their own last token."""
        tokens = self.trace.prompt_tokens[rows].sum() + self.output_tokens[rows].sum()
        return float(tokens / (self.last[rows].max() - self.sent[rows].min()) * 1e9)

    def steps(self) -> tuple[Ints, Ints]:
        """When each step began and how long it took, ns."""
        return self.rows.step_column("t"), self.rows.step_column("duration")


def play(pair: Pair, workload: str, policy: str, seed: int) -> Played:
    """One run in virtual time."""
    name, given = options.split(workload)
    trace = load_workload(name, given, requests=None, seed=seed, model=MODEL)
    costs = pair.policy_constants(trace.mean_prompt_tokens, trace.mean_output_tokens, TOKEN_BUDGET)
    parts: list[Rows] = []

    def sink(rows: Rows) -> bool:
        parts.append(rows)
        return True

    limits = EngineLimits(SLOTS, TOKEN_BUDGET, pair.kv_tokens // 16, max_model_len=LONGEST)
    stream = schedule(arrival_of(trace, ""), trace, seed)
    replay(stream, make_policy(*read_policy(policy), SLOTS, costs), pair.cost(), limits, sink)
    rows = joined(parts)
    order = np.argsort(rows.request_column("row"))
    sent, first, last, tokens = (
        rows.request_column(name)[order] for name in ("sent", "first", "last", "output_tokens")
    )
    several = tokens > 1
    modes = [rows.states[i].mode if i >= 0 else None for i in rows.step_column("state").tolist()]
    in_mixed, duration = np.array([mode != "EB" for mode in modes]), rows.step_column("duration")
    return Played(
        trace=trace,
        rows=rows,
        total=float((trace.prompt_tokens.sum() + tokens.sum()) / (last.max() - sent.min()) * 1e9),
        ttft_s=float((first - sent).mean() / 1e9),
        tpot_ms=float(((last - first)[several] / (tokens[several] - 1)).mean() / 1e6),
        mixed=float(duration[in_mixed].sum() / duration.sum()),
        sent=sent,
        last=last,
        output_tokens=tokens,
        modes=modes,
    )


def spread(values: list[float], form: str = "{:,.0f}") -> str:
    """Mean and, beside it, the least and the most over the seeds."""
    return f"{form.format(np.mean(values))} ({form.format(min(values))} to {form.format(max(values))})"


def regrets(pair: Pair, seeds: int) -> None:
    print("| drift | " + " | ".join((*SINGLE, *SWITCHING)) + " | best single | regret of EB+ | of EB+ at θ_min = 0.7 |")
    print("|" + "---|" * (len(SINGLE) + len(SWITCHING) + 4))
    for workload in WORKLOADS:
        totals = {
            policy: [play(pair, workload, policy, seed).total for seed in range(seeds)]
            for policy in (*SINGLE, *SWITCHING)
        }
        best = max(SINGLE, key=lambda policy: float(np.mean(totals[policy])))
        cells = [f"{np.mean(totals[policy]):,.0f}" for policy in (*SINGLE, *SWITCHING)]
        hindsight = [max(totals[policy][seed] for policy in SINGLE) for seed in range(seeds)]
        lost = [
            spread([100 * (1 - a / b) for a, b in zip(totals[policy], hindsight, strict=True)], "{:+.1f} %")
            for policy in SWITCHING
        ]
        print(f"| {workload} | {' | '.join(cells)} | {best} | {' | '.join(lost)} |", flush=True)


def by_phase(pair: Pair, workload: str) -> None:
    runs = {policy: play(pair, workload, policy, 0) for policy in ("v1", "eb", "ebplus")}
    print(f"\n{workload}, total tok/s of each phase (seed 0):\n")
    print("| phase | " + " | ".join(runs) + " | EB+ in mixed mode |")
    print("|" + "---|" * (len(runs) + 2))
    for mark, rows in phase_rows(runs["v1"].trace):
        cells = [f"{run.phase_total(rows):,.0f}" for run in runs.values()]
        print(f"| {mark['name']} | {' | '.join(cells)} | {100 * mixed_in(runs['ebplus'], rows):.0f} % |")


def mixed_in(run: Played, rows: slice) -> float:
    """The share of a phase's time, first send to last send, that EB+ spent in mixed mode."""
    sent = run.sent[rows]
    start, length = run.steps()
    inside = (start >= sent.min()) & (start <= max(int(sent.max()), int(sent.min()) + 1))
    mixed = np.array([mode != "EB" for mode in run.modes])
    total = length[inside].sum()
    return float(length[inside & mixed].sum() / total) if total else 0.0


def sweep(pair: Pair, workload: str, seeds: int) -> list[tuple[str, float, float, float]]:
    print(f"\n{workload}, mean of {seeds} seeds:\n")
    print("| policy | mean TTFT s | mean TPOT ms | total tok/s | time in mixed mode |\n|---|---|---|---|---|")
    means = []
    for policy in ("v1", "eb", *(f"ebplus:delta={delta:g}" for delta in DELTAS)):
        runs = [play(pair, workload, policy, seed) for seed in range(seeds)]
        ttft, tpot, total, mixed = (
            float(np.mean([getattr(run, name) for run in runs])) for name in ("ttft_s", "tpot_ms", "total", "mixed")
        )
        if policy == "eb":
            mixed = 0.0
        print(f"| {policy} | {ttft:.2f} | {tpot:.1f} | {total:,.0f} | {100 * mixed:.0f} % |", flush=True)
        means.append((policy, ttft, tpot, total))
    return means


def plot(pair: Pair, swept: dict[str, list[tuple[str, float, float, float]]], out: Path) -> None:
    """A page: throughput and mode of EB+ over each drift, its phases marked, and the trade that δ makes."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    names = list(swept)
    figure = make_subplots(
        rows=2, cols=len(names), vertical_spacing=0.16,
        subplot_titles=[*names, *(f"{name}: what δ trades" for name in names)],
    )  # fmt: skip
    for col, name in enumerate(names, 1):
        for policy, colour in (("v1", "#888888"), ("eb", "#2f6db3"), ("ebplus", "#c0392b")):
            run = play(pair, name, policy, 0)
            at, rate = processed(run)
            line: dict[str, Any] = {"color": colour, "shape": "hv"}
            figure.add_trace(
                go.Scatter(x=at, y=rate, name=policy, line=line, legendgroup=policy, showlegend=col == 1),
                row=1,
                col=col,
            )
            if policy != "ebplus":
                continue
            for start, end in exclusive_spans(run):
                figure.add_vrect(
                    x0=start, x1=end, fillcolor=colour, opacity=0.08, line_width=0, layer="below", row=1, col=col
                )
            for mark, rows in phase_rows(run.trace):
                figure.add_vline(
                    x=float(run.sent[rows.start] / 1e9), line_dash="dot", line_color="#666666",
                    annotation_text=mark["name"], annotation_font_size=10, annotation_textangle=-90, row=1, col=col,
                )  # fmt: skip
        figure.update_xaxes(title_text="virtual time (s)", row=1, col=col)
        figure.update_yaxes(title_text="tokens processed (tok/s)", rangemode="tozero", row=1, col=col)
        labels, ttft, tpot, _ = zip(*swept[name], strict=True)
        figure.add_trace(
            go.Scatter(
                x=ttft, y=tpot, text=[label.replace("ebplus:delta=", "δ = ") for label in labels], mode="markers+text",
                textposition="top center", marker_color="#c0392b", showlegend=False,
            ),
            row=2, col=col,
        )  # fmt: skip
        figure.update_xaxes(title_text="mean TTFT (s)", row=2, col=col)
        figure.update_yaxes(title_text="mean TPOT (ms)", row=2, col=col)
    figure.update_layout(
        title="Drifts on the virtual engine (simulated); shaded: EB+ is in exclusive mode",
        template="plotly_white", height=900,
    )  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.write_html(out, include_plotlyjs=True, div_id="drift")
    print(f"\n{out}")


def processed(run: Played, pieces: int = 100) -> tuple[Any, Any]:
    """Starts of equal pieces of the run (s) and the prompt and decode tokens a second computed in each."""
    start, length = run.steps()
    ends = (start + length) / 1e9
    edges = np.linspace(0.0, float(ends.max()), pieces + 1)
    tokens = run.rows.step_column("prefill_tokens") + run.rows.step_column("decode_requests")
    return edges[:-1], np.histogram(ends, edges, weights=tokens)[0] / np.diff(edges)


def exclusive_spans(run: Played) -> list[tuple[float, float]]:
    """Spans of the run (s) in exclusive mode."""
    exclusive = np.concatenate([[False], [mode == "EB" for mode in run.modes], [False]])
    rises, falls = np.flatnonzero(exclusive[1:] & ~exclusive[:-1]), np.flatnonzero(~exclusive[1:] & exclusive[:-1])
    start, length = run.steps()
    end = (start + length) / 1e9
    return [(float(start[rise] / 1e9), float(end[fall - 1])) for rise, fall in zip(rises, falls, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="also write this HTML page")
    given = parser.parse_args()
    pair = load_pair(given.gpu, MODEL)
    print(f"{pair.describe()}, N = {SLOTS}, B = {TOKEN_BUDGET}; total tok/s, mean of {given.seeds} seeds\n")
    regrets(pair, given.seeds)
    for workload in SWEPT:
        by_phase(pair, workload)
    swept = {workload: sweep(pair, workload, given.seeds) for workload in SWEPT}
    if given.plot:
        plot(pair, swept, given.plot)


if __name__ == "__main__":
    main()
