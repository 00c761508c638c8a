"""Every metric of summary.json, computed again from the two parquet files by other means (pandas)."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.core.runspec import RunSpec
from harness.runs.run import Run
from harness.session.one_run import prepare, run

SLO = {"ttft_s": 0.5, "tpot_s": 0.05}
ALPHA = 60.0


def ran(out: Path, arrival: str, policy: str) -> Run:
    spec = RunSpec(
        gpu="l40s", model="Qwen/Qwen3-8B", policy=policy, workload="sharegpt", arrival=arrival, requests=300, slots=16,
        slo=SLO, alpha=ALPHA, seed=3, kv_tokens=12_000,
    )  # fmt: skip
    return run(prepare(spec), out, ["bench"], lambda _: None, lambda: False)


def distribution(values: "pd.Series[float]") -> dict[str, Any]:
    found: dict[str, Any] = {"mean": values.mean(), "max": values.max(), "count": len(values)}
    for percent, least in ((50, 2), (90, 10), (95, 20), (99, 100)):
        found[f"p{percent}"] = values.quantile(percent / 100) if len(values) >= least else None
    return found


def token_gaps(frame: pd.DataFrame, steps: pd.DataFrame) -> "pd.Series[float]":
    """Walks every request's tokens: its own list, or the ends of the steps that decode between its stamps."""
    decoding = steps[steps["decode_requests"] > 0]
    ends = np.sort((decoding["t_s"].mul(1e9).round() + decoding["duration_s"].mul(1e9).round()).to_numpy())
    gaps: list[float] = []
    for one in frame.itertuples():
        if isinstance(one.token_gaps_s, (list, np.ndarray)):
            gaps += list(one.token_gaps_s)
            continue
        first, last = round(one.first_token_s * 1e9), round(one.last_token_s * 1e9)
        own = ends[(ends > first) & (ends <= last)]
        gaps += list(np.diff(np.concatenate(([first], own))) / 1e9)
    return pd.Series(gaps)


def latencies(frame: pd.DataFrame, steps: pd.DataFrame, since: str) -> dict[str, dict[str, Any]]:
    several = frame[frame["output_tokens"] > 1]
    decode = several["last_token_s"] - several["first_token_s"]
    return {
        "ttft_s": distribution(frame["first_token_s"] - frame[since]),
        "ttft_from_sent_s": distribution(frame["first_token_s"] - frame["sent_s"]),
        "tpot_s": distribution(decode / (several["output_tokens"] - 1)),
        "itl_s": distribution(token_gaps(frame, steps)),
        "e2el_s": distribution(frame["done_s"] - frame[since]),
        "send_lag_s": distribution(frame["sent_s"] - frame["due_s"]),
    }


def rates(frame: pd.DataFrame, since: str, start: float, end: float) -> dict[str, float]:
    """Work done from `start` to `end`, s: tokens after the first evenly between a request's two stamps."""
    span = end - start

    def tokens_by(time: float, prompt: bool) -> float:
        length = (frame["last_token_s"] - frame["first_token_s"]).clip(lower=1e-9)
        part = ((time - frame["first_token_s"]) / length).clip(0, 1)
        jump = 1 + (frame["prompt_tokens"] if prompt else 0)
        begun = frame["first_token_s"] <= time + 1e-12
        return float((begun * jump + part * (frame["output_tokens"] - 1)).sum())

    ended = frame[(frame["last_token_s"] > start + 1e-12) & (frame["last_token_s"] <= end + 1e-12)]
    tpot = (ended["last_token_s"] - ended["first_token_s"]) / (ended["output_tokens"] - 1).clip(lower=1)
    kept = (ended["first_token_s"] - ended[since] <= SLO["ttft_s"]) & (tpot <= SLO["tpot_s"])
    return {
        "request_throughput": len(ended) / span,
        "goodput": int(kept.sum()) / span,
        "output_throughput": (tokens_by(end, False) - tokens_by(start, False)) / span,
        "total_throughput": (tokens_by(end, True) - tokens_by(start, True)) / span,
    }


def fairness(steps: pd.DataFrame) -> dict[str, float]:
    found: dict[str, float] = {"makespan_steps": len(steps)}
    busy = steps[steps["producing"] > 0]
    found["busy_steps"] = len(busy)
    time = busy["duration_s"]
    for suffix, column in (("", "generated"), ("_kv", "footprint")):
        gap = busy[f"{column}_max"] - busy[f"{column}_min"]
        excess = (gap - ALPHA).clip(lower=0)
        external = busy["producing"] * busy[f"{column}_max"] - busy[f"{column}_sum"]
        found |= {
            f"gap_mean{suffix}": gap.mean(),
            f"gap_p99{suffix}": gap.quantile(0.99),
            f"gap_max{suffix}": gap.max(),
            f"violation_share{suffix}": (gap > ALPHA).mean(),
            f"excess_mean{suffix}": excess.mean(),
            f"externality{suffix}": external.sum(),
            f"externality_per_token{suffix}": external.sum() / busy["producing"].sum(),
            f"gap_mean_time{suffix}": (gap * time).sum() / time.sum(),
            f"violation_share_time{suffix}": ((gap > ALPHA) * time).sum() / time.sum(),
            f"excess_mean_time{suffix}": (excess * time).sum() / time.sum(),
            f"externality_time{suffix}": (external * time).sum(),
        }
    return found


@pytest.mark.parametrize(
    ("arrival", "policy"),
    [("closed:concurrency=24", "v1"), ("closed:concurrency=12", "eb"), ("poisson:rate=6.0", "v1")],
)
def test_every_metric_is_what_pandas_makes_of_the_tables(tmp_path: Path, arrival: str, policy: str) -> None:
    one = ran(tmp_path, arrival, policy)
    frame = pd.read_parquet(one.path / "requests.parquet")
    steps = pd.read_parquet(one.path / "steps.parquet")
    closed = arrival.startswith("closed")
    since = "sent_s" if closed else "due_s"
    done = frame[frame["finish"].isin(["length", "stop"])]
    expected: dict[str, dict[str, Any]] = latencies(done, steps, since)
    whole = rates(done, since, frame["sent_s"].min(), frame["last_token_s"].max())
    expected |= {name: {"value": value} for name, value in (whole | fairness(steps)).items()}
    if closed:
        window = one.summary["window"]
        inside = rates(done, since, window["start_s"], window["end_s"])
        expected |= {f"{name}_steady": {"value": value} for name, value in inside.items()}
        level = int(arrival.partition("=")[2])
        order = frame.sort_values(["sent_s", "row"], kind="stable")
        full = done.loc[done.index.isin(order.index[level:-level])]
        names = ("ttft_s", "tpot_s", "itl_s", "e2el_s")
        expected |= {f"{name}_steady": latencies(full, steps, since)[name] for name in names}
        first_ends = np.sort(frame["done_s"])[level - 1]
        steady = steps[(steps["t_s"] >= first_ends - 1e-10) & (steps["t_s"] < frame["sent_s"].max() - 1e-10)]
        expected["gap_mean_steady"] = {"value": fairness(steady)["gap_mean"]}
    metrics = one.summary["metrics"]
    assert metrics.keys() == expected.keys()
    for name, values in expected.items():
        for key, value in values.items():
            told = metrics[name][key]
            assert (told is None) == (value is None), (name, key)
            if value is not None:
                assert told == pytest.approx(value, rel=1e-9, abs=1e-12), (name, key)
