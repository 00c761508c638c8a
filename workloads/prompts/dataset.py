"""The data set's own text as prompts: what the people of ShareGPT, WildChat or LMSYS really wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workloads.core.errors import WorkloadError
from workloads.core.trace import Trace
from workloads.text.chat_template import Message

# A text, or the messages of a conversation up to the turn that is asked.
Prompt = str | list[Message]


def places(trace: Trace) -> list[tuple[int, int]]:
    """Where each row's text stands: (conversation, pair), of LongBench (record, piece).

    Raises WorkloadError for a trace that no longer knows.
    """
    if trace.name == "longbench" and trace.ids is not None:
        return [(int(record), int(piece)) for record, _, piece in (id_.partition("-") for id_ in trace.ids)]
    if trace.session is not None and trace.turn is not None:
        return list(zip(trace.session.tolist(), trace.turn.tolist(), strict=True))
    raise WorkloadError(
        f"{trace.name}: prompts from the data set need its own order and no row twice: leave out order=…, "
        "and ask for fewer requests than the file has"
    )


class DatasetPrompts:
    """The human text of each row of a trace, read again from its files; rows that are not asked for pass by.

    `texts` gives place and prompt of every row that the workload's options take. Raises WorkloadError where the
    trace no longer knows its places (see `places`), and where the files no longer hold a row.
    """

    def __init__(self, trace: Trace, texts: Iterable[tuple[tuple[int, int], Prompt]]) -> None:
        self._where = places(trace)
        wanted = set(self._where)
        self._text: dict[tuple[int, int], Prompt] = {}
        for where, text in texts:
            if where in wanted:
                self._text[where] = text
                if len(self._text) == len(wanted):
                    break
        missing = wanted - self._text.keys()
        if missing:
            first, second = min(missing)
            raise WorkloadError(f"{trace.name}: row {first}-{second} is not there any more: the files have changed")

    def texts(self, rows: Iterable[int]) -> Iterator[Prompt]:
        """The prompts of many rows, in their order."""
        return (self._text[self._where[row]] for row in rows)

    def warmup(self, number: int, tokens: int) -> str:
        """A warm-up prompt of about `tokens` tokens that no measured prompt begins with."""
        return f"Warm-up request {number} of a benchmark, to be ignored:" + " again" * max(tokens - 16, 0)
