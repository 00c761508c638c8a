"""Schedules of the token-step model, and what fairness they have by its definition, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tests.support.runfactory import request


@dataclass(frozen=True, slots=True)
class Schedule:
    """Request i runs for `lengths[i]` consecutive steps from step `starts[i]`, one token a step.

    Step t takes `durations[t]` ns; `prompts` add to the KV footprint.
    """

    starts: list[int]
    lengths: list[int]
    prompts: list[int]
    durations: list[int]

    @property
    def end(self) -> int:
        return max((s + o for s, o in zip(self.starts, self.lengths, strict=True)), default=0)

    def counts(self, t: int, kv: bool = False) -> list[int]:
        """r of every request that runs in step t, after the step."""
        return [
            t - s + 1 + (p if kv else 0)
            for s, o, p in zip(self.starts, self.lengths, self.prompts, strict=True)
            if s <= t < s + o
        ]

    def steps(self) -> list[dict[str, Any]]:
        """The rows of its step log, empty steps too."""
        rows = []
        clock = 0
        for t in range(self.end):
            decode, kv = self.counts(t), self.counts(t, kv=True)
            row: dict[str, Any] = {
                "t_s": clock / 1e9,
                "duration_s": self.durations[t] / 1e9,
                "phase": "decode",
                "prefill_tokens": 0,
                "decode_requests": len(decode),
                "producing": len(decode),
            }
            for name, r in (("generated", decode), ("footprint", kv)):
                row |= {f"{name}_sum": sum(r), f"{name}_min": min(r, default=0), f"{name}_max": max(r, default=0)}
            rows.append(row)
            clock += self.durations[t]
        return rows

    def requests(self) -> list[dict[str, Any]]:
        """The rows of its request table, all there from the start."""
        ends = np.concatenate(([0], np.cumsum(self.durations[: self.end]))) / 1e9
        return [
            request(
                i,
                at=0.0,
                prompt_tokens=p,
                output_tokens=o,
                first_token_s=float(ends[s + 1]),
                last_token_s=float(ends[s + o]),
                done_s=float(ends[s + o]),
                token_gaps_s=None,
            )
            for i, (s, o, p) in enumerate(zip(self.starts, self.lengths, self.prompts, strict=True))
        ]

    def expected(self, alpha: Fraction, kv: bool = False) -> dict[str, Any]:
        """Every figure by its definition, one request and one step at a time, in whole numbers and fractions."""
        gaps, times = [], []
        out: dict[str, Any] = {"externality": 0, "charged": 0, "held": 0, "tokens": 0, "externality_time": 0}
        for t in range(self.end):
            r = self.counts(t, kv)
            if not r:
                continue
            gaps.append(max(r) - min(r))
            times.append(self.durations[t])
            beside = sum(max(r) - one for one in r)
            out["externality"] += beside
            out["externality_time"] += beside * self.durations[t]
            out["charged"] += len(r) * max(r)
            out["held"] += sum(r)
            out["tokens"] += len(r)
        out |= {"busy": len(gaps), "gaps": gaps, "gap_max": max(gaps, default=None)}
        for suffix, weights in (("", [1] * len(gaps)), ("_time", times)):
            weight = sum(weights)
            means: dict[str, list[int | Fraction]] = {
                "gap_mean": [*gaps],
                "violation_share": [int(gap > alpha) for gap in gaps],
                "excess_mean": [max(gap - alpha, Fraction(0)) for gap in gaps],
            }
            for name, values in means.items():
                total = sum((Fraction(v) * w for v, w in zip(values, weights, strict=True)), Fraction(0))
                out[f"{name}{suffix}"] = total / weight if weight else None
        return out
