"""The running figures of what decodes against counting everybody again."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from policies.plugin.progress import Progress, statistics_of


@given(st.integers(0, 10**9))
def test_progress_equals_a_count_of_everybody(seed: int) -> None:
    rng = random.Random(seed)
    progress = Progress()
    held: dict[str, list[int]] = {}  # prompt, generated, most
    advanced: set[str] = set()
    names = 0
    for _ in range(60):
        for name in list(held):
            if rng.random() < 0.05:
                assert progress.leave(name) == held.pop(name)[1]
                assert progress.leave(name) is None
        # Some are left out: those that have all their tokens, and now and then the last ones.
        scheduled = [name for name, (_, generated, most) in held.items() if generated < most]
        if rng.random() < 0.3:
            scheduled = scheduled[: rng.randint(0, len(scheduled))]
        if scheduled:
            progress.take_along(len(scheduled), dict.fromkeys(scheduled, 1))
            producing = [held[name] for name in scheduled]
            assert len(progress) == len(scheduled)
            contexts = [prompt + generated for prompt, generated, _ in producing]
            assert progress.context() == (sum(contexts), max(contexts))
            progress.tick()
            for one in producing:
                one[1] += 1
            advanced = set(scheduled)
        else:
            advanced &= held.keys()
        for _ in range(rng.choice([0, 0, 1, 3])):
            name, had = str(names), rng.choice([1, 1, 5])
            names += 1
            held[name] = [rng.randint(1, 50), had, had + rng.randint(0, 20)]
            progress.enter(name, *held[name])
            advanced.add(name)
        advanced &= held.keys()
        pairs = [(held[name][0], held[name][1]) for name in advanced]
        assert progress.statistics() == statistics_of(pairs)
        assert progress.num_output_tokens() == sorted((had for _, had, _ in held.values()), reverse=True)
        assert progress.footprints() == sorted((prompt + had for prompt, had, _ in held.values()), reverse=True)


def test_nobody_decodes() -> None:
    assert Progress().statistics() == statistics_of([]) == (0,) * 7
    assert Progress().context() == (0, 0)
    assert Progress().leave("nobody") is None
