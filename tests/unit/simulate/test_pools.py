"""One engine that prefills and one that decodes, worked out by hand: a step takes 1 ms, a KV cache 2 ms on the link."""

from __future__ import annotations

from harness.core.routers import LEAST_LOADED
from harness.engines.pools import prompts_alone
from harness.simulate.arrivals import NEVER, Arrivals
from harness.simulate.batch import BatchLoop
from harness.simulate.limits import too_long
from harness.simulate.pools import Pools
from harness.simulate.router import Desk
from harness.simulate.rows import FINISH_LENGTH, FINISH_TOO_LONG, Rows
from policies.core import PolicyState
from tests.unit.simulate.test_batch import MS, Millisecond, stream_of
from tests.unit.simulate.test_replicas import LIMITS, v1


def test_the_link_takes_one_after_the_other_and_the_first_token_is_the_decoding_engines() -> None:
    # Both prompts in one step to 1 ms. The first is over the link at 3 ms and has its tokens at 4, 5 and 6 ms; the
    # second is over at 5 ms and has its own at 6 and 7 ms. The third fits nowhere, and is told so at once.
    stream = stream_of([(4, 3), (4, 2), (4, 200)], [0, 0, 0])
    refused = too_long(stream.trace, LIMITS)
    states: list[PolicyState] = []

    def prompts(desk: Desk) -> BatchLoop:
        return BatchLoop(prompts_alone(stream), v1(), Millisecond(), LIMITS, desk=desk, states=states)

    def decodes(desk: Desk) -> BatchLoop:
        loop = BatchLoop(stream, v1(), Millisecond(), LIMITS, desk=desk, states=states)
        loop.state.prompts_come_computed = True
        return loop

    pools = Pools(Arrivals(stream, NEVER, refused), refused, LEAST_LOADED, 1, [prompts, decodes], [2 * MS] * 3)
    kept: list[Rows] = []

    def sink(rows: Rows) -> bool:
        kept.append(rows)
        return True

    assert pools.run(sink)
    (rows,) = kept
    assert rows.request_replicas is not None
    assert rows.step_replicas is not None
    assert rows.request_replicas.tolist() == [1, 1, 1]
    columns = [rows.request_column(name).tolist() for name in ("row", "due", "first", "done", "finish")]
    assert sorted(zip(*columns, strict=True)) == [
        (0, 0, 4 * MS, 6 * MS, FINISH_LENGTH),
        (1, 0, 6 * MS, 7 * MS, FINISH_LENGTH),
        (2, 0, -1, 0, FINISH_TOO_LONG),
    ]
    steps = [rows.step_column(name).tolist() for name in ("t", "prefill_tokens", "decode_requests", "producing")]
    assert list(zip(rows.step_replicas.tolist(), *steps, strict=True)) == [
        (0, 0, 8, 0, 0),
        (1, 3 * MS, 1, 0, 1),
        (1, 4 * MS, 0, 1, 1),
        (1, 5 * MS, 1, 1, 2),
        (1, 6 * MS, 0, 1, 1),
    ]
    assert pools.finished == 3
