"""ISJL online: no request starts where it would differ by more than α from one that runs (arXiv 2608.02244).

All that run advance together, so two requests that decode side by side keep their distance in tokens for ever:
a bound on it is a rule of admission alone, and holds whatever the lengths turn out to be. Lengths only say whom
to start: the longest first, and shorts while a slot waits for its long one ("insert short jobs with limit").
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush, merge
from itertools import islice
from math import floor

from policies.core import DECODE, MIXED, UNLIMITED, Phase, PolicyState, StepPlan, View, Waiting
from policies.online.orders import UNKNOWN, expected
from policies.online.shelf import Entry, Place, Shelf

# Requests looked at for one that passes: where the longest so many fail, the slot stays empty for this step.
LOOK = 32
PREFILL = StepPlan(Phase.PREFILL, UNLIMITED)


@dataclass(frozen=True, slots=True)
class GuardOptions:
    """What decides ISJL.

    `alpha` is the largest distance, tokens; `kv` measures it in KV footprint (prompt and output), else in output
    tokens. Shorts go before a leader for at most `plan`·α steps. A request that has waited for more than
    `max_wait` decode steps goes before all others (None: never). `lenient` starts a leader that has missed its
    time. `exclusive` stops decoding during prefill.
    """

    alpha: int
    kv: bool = False
    plan: float = 0.7
    max_wait: int | None = None
    lenient: bool = False
    exclusive: bool = False


@dataclass(slots=True, eq=False)
class _Slot:
    """A slot that is reserved for a leader, to start by the clock `deadline`."""

    leader: Entry
    deadline: int


class Guarded:
    """The waiting queue of ISJL: it looks before each step, and within the step counts those that start.

    A batch opens when nothing runs: the longest requests above α, one a slot, become leaders with a slot reserved
    until a deadline. A reserved slot takes the longest short that ends in time, else its leader starts; a leader
    whom the guard lets in no more goes back. Any other slot takes the longest that passes. Preempted requests go
    before all as far as the guard lets them, and one that is overdue lets nobody past.
    """

    __slots__ = (
        "_all",
        "_arrived",
        "_bottom",
        "_budget",
        "_busy",
        "_decodes",
        "_empty",
        "_entries",
        "_free",
        "_front",
        "_near",
        "_next",
        "_number",
        "_planned",
        "_reserved",
        "_short_in",
        "_token_budget",
        "_top",
        "clock",
        "options",
    )

    def __init__(self, options: GuardOptions) -> None:
        self.options = options
        self.clock = 0  # steps so far by which those that run advanced
        self._planned = floor(options.plan * options.alpha + 1e-9)  # 0.29 · 100 is 28.999… in doubles
        self._number = 0
        self._entries: dict[Hashable, Entry] = {}  # all that wait
        self._front: list[Entry] = []  # preempted, the latest last
        self._arrived: deque[Entry] = deque()  # in order of arrival, some that no longer wait among them
        self._all = Shelf()
        self._near: dict[int, Shelf] = {}  # kv: the same entries by the size of their prompt
        self._reserved: list[_Slot] = []  # by deadline
        self._busy: list[tuple[int, int, _Slot]] = []  # with a short in it: a heap by the clock when that may end
        # The step to come, as far as it is filled.
        self._free = self._budget = self._decodes = self._token_budget = 0
        self._empty = False
        self._top: int | None = None  # the largest count after the step of those that run; None: nothing does
        self._bottom = 0  # and the smallest
        self._next: Entry | None = None
        self._short_in: _Slot | None = None  # the reserved slot that `_next` would go into

    def look(self, view: View) -> None:
        """Sees what runs before a step; `peek` and `pop` then speak of this step."""
        self._next = None
        partials = view.partials()
        held = view.decoding + len(partials)
        while self._busy and (self._busy[0][0] <= self.clock or not held):
            insort(self._reserved, heappop(self._busy)[2], key=lambda slot: slot.deadline)
        self._empty = not held
        self._free = view.slots - held
        self._budget = 0
        if self._free <= 0 or not self._entries:
            return
        options = self.options
        decodes = 0 if options.exclusive else view.decoding
        self._token_budget = view.token_budget
        # What a partly computed prompt leaves; where it leaves something it is complete after this step.
        self._budget = view.token_budget - decodes - sum(one.left for one in partials)
        self._decodes = held
        starts = [self._start(one.prompt_tokens, one.generated) for one in partials]
        if view.decoding:
            counts = view.footprints() if options.kv else view.ages()
            ticks = 0 if options.exclusive else 1
            starts += [counts[0] + ticks, counts[-1] + ticks]
        self._top = max(starts, default=None)
        self._bottom = min(starts, default=0)

    # What the engine calls.

    def push(self, one: Waiting) -> None:
        """A request has arrived."""
        entry = self._entry(one)
        if self.options.max_wait is not None:
            self._arrived.append(entry)
        self._shelve(entry)

    def push_front(self, one: Waiting) -> None:
        """A request was preempted."""
        entry = self._entry(one)
        entry.place = Place.FRONT
        self._front.append(entry)
        self._next = None

    def peek(self, view: View) -> Waiting | None:
        """Who starts in this step; None where nobody may."""
        if self._next is None:
            self._next = self._choose()
        return None if self._next is None else self._next.one

    def pop(self, view: View) -> Waiting:
        """Takes out whom `peek` named, and counts it among those that run."""
        one = self.peek(view)
        entry, slot = self._next, self._short_in
        assert one is not None
        assert entry is not None
        self._take_out(entry)
        if slot is not None:
            self._reserved.remove(slot)
            heappush(self._busy, (self.clock + self._stay(entry, one.low or 1), entry.number, slot))
        self._free -= 1
        self._decodes += 1
        if entry.tokens <= self._budget:
            top = self._top
            self._bottom = entry.start if top is None else min(self._bottom, entry.start)
            self._top = entry.start if top is None else max(top, entry.start)
        # A prompt that does not fit ends the step's admissions.
        self._budget = max(0, self._budget - entry.tokens)
        return one

    def remove(self, request: Hashable) -> None:
        """A waiting request was aborted."""
        self._take_out(self._entries[request])

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Waiting]:
        slots = sorted([*self._reserved, *(slot for _, _, slot in self._busy)], key=lambda slot: slot.deadline)
        for entry in (*reversed(self._front), *(slot.leader for slot in slots), *self._all.longest(UNKNOWN)):
            yield entry.one

    # Who is where.

    def _start(self, prompt_tokens: int, generated: int) -> int:
        """The count after the step that completes a prefill, which gives a token."""
        return generated + 1 + (prompt_tokens if self.options.kv else 0)

    def _entry(self, one: Waiting) -> Entry:
        self._number += 1
        tokens = one.prompt_tokens + one.generated
        start = self._start(one.prompt_tokens, one.generated)
        entry = self._entries[one.request] = Entry(one, expected(one), tokens, start, self.clock, self._number)
        return entry

    def _key(self, prompt_tokens: int) -> int:
        # A few keys span what the guard lets in, and most with one of them pass it.
        return prompt_tokens // (self.options.alpha // 3 + 1)

    def _shelve(self, entry: Entry, ahead: bool = False) -> None:
        entry.place = Place.SHELF
        self._all.add(entry, ahead)
        if self.options.kv:
            self._near.setdefault(self._key(entry.one.prompt_tokens), Shelf()).add(entry, ahead)

    def _unshelve(self, entry: Entry) -> None:
        self._all.remove(entry)
        if self.options.kv:
            key = self._key(entry.one.prompt_tokens)
            self._near[key].remove(entry)
            if not self._near[key]:
                del self._near[key]

    def _take_out(self, entry: Entry) -> None:
        """It waits no longer."""
        self._next = self._short_in = None
        del self._entries[entry.one.request]
        if entry.place is Place.SHELF:
            self._unshelve(entry)
        elif entry.place is Place.FRONT:
            self._front.remove(entry)
        elif self._reserved and self._reserved[0].leader is entry:
            del self._reserved[0]
        else:
            self._reserved = [slot for slot in self._reserved if slot.leader is not entry]
            self._busy = [one for one in self._busy if one[2].leader is not entry]
            heapify(self._busy)
        entry.place = Place.GONE

    # Whom to start.

    def _choose(self) -> Entry | None:
        self._short_in = None
        if self._free <= 0 or self._budget <= 0:
            return None
        for entry in reversed(self._front[-LOOK:]):
            if self._passes(entry):
                return entry
        overdue = self._overdue()
        if overdue is not None:
            return overdue if self._passes(overdue) else None
        if self._empty:
            self._empty = False
            if not self._reserved:
                self._open()
        return self._for_reserved() or self._for_others()

    def _overdue(self) -> Entry | None:
        """The request that has waited longest, if that is too long."""
        if self.options.max_wait is None:
            return None
        latest = self.clock - self.options.max_wait
        if self._front and self._front[0].since < latest:
            return self._front[0]
        arrived = self._arrived
        while arrived and arrived[0].place is Place.GONE:
            arrived.popleft()
        return arrived[0] if arrived and arrived[0].since < latest else None

    def _open(self) -> None:
        """Reserves slots: the longest requests above α whose counts at the start are within α of each other."""
        alpha, top, bottom = self.options.alpha, self._top, self._bottom
        leaders: list[Entry] = []
        longest = self._all.longest(UNKNOWN, above=alpha)
        if self.options.kv:
            first = next(longest, None)
            prompt = 0 if first is None else first.one.prompt_tokens
            longest = self._near_prompts(prompt - alpha, prompt + alpha, UNKNOWN, above=alpha)
        for entry in islice(longest, 4 * self._free + LOOK):
            if len(leaders) == self._free:
                break
            high = entry.start if top is None else max(top, entry.start)
            low = entry.start if top is None else min(bottom, entry.start)
            if high - low <= alpha:
                leaders.append(entry)
                top, bottom = high, low
        for entry in leaders:
            assert top is not None
            self._unshelve(entry)
            entry.place = Place.LEADER
            late = alpha - (top - entry.start) - self._delay_when_full(entry)
            after = max(0, min(self._planned, late, leaders[0].length - entry.length))
            self._reserved.append(_Slot(entry, self.clock + after))
        self._reserved.sort(key=lambda slot: slot.deadline)

    def _delay_when_full(self, entry: Entry) -> int:
        """Decode steps that pass during its prefill beside a full batch."""
        if self.options.exclusive:
            return 0
        return -(-entry.tokens // max(1, self._token_budget - self._decodes - self._free)) - 1

    def _for_reserved(self) -> Entry | None:
        """A short for the reserved slot that is due first, else its leader."""
        reserved, missed = self._reserved, list[Entry]()
        found = None
        while reserved and found is None:
            slot = reserved[0]
            found = self._short(min(self._planned, slot.deadline - self.clock))
            if found is not None:
                self._short_in = slot
            elif self._passes(slot.leader) or self.options.lenient:
                found = slot.leader
            else:
                missed.append(slot.leader)
                del reserved[0]
        for entry in reversed(missed):
            self._shelve(entry, ahead=True)
        return found

    def _short(self, room: int) -> Entry | None:
        """The longest that passes and gives its slot back within this many steps of the clock."""
        for entry in self._candidates(room) if room > 0 else ():
            if self._stay(entry, entry.length) <= room and self._passes(entry):
                return entry
        return None

    def _stay(self, entry: Entry, length: int) -> int:
        """Steps of the clock for which it holds a slot; exclusive prefill gives the first token beside the clock."""
        return length - 1 if self.options.exclusive else length + self._delay(entry)[1]

    def _for_others(self) -> Entry | None:
        """The longest that passes, of the shorts first while leaders are still to come."""
        for bound in (self._planned, UNKNOWN) if self._busy else (UNKNOWN,):
            for entry in self._candidates(bound):
                if self._passes(entry):
                    return entry
        return None

    def _candidates(self, bound: int) -> Iterator[Entry]:
        """Some of those that may pass, longest first."""
        top, alpha = self._top, self.options.alpha
        if top is None:
            return islice(self._all.longest(bound), LOOK)
        if not self.options.kv:
            # None on the shelves has a token yet.
            return islice(self._all.longest(bound), LOOK) if top - 1 <= alpha else iter(())
        # Whom only the tokens that others gain during its prefill would let in may be missed.
        return islice(self._near_prompts(top - alpha - 1, self._bottom + alpha - 1, bound), LOOK)

    def _near_prompts(self, least: int, most: int, bound: int, above: int = -1) -> Iterator[Entry]:
        """Those with about these prompts, tokens, and of a length of at most `bound` and more than `above`."""
        keys = range(self._key(max(0, least)), self._key(max(0, most)) + 1)
        near = [self._near[key].longest(bound, above) for key in keys if key in self._near]
        return merge(*near, key=lambda entry: (-entry.length, entry.number))

    def _passes(self, entry: Entry) -> bool:
        """The guard: whether it would be within α of all that run, from its first token on."""
        if self._top is None:
            return True
        alpha = self.options.alpha
        least, most = self._delay(entry)
        return self._top + most - entry.start <= alpha and entry.start - (self._bottom + least) <= alpha

    def _delay(self, entry: Entry) -> tuple[int, int]:
        """The least and most decode steps that come between this step and the one that completes its prefill.

        The engine gives a prompt what those that decode leave of each step's tokens; they may end, but nobody new
        starts before it is complete.
        """
        rest = entry.tokens - self._budget
        if rest <= 0 or self.options.exclusive:
            return 0, 0
        return -(-rest // self._token_budget), -(-rest // max(1, self._token_budget - self._decodes))


class Isjl:
    """Mixed batching, or prefill and decode in turn, with the guarded queue."""

    __slots__ = ("_state", "order")

    def __init__(self, options: GuardOptions) -> None:
        self.order = Guarded(options)
        self._state = PolicyState(mode="EB" if options.exclusive else "MB")

    def plan(self, view: View) -> StepPlan:
        """Admission as the guard allows; in exclusive mode decode when nobody may start."""
        self.order.look(view)
        if not self.order.options.exclusive:
            return MIXED
        return PREFILL if view.prefilling or self.order.peek(view) is not None else DECODE

    def on_steps(self, steps: int, decodes: int, running: int, first_tokens: int) -> None:
        """Counts the steps by which those that run advance: where prefill stops them, decode steps alone."""
        if decodes or (first_tokens and not self.order.options.exclusive):
            self.order.clock += steps

    def on_admit(self, prompt_tokens: int, /) -> None:
        """Nothing to learn."""

    def on_finish(self, output_tokens: int, /) -> None:
        """Nothing to learn."""

    def state(self) -> PolicyState:
        """The mode."""
        return self._state
