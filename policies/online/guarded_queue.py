"""ISJL's waiting queue: the longest first, and shorts while a slot waits for its long one (arXiv 2608.02244).

Whom the guard lets in decides fairness; lengths only say whom to start ("insert short jobs with limit").
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice

from policies.core import View, WaitingRequest, floor_share
from policies.online.guard import Guard, GuardOptions
from policies.online.orders import UNKNOWN, expected
from policies.online.shelf import Candidate, Place, Shelves

# Requests looked at for one that passes: where the longest so many fail, the slot stays empty for this step.
LOOK = 32


@dataclass(slots=True, eq=False)
class _ReservedSlot:
    """A slot that is reserved for a leader, to start by the clock `deadline`."""

    leader: Candidate
    deadline: int


class GuardedQueue:
    """An order that looks before each step, and within the step counts those that start.

    A batch opens when nothing runs: the longest requests above α, one a slot, become leaders with a slot reserved
    until a deadline. A reserved slot takes the longest short that ends in time, else its leader starts; a leader
    whom the guard lets in no more goes back. Any other slot takes the longest that passes. Preempted requests go
    before all as far as the guard lets them, and one that is overdue lets nobody past.
    """

    __slots__ = (
        "_arrivals",
        "_busy",
        "_by_arrival",
        "_guard",
        "_next",
        "_opens",
        "_planned_steps",
        "_preempted",
        "_reserved",
        "_shelves",
        "_short_in",
        "_waiting",
        "clock",
        "options",
    )

    def __init__(self, options: GuardOptions) -> None:
        self.options = options
        self.clock = 0  # steps so far by which those that run advanced
        self._planned_steps = floor_share(options.plan, options.alpha)
        self._guard = Guard(options)
        self._arrivals = 0
        self._waiting: dict[Hashable, Candidate] = {}
        self._preempted: list[Candidate] = []  # the latest last
        self._by_arrival: deque[Candidate] = deque()  # some that no longer wait among them
        self._shelves = Shelves(options.alpha, options.kv)
        self._reserved: list[_ReservedSlot] = []  # by deadline
        # With a short in it: a heap by the clock when that may end, then by the short's number.
        self._busy: list[tuple[int, int, _ReservedSlot]] = []
        self._opens = False  # nothing held a slot before this step, and nobody has been chosen for it yet
        self._next: Candidate | None = None
        self._short_in: _ReservedSlot | None = None  # the reserved slot that `_next` would go into

    def look(self, view: View) -> None:
        """Sees what runs before a step; `peek` and `pop` then speak of this step."""
        self._next = None
        partial_prefills = view.partial_prefills()
        self._opens = not (view.decoding or partial_prefills)
        while self._busy and (self._busy[0][0] <= self.clock or self._opens):
            _, _, slot = heappop(self._busy)
            insort(self._reserved, slot, key=_deadline)
        self._guard.look(view, partial_prefills, bool(self._waiting))

    # What the engine calls.

    def push(self, request: WaitingRequest) -> None:
        """A request has arrived."""
        candidate = self._candidate(request)
        if self.options.max_wait is not None:
            self._by_arrival.append(candidate)
        self._shelves.add(candidate)

    def push_front(self, request: WaitingRequest) -> None:
        """A request was preempted."""
        candidate = self._candidate(request)
        candidate.place = Place.FRONT
        self._preempted.append(candidate)
        self._next = None

    def peek(self, view: View) -> WaitingRequest | None:
        """The request that starts in this step; None where none may."""
        if self._next is None:
            self._next = self._choose()
        return None if self._next is None else self._next.request

    def pop(self, view: View) -> WaitingRequest:
        """Takes out what `peek` named, and counts it among those that run."""
        request = self.peek(view)
        candidate, slot = self._next, self._short_in
        assert request is not None
        assert candidate is not None
        self._take_out(candidate)
        if slot is not None:
            self._reserved.remove(slot)
            end = self.clock + self._guard.stay(candidate, request.hint_low or 1)
            heappush(self._busy, (end, candidate.number, slot))
        self._guard.admit(candidate)
        return request

    def remove(self, request_id: Hashable) -> None:
        """A waiting request was aborted."""
        self._take_out(self._waiting[request_id])

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[WaitingRequest]:
        slots = sorted([*self._reserved, *(slot for _, _, slot in self._busy)], key=_deadline)
        leaders = [slot.leader for slot in slots]
        for candidate in (*reversed(self._preempted), *leaders, *self._shelves.longest(UNKNOWN)):
            yield candidate.request

    # Who waits.

    def _candidate(self, request: WaitingRequest) -> Candidate:
        self._arrivals += 1
        prefill_tokens = request.num_prompt_tokens + request.num_output_tokens
        start = self._guard.start(request.num_prompt_tokens, request.num_output_tokens)
        candidate = Candidate(request, expected(request), prefill_tokens, start, self.clock, self._arrivals)
        self._waiting[request.request_id] = candidate
        return candidate

    def _take_out(self, candidate: Candidate) -> None:
        """It waits no longer."""
        self._next = self._short_in = None
        del self._waiting[candidate.request.request_id]
        if candidate.place is Place.SHELF:
            self._shelves.remove(candidate)
        elif candidate.place is Place.FRONT:
            self._preempted.remove(candidate)
        elif self._reserved and self._reserved[0].leader is candidate:
            del self._reserved[0]
        else:
            self._reserved = [slot for slot in self._reserved if slot.leader is not candidate]
            self._busy = [busy for busy in self._busy if busy[2].leader is not candidate]
            heapify(self._busy)
        candidate.place = Place.GONE

    # Whom to start.

    def _choose(self) -> Candidate | None:
        self._short_in = None
        guard = self._guard
        if guard.free_slots <= 0 or guard.budget <= 0:
            return None
        for candidate in reversed(self._preempted[-LOOK:]):
            if guard.passes(candidate):
                return candidate
        overdue = self._overdue()
        if overdue is not None:
            return overdue if guard.passes(overdue) else None
        if self._opens:
            self._opens = False
            if not self._reserved:
                self._open()
        return self._for_reserved() or self._for_others()

    def _overdue(self) -> Candidate | None:
        """The request that has waited longest, if that is too long."""
        if self.options.max_wait is None:
            return None
        latest = self.clock - self.options.max_wait
        if self._preempted and self._preempted[0].since < latest:
            return self._preempted[0]
        by_arrival = self._by_arrival
        while by_arrival and by_arrival[0].place is Place.GONE:
            by_arrival.popleft()
        return by_arrival[0] if by_arrival and by_arrival[0].since < latest else None

    def _open(self) -> None:
        """Opens a batch: reserves a slot for each of its leaders."""
        leaders, top = self._leaders()
        alpha, guard = self.options.alpha, self._guard
        for leader in leaders:
            self._shelves.remove(leader)
            leader.place = Place.LEADER
            in_time = alpha - (top - leader.start) - guard.delay_beside_all(leader)
            steps = max(0, min(self._planned_steps, in_time, leaders[0].expected - leader.expected))
            self._reserved.append(_ReservedSlot(leader, self.clock + steps))
        self._reserved.sort(key=_deadline)

    def _leaders(self) -> tuple[list[Candidate], int]:
        """The longest requests above α whose counts at the start are within α of each other, and the largest count."""
        alpha, free_slots = self.options.alpha, self._guard.free_slots
        longest = self._shelves.longest(UNKNOWN, above=alpha)
        if self.options.kv:
            first = next(longest, None)
            prompt = 0 if first is None else first.request.num_prompt_tokens
            longest = self._shelves.near_prompts(prompt - alpha, prompt + alpha, UNKNOWN, above=alpha)
        leaders: list[Candidate] = []
        top, bottom = self._guard.top, self._guard.bottom
        for candidate in islice(longest, 4 * free_slots + LOOK):
            if len(leaders) == free_slots:
                break
            high = candidate.start if top is None else max(top, candidate.start)
            low = candidate.start if top is None else min(bottom, candidate.start)
            if high - low <= alpha:
                leaders.append(candidate)
                top, bottom = high, low
        return leaders, top or 0

    def _for_reserved(self) -> Candidate | None:
        """A short for the reserved slot that is due first, else its leader."""
        reserved, missed = self._reserved, list[Candidate]()
        chosen = None
        while reserved and chosen is None:
            slot = reserved[0]
            chosen = self._short(min(self._planned_steps, slot.deadline - self.clock))
            if chosen is not None:
                self._short_in = slot
            elif self._guard.passes(slot.leader) or self.options.lenient:
                chosen = slot.leader
            else:
                missed.append(slot.leader)
                del reserved[0]
        for leader in reversed(missed):
            self._shelves.add(leader, ahead=True)
        return chosen

    def _short(self, steps: int) -> Candidate | None:
        """The longest that passes and gives its slot back within this many steps of the clock."""
        guard = self._guard
        for candidate in self._candidates(steps) if steps > 0 else ():
            if guard.stay(candidate, candidate.expected) <= steps and guard.passes(candidate):
                return candidate
        return None

    def _for_others(self) -> Candidate | None:
        """The longest that passes, of the shorts first while leaders are still to come."""
        passes = self._guard.passes
        for bound in (self._planned_steps, UNKNOWN) if self._busy else (UNKNOWN,):
            for candidate in self._candidates(bound):
                if passes(candidate):
                    return candidate
        return None

    def _candidates(self, bound: int) -> Iterator[Candidate]:
        """Some of those that may pass and expect at most `bound` tokens, longest first."""
        top, alpha = self._guard.top, self.options.alpha
        if top is None:
            return islice(self._shelves.longest(bound), LOOK)
        if not self.options.kv:
            # None on the shelves has a token yet.
            return islice(self._shelves.longest(bound), LOOK) if top - 1 <= alpha else iter(())
        # Whom only the tokens that others gain during its prefill would let in may be missed.
        least, most = top - alpha - 1, self._guard.bottom + alpha - 1
        return islice(self._shelves.near_prompts(least, most, bound), LOOK)


def _deadline(slot: _ReservedSlot) -> int:
    return slot.deadline
