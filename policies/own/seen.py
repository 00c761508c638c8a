"""What a user's policy sees of an engine: what the protocol says, and nothing behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policies.core import PartialPrefill, TimedView, WaitingRequest


class Seen:
    """The counts of an engine's view as of the last `look`, and the rest as asked for.

    An engine's own view may hold what no scheduler can know, such as how long an answer will be.
    """

    __slots__ = (
        "__view",
        "block_size",
        "decoding",
        "now_s",
        "prefilling",
        "slots",
        "token_budget",
        "total_blocks",
        "waiting",
        "watermark_blocks",
    )

    def __init__(self, view: TimedView) -> None:
        self.__view = view
        self.slots = view.slots
        self.token_budget = view.token_budget
        self.block_size = view.block_size
        self.total_blocks = view.total_blocks
        self.watermark_blocks = view.watermark_blocks
        self.look()

    def look(self) -> None:
        """Takes the counts anew."""
        view = self.__view
        self.waiting, self.prefilling, self.decoding = view.waiting, view.prefilling, view.decoding
        self.now_s = view.now_s

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds at this moment."""
        return self.__view.free_blocks

    def waiting_tokens(self) -> Iterator[int]:
        """Tokens to prefill of each waiting request, first come first."""
        return self.__view.waiting_tokens()

    def waiting_requests(self) -> Iterator[WaitingRequest]:
        """The requests in the queue, in its order."""
        return self.__view.waiting_requests()

    def num_output_tokens(self) -> Sequence[int]:
        """Output tokens so far of each decoding request, descending."""
        return self.__view.num_output_tokens()

    def footprints(self) -> Sequence[int]:
        """Prompt plus output tokens so far of each decoding request, descending."""
        return self.__view.footprints()

    def partial_prefills(self) -> Sequence[PartialPrefill]:
        """The requests whose prompts are partly computed, in order of admission."""
        return self.__view.partial_prefills()
