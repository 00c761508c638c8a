"""docs/glossary.md, written from METRICS: `python -m harness.measure.glossary > docs/glossary.md`."""

from __future__ import annotations

import sys

from harness.measure.metrics import METRICS
from harness.measure.verdict import CHECKS

_WORDS = """# Glossary

This page is written by `python -m harness.measure.glossary` from the table that computes the numbers.

## Times

All times count in seconds from the run's start and are whole nanoseconds in virtual time.

- **due**: when the schedule wanted the request sent; in a closed loop, the moment its slot became free.
- **sent**: when its first byte left.
- **first token**: the first event that carries a token.
- **done**: the end of its stream.
- **completed**: ended with the length asked for or by itself (`finish` is `length` or `stop`). Nothing else
  counts in a rate or a latency; failures stand beside them, by name.
- **steady window**: the longest span with at least 90 % of the peak number of requests in flight (from due to
  done) of a closed loop; from three waves on what of it lies between the end of the first wave (as many requests
  have ended as are in flight) and the first send of the last one. An open loop has none. It stands in summary.json
  as `window`, and bounds every `…_steady` rate.

## Kinds of runs

- **measured**: a real engine served real requests. **emulated**: a real engine's scheduler ran without a model.
- **simulated**: the virtual-time engine. **reported**: figures from a publication, without tables.
- **twin**: a length distribution made from published figures, where the data itself was not to be had.

## Metrics

"""

_STATISTICS = """
A distribution has mean, p50, p90, p95, p99 (numpy's rule "linear"), max and count. A percentile needs 1/(1 - q)
values: p50 2, p90 10, p95 20, p99 100; with fewer it is null. `low` and `high` are the 95 % interval of the value,
or of a distribution's mean, from within the run: the circular block bootstrap over requests in the order of the
stream (for a rate: over up to 1,000 equal shares of the finished work), on the log scale, with Student's t for the
number of blocks. A block has the length that Politis and White choose, at most a tenth of the run; for latencies it
spans at least three mean stays of a request, since requests that are served together share the engine's luck. The
bootstrap's variance is used in closed form (infinitely many resamples), so there is no seed. With fewer than ten
units, and for latencies where a stay is more than a ninth of the run, the interval is null: use `--repeat`.

Fairness is read from the step log and absent, never zero, where a run has none (a driven server). Its sums are exact
whole numbers. Names that end in `_kv` count KV footprints; `_time` in a name weights each step by its duration. A mean
over steps has an interval, from the block bootstrap over up to 1,000 stretches of the run with as many busy steps each,
whose blocks span three mean stays as well; a percentile, a largest value and a total have none within a run. Without an
α (`--alpha`, or the policy's own) there is no `violation_share` and no `excess_mean`; a comparison holds both arms
against one. gap_p99 needs 100 busy steps. Profit is computed by `bench profit` and is part of no summary, since prices
are no result. More: [fairness and profit](fairness-and-profit.md).

## Verdict

Every run is VALID, DEGRADED or INVALID by these checks; the worst decides. A run that is not complete is INVALID.
INVALID runs are shown and never ranked. A check that cannot apply is listed as such.

"""

_COMPARING = """
## Comparing

A comparison gives B over A as a ratio with a 95 % interval and one word for B: **better**, **worse** or **no difference
shown**. A word needs a spread between runs: Student's t on the log ratios of paired repeats. The spread of runs of one
policy on one stream (A/A) joins it. One repeat has intervals over its requests (block bootstrap) and no word: **not
tested**. Up to three headline rows, named beforehand (`--headline`; else a rate, TTFT and TPOT), share one chance in
twenty of a false word (Holm); the others are exploratory, and each says of how many it is one. Shares, counts, and what
is 0 in an arm are compared by difference. Beside **no difference shown** stands what could have been shown; with
`--equivalent 2%` an interval within ± 2 % says **equal within 2 %**. In an open loop that serves every request in time
rates are **set by the arrivals**; above capacity latencies are **not compared**. A word on a p99 needs ten separate
episodes beyond it in either arm. INVALID runs and runs of different kinds get no word: "not compared: INVALID", "not
ranked".

Of simulated arms the change in output throughput, TTFT and TPOT is also told under each cost model that prices the
pair, with one of three words: **sign supported** (all three agree beyond 5 points), **likely** (all that there are
agree beyond 2), **models disagree** (then nothing is better or worse, whatever the interval). The band is the mean of
roofline and kernels ± 10 points. The interval is of the sample, the band of the models: two things.

`--fail-on` goes by the word and then by the size of the change: `output_throughput<-5%` fails where B is shown to be
worse by 5 %; `ttft_s.p95>1` where B's own value is above a second, `worse` where a headline row is, `INVALID` by the
verdict. With `supported` or `likely` behind it, as in `output_throughput<3%supported`, it also fails where the models
do not agree so far.
"""


def glossary() -> str:
    """The page as Markdown."""
    metrics = ["| name | label | unit | better | what it is |", "|---|---|---|---|---|"]
    metrics += [
        f"| `{metric.name}` | {metric.label} | {metric.unit} | {metric.better} | {metric.formula} |"
        for metric in METRICS.values()
    ]
    checks = ["| check | what is looked at | DEGRADED | INVALID |", "|---|---|---|---|"]
    for check in CHECKS:
        side = "<" if check.floor else ">"
        limits = [
            "" if limit is None else f"{side} {limit:g} {check.unit}".rstrip()
            for limit in (check.degraded, check.invalid)
        ]
        checks.append(f"| `{check.name}` | {check.label} | {limits[0]} | {limits[1]} |")
    return _WORDS + "\n".join(metrics) + "\n" + _STATISTICS + "\n".join(checks) + "\n" + _COMPARING


if __name__ == "__main__":
    sys.stdout.write(glossary())
