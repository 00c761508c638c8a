"""The data set's own text as prompts: what the people of ShareGPT, WildChat or LMSYS really wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from workloads.errors import WorkloadError
from workloads.trace import Trace


class DatasetPrompts:
    """The human text of each row of a trace, read again from its files; rows that are not asked for pass by.

    `texts` gives (session, turn) and prompt of every row that the workload's options take. `trace` must still know
    its conversations (session and turn). Raises WorkloadError where it does not, and where the files no longer hold
    a row.
    """

    def __init__(self, trace: Trace, texts: Iterable[tuple[tuple[int, int], str]]) -> None:
        if trace.session is None or trace.turn is None:
            raise WorkloadError(
                f"{trace.name}: prompts from the data set need its own order and no row twice: leave out order=…, "
                "and ask for fewer requests than the file has"
            )
        self._where = list(zip(trace.session.tolist(), trace.turn.tolist(), strict=True))
        wanted = set(self._where)
        self._text: dict[tuple[int, int], str] = {}
        for where, text in texts:
            if where in wanted:
                self._text[where] = text
                if len(self._text) == len(wanted):
                    break
        if missing := wanted - self._text.keys():
            session, turn = min(missing)
            raise WorkloadError(
                f"{trace.name}: conversation {session} has no pair {turn} any more: the data set's files have changed"
            )

    def texts(self, rows: Iterable[int]) -> Iterator[str]:
        """The prompts of many rows, in their order."""
        return (self._text[self._where[row]] for row in rows)

    def warmup(self, number: int, tokens: int) -> str:
        """A warm-up prompt of about `tokens` tokens that no measured prompt begins with."""
        return f"Warm-up request {number} of a benchmark, to be ignored:" + " again" * max(tokens - 16, 0)
