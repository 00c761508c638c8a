"""vLLM's waiting queue in the order of a policy."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from policies.core import Order, TimedView, WaitingRequest
from policies.plugin.asked import AskedPolicy

logger = logging.getLogger(__name__)


class OrderedQueue:
    """A RequestQueue of vLLM: true while somebody may start now, as long as all that wait.

    `num_output_tokens` counts the output of the request that loses its slot at this moment, tokens still on the way
    included; None at any other time.
    """

    def __init__(
        self,
        order: Order,
        asked: AskedPolicy,
        view: TimedView,
        times: Callable[[str], tuple[float, float | None]],
    ) -> None:
        self._order = order
        self._ask = asked.ask
        self._view = view
        self._times = times
        self._requests: dict[Hashable, Any] = {}
        self.num_output_tokens: int | None = None

    def held_back(self) -> bool:
        """Some wait and the order lets nobody start."""
        return bool(self._requests) and self._named() is None

    def _named(self) -> WaitingRequest | None:
        return self._ask("order.peek", self._order.peek, self._view)

    def add_request(self, request: Any) -> None:
        """A request has arrived."""
        self._requests[request.request_id] = request
        waiting = as_waiting(request, None, *self._times(request.request_id))
        self._ask("order.push", self._order.push, waiting)

    def prepend_request(self, request: Any) -> None:
        """A request was preempted, or could not start now."""
        self._requests[request.request_id] = request
        waiting = as_waiting(request, self.num_output_tokens, *self._times(request.request_id))
        self._ask("order.push_front", self._order.push_front, waiting)

    def prepend_requests(self, requests: Iterable[Any]) -> None:
        """`prepend_request` of each, so that the last one is the first."""
        for request in requests:
            self.prepend_request(request)

    def peek_request(self) -> Any:
        """The request that is to start now; IndexError where none may."""
        named = self._named()
        if named is None:
            raise IndexError("nobody may start now")
        return self._requests[named.request_id]

    def pop_request(self) -> Any:
        """Takes out the request that starts now."""
        named = self._ask("order.pop", self._order.pop, self._view)
        return self._requests.pop(named.request_id)

    def remove_request(self, request: Any) -> None:
        """A waiting request was aborted; one that does not wait is passed over."""
        if self._requests.pop(request.request_id, None) is not None:
            self._ask("order.remove", self._order.remove, request.request_id)

    def remove_requests(self, requests: Iterable[Any]) -> None:
        """`remove_request` of each."""
        for request in requests:
            self.remove_request(request)

    def __bool__(self) -> bool:
        named = self._named()
        if named is None:
            return False
        request = self._requests[named.request_id]
        # Its last tokens are on the way from before it was preempted: stock would let others pass it.
        stale = getattr(request, "num_stale_output_tokens", 0) and not getattr(request, "drop_stale_output", False)
        return not stale

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Any]:
        return (self._requests[waiting.request_id] for waiting in self._order)


def as_waiting(
    request: Any, num_output_tokens: int | None = None, arrival_s: float = 0.0, deadline_s: float | None = None
) -> WaitingRequest:
    """A vLLM request as an admission order sees it; its `out_hint` becomes the bounds of its output.

    `num_output_tokens` counts its output where some of it is still on the way.
    """
    low, high = hint_of(request)
    if num_output_tokens is None:
        num_output_tokens = len(request._output_token_ids)
    prompt = request.num_prompt_tokens
    return WaitingRequest(request.request_id, prompt, num_output_tokens, low, high, arrival_s, deadline_s)


def hint_of(request: Any) -> tuple[int | None, int | None]:
    """The output length that the sender expects, tokens: `out_hint` is a number or [low, high]."""
    params = request.sampling_params
    hint = (params.extra_args or {}).get("out_hint") if params is not None else None
    if hint is None:
        return None, None
    pair = hint if isinstance(hint, (list, tuple)) and len(hint) == 2 else (hint, hint)
    try:
        low, high = (int(bound) for bound in pair)
    except (TypeError, ValueError, OverflowError):
        low = high = -1
    if not 0 <= low <= high:
        logger.warning("request %s: out_hint %r is no output length: taken as unknown", request.request_id, hint)
        return None, None
    return low, high
