"""A real run predicted: its requests replayed in virtual time, and how far the times are off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.core.errors import UserError
from harness.core.host import Host
from harness.profiles.names import model_on
from harness.profiles.pair import Pair, load_pair
from harness.reproduce.measured_rows import MeasuredRun
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import EngineLimits
from harness.simulate.rows import REQUEST_FIELDS, Rows
from policies.catalog import make_policy, read_policy
from workloads.core.arrivals import Closed, Offline
from workloads.core.stream import Stream
from workloads.core.trace import Floats, Trace

# Steps of the search for a host, s and s a decode, and where it begins.
HOST_STEPS = ((1e-3, 1e-5), (3e-4, 3e-6), (1e-4, 1e-6), (3e-5, 3e-7))
HIGHEST = Host(0.05, 5e-3)


@dataclass(frozen=True, slots=True)
class Score:
    """One quantity, measured and predicted (s, or a second), and by request.

    `median_error` is the median of the absolute relative errors of single requests, `correlation` Pearson's over them;
    None where the quantity is not one of each request.
    """

    name: str
    unit: str
    measured: float
    predicted: float
    median_error: float | None = None
    correlation: float | None = None

    @property
    def error(self) -> float:
        """Predicted less measured over measured."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a cost model makes of a run: its scores, and the host that they stand for."""

    run: MeasuredRun
    model: str
    description: str
    host: Host
    fitted: str
    scores: tuple[Score, ...]


def predict(run: MeasuredRun, cost_model: str, host: Host, fit: str = "") -> Prediction:
    """The run through the virtual engine with the profile and model that its setting names.

    `fit` is `host` to fit t0 and h on this run, `t0` for t0 alone (h is 0), empty for neither. Raises UserError.
    """
    setting = run.setting
    if setting.gpu is None or setting.model is None:
        raise UserError(f"{run.where}: nobody says on what it ran: give --gpu and --model")
    name, config = (setting.model, setting.config) if setting.config else model_on(setting.gpu, setting.model)
    pair = load_pair(setting.gpu, name, setting.tp, config)
    chosen = pair.cost(cost_model).name
    if fit and chosen == "linear":
        raise UserError("--fit: linear step costs have the host's time within: name another --cost-model")
    if fit:
        host = fitted_host(run, pair, cost_model, both=fit == "host")
    return Prediction(
        run, chosen, pair.describe(cost_model), host, fit, scores(run, replayed(run, pair, cost_model, host))
    )


def replayed(run: MeasuredRun, pair: Pair, cost_model: str, host: Host) -> npt.NDArray[np.int64]:
    """The request rows of the virtual engine, in the run's order."""
    setting = run.setting
    trace = Trace("measured", run.prompt_tokens, run.output_tokens)
    due = np.rint(run.arrival * 1e9).astype(np.int64)
    closed = setting.concurrency is not None
    stream = Stream(trace, Closed(setting.concurrency or 1) if closed else Offline(), None if closed else due)
    means = (trace.mean_prompt_tokens, trace.mean_output_tokens)
    costs = pair.policy_constants(*means, setting.token_budget, cost_model, host)
    limits = EngineLimits(
        slots=setting.slots,
        token_budget=setting.token_budget,
        kv_blocks=(setting.kv_tokens or pair.kv_tokens) // setting.block_size,
        block_size=setting.block_size,
        max_model_len=setting.max_model_len,
    )
    chunks: list[Rows] = []

    def sink(rows: Rows) -> bool:
        chunks.append(rows)
        return True

    cost = pair.cost(cost_model, Host() if pair.chosen(cost_model) == "linear" else host)
    BatchLoop(stream, make_policy(*read_policy(setting.policy), setting.slots, costs), cost, limits).run(sink)
    rows = np.concatenate([one.requests for one in chunks])
    rows = rows[np.argsort(rows[:, REQUEST_FIELDS.index("row")])]
    if (rows[:, REQUEST_FIELDS.index("first")] < 0).any():
        raise UserError(f"{run.where}: some requests do not fit the cache or max_model_len: give --kv-tokens")
    return rows


def scores(run: MeasuredRun, rows: npt.NDArray[np.int64]) -> tuple[Score, ...]:
    """Throughput, makespan and the latencies of the run beside those of the replay."""
    due, first, last = (rows[:, REQUEST_FIELDS.index(name)] / 1e9 for name in ("due", "first", "last"))
    several = run.output_tokens > 1
    gaps = run.output_tokens[several] - 1
    end, told_end = float(run.last.max()), float(last.max())
    tokens = float(run.output_tokens.sum())

    def each(name: str, unit: str, measured: Floats, predicted: Floats) -> Score:
        sound = measured > 0
        missed = np.abs(predicted[sound] / measured[sound] - 1)
        together = float(np.corrcoef(measured, predicted)[0, 1]) if measured.std() and predicted.std() else None
        return Score(name, unit, float(measured.mean()), float(predicted.mean()), float(np.median(missed)), together)

    return (
        Score("output tok/s", "tok/s", tokens / end, tokens / told_end),
        Score("requests/s", "req/s", len(rows) / end, len(rows) / told_end),
        each("TTFT", "s", run.first - run.arrival, first - due),
        each("TPOT", "s", (run.last - run.first)[several] / gaps, (last - first)[several] / gaps),
        each("latency", "s", run.last - run.arrival, last - due),
        Score("makespan", "s", end, told_end),
    )


def fitted_host(run: MeasuredRun, pair: Pair, cost_model: str, both: bool) -> Host:
    """The host with which throughput, TTFT, TPOT and latency are least off, found by descent from the default.

    The loss is the sum of the squared logarithms of predicted over measured means.
    """
    known: dict[Host, float] = {}

    def loss(host: Host) -> float:
        if host not in known:
            found = scores(run, replayed(run, pair, cost_model, host))
            named = {score.name: score for score in found}
            missed = [np.log1p(named[name].error) for name in ("output tok/s", "TTFT", "TPOT", "latency")]
            known[host] = float(np.sum(np.square(missed)))
        return known[host]

    best = Host() if both else Host(Host().step_s, 0.0)
    for step, decode in HOST_STEPS:
        # More a step and less a decode come to nearly the same: the search goes along that valley too.
        best = _descend(best, loss, [(step, 0.0), (0.0, decode), (step, -decode)] if both else [(step, 0.0)])
    return best


def _descend(host: Host, loss: Callable[[Host], float], moves: Sequence[tuple[float, float]]) -> Host:
    while True:
        near = [
            Host(
                round(min(max(host.step_s + sign * step, 0.0), HIGHEST.step_s), 9),
                round(min(max(host.decode_s + sign * decode, 0.0), HIGHEST.decode_s), 9),
            )
            for step, decode in moves
            for sign in (1, -1)
        ]
        best = min([host, *near], key=loss)
        if best == host:
            return host
        host = best
