"""Inserting shorts, against the plain rule: try every slot, for every short, in order."""

from __future__ import annotations

import random

import pytest

from policies.offline.insertion import Batch, Shorts, into_most_room, into_tightest


def plainly(sizes: list[int], batch: Batch, tightest: bool) -> dict[int, int]:
    """Starts by place: each short, longest first, on the slot with the least (or most) room that takes it."""
    room = list(batch.room)
    closed = {slot for slot in range(len(room)) if slot not in batch.leaders and room[slot] < batch.closes_at}
    starts = {}
    for place, size in enumerate(sizes):
        fitting = [slot for slot in range(len(room)) if slot not in closed and room[slot] >= size]
        if not fitting:
            continue
        slot = min(fitting, key=lambda slot: (room[slot] if tightest else -room[slot], slot))
        starts[place] = batch.origin[slot] - room[slot]
        room[slot] -= size
        if slot not in batch.leaders:
            batch.latest = max(batch.latest, starts[place])
            if room[slot] < batch.closes_at:
                closed.add(slot)
    return starts


@pytest.mark.parametrize("tightest", [True, False])
@pytest.mark.parametrize("seed", range(200))
def test_shorts_go_where_the_plain_rule_puts_them(seed: int, tightest: bool) -> None:
    draw = random.Random(seed)
    slots = draw.randint(1, 6)
    leaders = range(draw.randint(0, slots))
    room = [draw.randint(0, 40) for _ in range(slots)]
    closes_at, latest = draw.randint(0, 12), draw.randint(0, 60)
    batch, plain = (Batch(leaders, list(room), [50] * slots, closes_at, latest) for _ in range(2))
    sizes = sorted((draw.randint(1, 25) for _ in range(draw.randint(0, 14))), reverse=True)
    expected = plainly(sizes, plain, tightest)
    starts = [-1] * len(sizes)
    shorts = Shorts(sizes, 0)
    (into_tightest if tightest else into_most_room)(shorts, batch, starts)
    assert {place: start for place, start in enumerate(starts) if start >= 0} == expected
    assert batch.latest == plain.latest
    assert shorts.left() == [place for place in range(len(sizes)) if place not in expected]
