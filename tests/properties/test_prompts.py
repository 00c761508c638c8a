import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workloads.core.blocks import Blocks
from workloads.core.trace import Trace
from workloads.prompts.draws import Draws
from workloads.prompts.ids import TokenPrompts

BLOCK = 16
lengths = st.lists(st.integers(BLOCK, 80), min_size=1, max_size=60)
alphabets = st.builds(lambda low, size: range(low, low + size), st.integers(0, 2000), st.integers(16, 160_000))
seeds = st.integers(0, 2**63)


def trace_of(prompts: list[int]) -> Trace:
    return Trace("t", np.array(prompts, np.int64), np.ones(len(prompts), np.int64))


@given(lengths, alphabets, seeds)
def test_no_two_prompts_share_their_first_block(prompts: list[int], ids: range, seed: int) -> None:
    made = TokenPrompts(trace_of(prompts), seed, ids)
    rows = [made.ids(row) for row in range(len(prompts))]
    warm = [made.warmup(number, length) for number, length in enumerate(prompts)]
    assert [len(one) for one in rows] == [len(one) for one in warm] == prompts
    assert all(ids.start <= one.min() and one.max() < ids.stop for one in rows + warm)
    assert len({one[:BLOCK].tobytes() for one in rows + warm}) == 2 * len(prompts)
    assert not {int(one[0]) for one in rows} & {int(one[0]) for one in warm}


@given(st.integers(16, 300), seeds, st.integers(1, 10**9), st.data())
def test_numbers_open_differently_however_many_there_are(
    symbols: int, seed: int, rows: int, data: st.DataObject
) -> None:
    draws = Draws("00", seed, symbols, rows=rows, blocks=rows)
    one = data.draw(st.integers(0, rows - 1))
    other = data.draw(st.one_of(st.just((one + 1) % rows), st.integers(0, rows - 1)))
    for kind in ("row", "block"):
        depth = draws.depth(kind)
        assert depth <= BLOCK
        same = np.array_equal(draws.draw(kind, one, depth), draws.draw(kind, other, depth))
        assert same == (one == other)


@st.composite
def hashed(draw: st.DrawFn) -> tuple[list[int], list[list[int]], int]:
    size = draw(st.integers(1, 24))
    ids = draw(st.lists(st.lists(st.integers(0, 4), max_size=5), min_size=2, max_size=8))
    # Each prompt ends within its last block or goes on beyond it.
    prompts = [max(1, len(one) * size - draw(st.integers(0, size - 1)) + draw(st.integers(0, 9))) for one in ids]
    prompts = [max(length, (len(one) - 1) * size + 1) for length, one in zip(prompts, ids, strict=True)]
    return prompts, ids, size


@given(hashed(), seeds)
def test_prompts_share_what_their_hash_ids_share(case: tuple[list[int], list[list[int]], int], seed: int) -> None:
    prompts, ids, size = case
    made = TokenPrompts(trace_of(prompts), seed, range(1000, 60_000), blocks=Blocks(ids, size))
    rows = [made.ids(row) for row in range(len(prompts))]
    assert [len(one) for one in rows] == prompts
    for a in range(len(rows)):
        for b in range(a):
            common = next((n for n, pair in enumerate(zip(ids[a], ids[b], strict=False)) if pair[0] != pair[1]), None)
            shared = min(len(ids[a]), len(ids[b])) if common is None else common
            n = min(prompts[a], prompts[b])
            differ = np.flatnonzero(rows[a][:n] != rows[b][:n])
            assert (int(differ[0]) if len(differ) else n) == min(shared * size, n)
