"""Percentiles by one stated rule, and intervals that respect autocorrelation."""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

PERCENTILES = (50, 90, 95, 99)
CONFIDENCE = 0.95

# An interval from fewer units than this would say more about the method than about the run.
LEAST_UNITS = 10

# Mean stays of a request that a block spans: equal arms then differ at p < 0.05 about one time in twenty.
STAYS = 3

# With fewer blocks there is no telling how much they differ.
LEAST_BLOCKS = 3

# The mean stay, as a share of the run, up to which a run holds that many blocks.
LONGEST_STAY = 1 / (STAYS * LEAST_BLOCKS)

# Longer series are summed in groups first: what matters for the blocks is correlation over many requests.
MOST_GROUPS = 16_384


def enough(percent: float, count: int) -> bool:
    """Whether `count` samples carry a percentile: 1/(1 - q) of them (p50 2, p90 10, p95 20, p99 100)."""
    return count >= round(100 / (100 - percent))


def weighted_percentile(values: Ints | Floats, cumulative: Ints | None, percent: float) -> float:
    """The percentile, by the rule "linear" of numpy, of the multiset of `values` with counts.

    `values` ascend; `cumulative` is the running sum of how often each stands, None where each does once.
    """
    last = (len(values) if cumulative is None else int(cumulative[-1])) - 1
    place = last * percent / 100
    low = math.floor(place)
    places = [low, min(low + 1, last)]
    if cumulative is not None:
        places = [int(np.searchsorted(cumulative, k, side="right")) for k in places]
    below, above = (float(values[k]) for k in places)
    return below + (above - below) * (place - low)


def block_length(series: Floats) -> int:
    """The length of blocks, in entries, that keeps the autocorrelation of a series of mean 0.

    The automatic choice for the circular block bootstrap of Politis and White (2004) as corrected by Patton,
    Politis and White (2009), at most a tenth of the series so that at least ten blocks remain.
    """
    n = len(series)
    most = max(1, n // 10)
    quiet = max(5, math.ceil(math.sqrt(math.log10(n))))
    lags = min(math.ceil(math.sqrt(n)) + quiet, n - 1)
    # Room for the lags that are looked at is enough to keep the end of the series off its beginning.
    size = min(factor << (-(-(n + lags) // factor) - 1).bit_length() for factor in (1, 3, 5))
    spectrum = np.fft.rfft(series, size)
    covariance = np.fft.irfft(spectrum * spectrum.conj(), size)[: lags + 1] / n
    if covariance[0] <= 0:
        return 1
    loud = np.abs(covariance[1:] / covariance[0]) > 2 * math.sqrt(math.log10(n) / n)
    # The first lag after which `quiet` lags in a row are insignificant.
    calm = loud.tobytes().find(bytes(quiet))
    last = calm if calm >= 0 else lags
    width = min(2 * max(last, 1), lags)
    lag = np.arange(1, width + 1)
    taper = np.clip(2 * (1 - lag / width), 0, 1)
    spread = 2 * float(np.sum(taper * lag * covariance[1 : width + 1]))
    level = float(covariance[0] + 2 * np.sum(taper * covariance[1 : width + 1]))
    if level <= 0 or last == 0:
        return 1
    best = (2 * spread**2 / (4 / 3 * level**2)) ** (1 / 3) * n ** (1 / 3)
    return int(min(max(1, round(best)), most))


def mean_variance(series: Floats, overlap: float = 0.0) -> tuple[float, float]:
    """The variance of the mean of a series of mean 0, and its degrees of freedom.

    Blocks have the length of `block_length` and at least STAYS times the share `overlap` of the series: requests
    that are served together share the engine's luck, however little the series itself shows of it.

    The circular block bootstrap's own variance in closed form (the limit of infinitely many resamples: the
    mean square of all block means over the number of blocks), so that no seed and no resampling noise
    remain; times b/(b-1) for b blocks, with b-1 degrees of freedom.
    """
    n = len(series)
    if n > MOST_GROUPS:
        group = -(-n // MOST_GROUPS)
        padded = np.zeros(-(-n // group) * group)
        padded[:n] = series
        # A sum over a group, scaled so that the mean over the groups is the mean over the entries.
        series = padded.reshape(-1, group).sum(axis=1) * (len(padded) // group / n)
        n = len(series)
    length = min(max(block_length(series), math.ceil(STAYS * overlap * n)), n // LEAST_BLOCKS)
    blocks = n / length
    running = np.concatenate(([0.0], np.cumsum(np.concatenate((series, series[: length - 1])))))
    means = (running[length:] - running[:-length]) / length
    return float(np.mean(means**2)) / (blocks - 1), blocks - 1


@functools.lru_cache(maxsize=4096)
def t_quantile(freedom: float, share: float = 1.0) -> float:
    """Student's t that leaves 2.5 % on either side, or a share of that."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 1 - share * (1 - CONFIDENCE) / 2))


def t_p_value(t: float, freedom: float) -> float:
    """The two-sided p-value of Student's t."""
    from scipy.special import stdtr

    return float(2 * stdtr(freedom, -abs(t)))
