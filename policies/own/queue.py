"""A user's waiting queue: what it names must wait, and what waits is never lost."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any, NoReturn, Protocol, TypeVar

from policies.core import Order, View, WaitingRequest

Answer = TypeVar("Answer")


class Asking(Protocol):
    """Whoever asks a policy and tells of its mistakes."""

    def ask(self, question: str, method: Callable[..., Answer], *args: Any) -> Answer:
        """The answer."""

    def fail(self, what: str) -> NoReturn:
        """A mistake."""

    def seen(self, view: View) -> View:
        """What the policy sees of an engine's view."""


class CheckedOrder:
    """The order of a user's policy, and beside it all that waits, by id."""

    def __init__(self, order: Order, asking: Asking) -> None:
        self._order = order
        self._asking = asking
        self._waiting: dict[Hashable, WaitingRequest] = {}
        self._named: WaitingRequest | None = None  # by the last peek

    def push(self, request: WaitingRequest) -> None:
        """A request has arrived."""
        self._waiting[request.request_id] = request
        self._asking.ask("order.push", self._order.push, request)

    def push_front(self, request: WaitingRequest) -> None:
        """A request was preempted."""
        self._waiting[request.request_id] = request
        self._asking.ask("order.push_front", self._order.push_front, request)

    def peek(self, view: View) -> WaitingRequest | None:
        """The request that is to start now; None where none may."""
        named = self._asking.ask("order.peek", self._order.peek, self._asking.seen(view)) if self._waiting else None
        self._named = None if named is None else self._known(named, "peek")
        return self._named

    def pop(self, view: View) -> WaitingRequest:
        """Takes out what `peek` named."""
        named = self._known(self._asking.ask("order.pop", self._order.pop, self._asking.seen(view)), "pop")
        if self._named is not None and named.request_id != self._named.request_id:
            self._asking.fail("names one request in order.peek and takes out another in order.pop")
        del self._waiting[named.request_id]
        return named

    def remove(self, request_id: Hashable) -> None:
        """A waiting request was aborted."""
        self._waiting.pop(request_id, None)
        self._asking.ask("order.remove", self._order.remove, request_id)

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[WaitingRequest]:
        listed: list[WaitingRequest] = self._asking.ask("order.__iter__", list, self._order)
        if len(listed) != len(self._waiting):
            self._asking.fail(f"lists {len(listed)} waiting requests in its order, {len(self._waiting)} wait")
        return iter(self._known(request, "__iter__") for request in listed)

    def _known(self, named: WaitingRequest, question: str) -> WaitingRequest:
        known = self._waiting.get(getattr(named, "request_id", None))
        if known is None:
            self._asking.fail(f"names a request in order.{question} that does not wait")
        return known
