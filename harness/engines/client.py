"""How a server is driven: what a user may set of the client."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Client:
    """How the server is driven; what decides the numbers of it stands in the spec's `client`.

    `prompts` is ids, text (seeded words) or dataset (the data set's own text). `vocabulary` None means the
    tokenizer's, or an assumed one; `tokenizer` as workloads/text/tokenizer.py reads it.
    """

    api: str = "completions"
    prompts: str = "ids"
    ignore_eos: bool = True
    timeout_s: float | None = 3600.0
    first_token_timeout_s: float | None = None
    processes: int = 1
    warmup: int = 4
    retries_429: int = 0
    vocabulary: int | None = None
    tokenizer: str = ""

    def decides(self) -> dict[str, Any]:
        """The part that a comparison must find equal."""
        return {name: value for name, value in dataclasses.asdict(self).items() if name != "processes"}
