"""What came when: how many tokens each event of an answer brought, and which answers were held back on their way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harness.measure.columns import MISSING, Bools, Requests, integers, nanoseconds
from harness.measure.statistics import Ints

# No engine gives one request tokens faster than this: what comes faster was kept somewhere and let go at once.
FASTEST_NS = 50_000
# With fewer tokens one event may hold most of an answer.
LEAST_TOKENS = 4


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The events after the first of every completed request that brings a list of gaps, end to end, and its first.

    `parent` is each event's place among the requests, `gaps` the time since the event before it, ns, and `tokens` how
    many it brought: as the server told, or the answer's tokens spread evenly. Of each request `first` counts the
    tokens of its first event and `listed` says whether it brings such a list; `held_back` that more than half of its
    tokens came faster than any engine makes them, so that neither its first token's time is known nor any gap.
    """

    parent: Ints
    gaps: Ints
    tokens: Ints
    first: Ints
    listed: Bools
    held_back: Bools

    @classmethod
    def of(cls, requests: Requests, table: Any, real: bool) -> Arrivals:
        """Of the two columns of `records`; nothing is held back in a run that is not `real`."""
        listed, counts, gaps = _lists(requests, table, "token_gaps_s")
        counts[~requests.completed] = 0
        parent = np.repeat(np.arange(len(requests)), counts)
        first, tokens = _tokens(requests, table, listed, counts, parent)
        held_back = np.zeros(len(requests), dtype=np.bool_)
        if real:
            held_back = _held_back(requests, first, counts, parent, gaps, tokens)
        return cls(parent, gaps, tokens, first, listed, held_back)


def has_list(requests: Requests, table: Any) -> Bools:
    """Where a request brings its own list of gaps."""
    listed: Bools = np.asarray(table.column("token_gaps_s").is_valid().to_numpy(), dtype=np.bool_)[requests.order]
    return listed


def share_held_back(requests: Requests, arrivals: Arrivals) -> float | str:
    """Of the answers that are long enough to tell, %; text where there is none."""
    long = requests.completed & (requests.output_tokens >= LEAST_TOKENS)
    if not long.any():
        return f"no answer of {LEAST_TOKENS} tokens or more"
    return 100 * float(np.mean(arrivals.held_back[long]))


def share_foreign(client: Mapping[str, Any]) -> float | str:
    """Of the answers that bear an id, those that bear another's than their request's, %; text where none is echoed."""
    own, other = client.get("echoed"), client.get("foreign")
    if own is None or other is None:
        return "the ids that answers bear were not recorded"
    # One alone may be chance: a server that names all its answers alike.
    return 100 * float(other) / (own + other) if own > 1 else "the server's answers do not bear their request's id"


def share_beyond_usage(client: Mapping[str, Any], requests: Requests) -> float | str:
    """Of the completed answers, those whose events held more tokens than their usage counts, %."""
    beyond, completed = client.get("beyond_usage"), int(np.count_nonzero(requests.completed))
    if beyond is None:
        return "what events held beside their usage was not recorded"
    return 100 * float(beyond) / completed if completed else "no request was completed"


def _lists(requests: Requests, table: Any, name: str) -> tuple[Bools, Ints, Ints]:
    """Where there is a list, how long each is, both in the order of `requests`, and completed ones' values in it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name)
    if not np.array_equal(requests.order, np.arange(len(requests))):
        column = column.take(pa.array(requests.order))
    counts = integers(pc.list_value_length(column))
    of_completed = column.filter(pa.array(requests.completed)) if not requests.completed.all() else column
    flat = pc.list_flatten(of_completed)
    values = nanoseconds(flat) if pa.types.is_floating(flat.type) else integers(flat)
    return np.asarray(column.is_valid().to_numpy(), dtype=np.bool_), counts.copy(), values


def _tokens(requests: Requests, table: Any, listed: Bools, counts: Ints, parent: Ints) -> tuple[Ints, Ints]:
    """The tokens of each request's first event, and of each later one."""
    events, output = counts + 1, requests.output_tokens
    place = np.arange(len(parent)) - (np.cumsum(counts) - counts)[parent] + 1  # of an event in its answer
    spread = listed & requests.completed & (output > events)
    first = np.where(spread, output // events, np.minimum(output, 1))
    wide, of = spread[parent], parent
    by_now, before = (at * output[of] // events[of] for at in (place + 1, place))
    tokens = np.where(wide, by_now - before, 1)
    counted, lengths, event_tokens = _lists(requests, table, "event_tokens")
    lengths[~requests.completed] = 0
    counted &= requests.completed
    if counted.any():
        starts = np.cumsum(lengths) - lengths
        sums = np.zeros(len(requests), dtype=np.int64)
        np.add.at(sums, np.repeat(np.arange(len(requests)), lengths), event_tokens)
        # A list that tells of other events, or of other tokens, is none of this answer's.
        fits = counted & (lengths == events) & (sums == output)
        first[fits] = event_tokens[starts[fits]]
        inside = fits[parent]
        tokens[inside] = event_tokens[(starts[parent] + place)[inside]]
    return first, tokens


def _held_back(requests: Requests, first: Ints, counts: Ints, parent: Ints, gaps: Ints, tokens: Ints) -> Bools:
    """Whether more than half of an answer's tokens came at a rate that no engine has."""
    starts = np.cumsum(counts) - counts

    def since_first(values: Ints) -> Ints:
        total = np.concatenate(([0], np.cumsum(values)))
        since: Ints = total[1:] - total[starts[parent]]
        return since

    later = since_first(tokens)
    at_once = since_first(gaps) < FASTEST_NS * later
    together = first.copy()
    np.maximum.at(together, parent[at_once], (first[parent] + later)[at_once])
    long = requests.completed & (requests.output_tokens >= LEAST_TOKENS) & (requests.first != MISSING)
    held: Bools = long & (2 * together > requests.output_tokens)
    return held
