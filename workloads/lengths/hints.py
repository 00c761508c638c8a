"""What a scheduler hears of each request's output length: nothing, the truth, or a predictor's answer.

The predictor is right up to a factor of log-normal error, one draw a request: seeing a request of o tokens it
holds m = o·e^(σz) to be its median, z standard normal. Then o is below m·e^(σ·Φ⁻¹(q)) with probability q: what
it gives as its quantiles are quantiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from workloads.core import options
from workloads.core.errors import WorkloadError
from workloads.core.options import Option
from workloads.core.reading import spelled
from workloads.core.seeds import generator
from workloads.core.trace import Floats, Ints, Trace

_SIGMA = Option("sigma", float, None, "standard deviation of the predictor's log error", minimum=0)
KINDS: dict[str, tuple[Option, ...]] = {
    "none": (),
    "trace": (),
    "oracle": (),
    "noisy": (_SIGMA,),
    "interval": (
        Option("low", float, 0.05, "quantile that the interval begins at", minimum=0),
        Option("high", float, 0.95, "quantile that it ends at", minimum=0),
        _SIGMA,
    ),
}
NONE = "none"
# e^σz of σ = 3 spans five orders of magnitude: beyond it nothing is predicted.
LARGEST_SIGMA = 3.0
LARGEST_HINT = 10**9


@dataclass(frozen=True, slots=True)
class Hints:
    """The least and the most output tokens to expect, one entry a request, 1 ≤ low ≤ high."""

    low: Ints
    high: Ints


def read_lengths(text: str) -> tuple[str, dict[str, float]]:
    """The kind of knowledge and its options; WorkloadError names what is wrong."""
    name, given = options.split(text)
    if name not in KINDS:
        known = "none, oracle, noisy:sigma=0.3, interval:low=0.05,high=0.95,sigma=0.3, trace"
        raise WorkloadError(
            f"--lengths {spelled(text, 40)}: not known{options.suggest(name, KINDS)}: it is one of {known}"
        )
    values = options.read(f"--lengths {name}", KINDS[name], given)
    if values.get("sigma", 0.0) > LARGEST_SIGMA:
        raise WorkloadError(f"--lengths {text}: sigma is above {LARGEST_SIGMA:g}: that predicts nothing")
    if name == "interval" and not 0 < values["low"] <= values["high"] < 1:
        raise WorkloadError(f"--lengths {text}: low and high are quantiles, 0 < low <= high < 1")
    return name, values


def canonical_lengths(text: str) -> str:
    """The one way to write it, every value named: `interval:high=0.95,low=0.05,sigma=0.3`."""
    name, values = read_lengths(text)
    written = ",".join(f"{key}={options.write(values[key])}" for key in sorted(values))
    return f"{name}:{written}" if written else name


def hints_of(lengths: str, trace: Trace, seed: int) -> Hints | None:
    """What the scheduler hears of the trace's requests; None of `none`.

    A request's error depends on the seed and its place in the trace alone, so that all policies hear the same.
    WorkloadError where the trace has no hints of its own and `trace` asks for them.
    """
    name, values = read_lengths(lengths)
    output = trace.output_tokens
    match name:
        case "none":
            return None
        case "oracle":
            return Hints(output, output)
        case "trace":
            if trace.hint_low is None or trace.hint_high is None:
                raise WorkloadError(
                    f"--lengths trace: {trace.name} has no out_hint: give it in every row of a file in our own format, "
                    "or use oracle, noisy or interval"
                )
            return Hints(trace.hint_low, trace.hint_high)
    sigma = values["sigma"]
    median = output * np.exp(sigma * generator(seed, "hints").standard_normal(len(output)))
    if name == "noisy":
        point = _tokens(np.rint(median))
        return Hints(point, point)
    quantile = NormalDist().inv_cdf
    low = _tokens(np.floor(median * np.exp(sigma * quantile(values["low"]))))
    return Hints(low, _tokens(np.ceil(median * np.exp(sigma * quantile(values["high"])))))


def _tokens(values: Floats) -> Ints:
    return np.clip(values, 1, LARGEST_HINT).astype(np.int64)
