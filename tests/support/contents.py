"""The tokens of every prompt and answer, one by one: what two blocks that are the same really hold."""

from __future__ import annotations

from itertools import count

from workloads.core.trace import Trace


def tokens_of(trace: Trace, sessions: bool) -> list[list[int]]:
    """For each row its prompt and then its answer; no token comes twice but where the content is the same."""
    fresh = count()
    texts: dict[int, list[int]] = {}
    made: dict[int, list[int]] = {}
    rows = range(len(trace))
    if sessions:
        assert trace.session is not None
        assert trace.turn is not None
        session, turn = trace.session.tolist(), trace.turn.tolist()
        rows = sorted(rows, key=lambda row: (session[row], turn[row], row))  # type: ignore[assignment] # a list for a range
    last = -1
    for row in rows:
        tokens: list[int] = []
        prompt = int(trace.prompt_tokens[row])
        if sessions and last >= 0 and session[last] == session[row] and turn[last] < turn[row]:
            tokens += made[last]
        elif trace.blocks is not None:
            for one in trace.blocks.ids[row]:
                tokens += texts.setdefault(one, [next(fresh) for _ in range(trace.blocks.tokens)])
            del tokens[prompt:]
        assert len(tokens) <= prompt
        tokens += [next(fresh) for _ in range(prompt + int(trace.output_tokens[row]) - len(tokens))]
        made[row] = tokens
        last = row
    return [made[row] for row in range(len(trace))]
