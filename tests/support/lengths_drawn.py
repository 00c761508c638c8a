"""Output lengths of known hazard, and a system that is always full of requests with such lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from policies.online.hazard import ExposureEstimator

Draw = Callable[[np.random.Generator, int], npt.NDArray[np.int64]]


def geometric(mean: float, least: int = 1) -> Draw:
    return lambda rng, n: rng.geometric(1 / mean, n) + (least - 1)


def rising(p0: float, eta: float, least: int = 1) -> Draw:
    """Lengths that stop at age t with probability p0 + η·t, by inverting the cumulated hazard."""
    ages = np.arange(1, 40_000)
    beyond = np.cumsum(-np.log1p(-np.minimum(p0 + eta * ages, 0.99)))
    return lambda rng, n: np.searchsorted(beyond, rng.exponential(size=n)) + least


def uniform(low: int, high: int) -> Draw:
    return lambda rng, n: rng.integers(low, high + 1, n)


class Full:
    """A system whose slots are always full: a request that completes is followed by one in the next step.

    `alone` gives first tokens in a prefill-only step, as exclusive batching does; else decodes share it.
    """

    def __init__(self, draw: Draw, slots: int, window: int, seed: int, alone: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.estimator = ExposureEstimator(window)
        self.slots = slots
        self.alone = alone
        self._lengths = iter(draw(rng, 400 * slots if slots < 100 else 16 * slots).tolist())
        self.running: list[list[int]] = []  # age, length
        self.history: list[tuple[list[tuple[int, int]], int]] = []  # (ages in this step, completions so far)

    def step(self) -> None:
        """One step, told to the estimator as an engine tells it."""
        fresh = [[0, next(self._lengths)] for _ in range(self.slots - len(self.running))]
        decodes = 0 if self.alone and fresh else len(self.running)
        lived = fresh if self.alone and fresh else self.running + fresh
        self.running += fresh
        for request in lived:
            request[0] += 1
        self.history.append(([(age, length) for age, length in lived], self.estimator.completions))
        self.estimator.on_steps(1, decodes, len(fresh))
        for request in [request for request in self.running if request[0] == request[1]]:
            self.running.remove(request)
            self.estimator.on_finish(request[1])

    @property
    def ages(self) -> list[int]:
        return sorted((age for age, _ in self.running), reverse=True)

    def until(self, completions: int) -> Full:
        while self.estimator.completions < completions:
            self.step()
        return self


def quick(draw: Draw, slots: int, window: int, seed: int, marks: Sequence[int]) -> Iterator[ExposureEstimator]:
    """The same full system, mixed steps only, from event to event; the estimator whenever a mark is passed."""
    lengths = draw(np.random.default_rng(seed), slots * (14 + 3 * max(marks) // slots)).reshape(slots, -1)
    ends = lengths.cumsum(axis=1)
    horizon = int(ends[:, -1].min())
    order = np.argsort(ends, axis=None, kind="stable")
    at, of = ends.ravel()[order].tolist(), lengths.ravel()[order].tolist()
    estimator = ExposureEstimator(window)
    estimator.on_steps(1, 0, slots)
    now, i = 1, 0
    for mark in marks:
        while True:
            finished = 0
            while at[i] == now:
                estimator.on_finish(of[i])
                finished += 1
                i += 1
            if finished:
                if estimator.completions >= mark:
                    yield estimator
                estimator.on_steps(1, slots - finished, finished)
                now += 1
            elif at[i] > now:
                estimator.on_steps(at[i] - now, slots, 0)
                now = at[i]
            assert now < horizon
            if finished and estimator.completions >= mark:
                break
