"""What a user may set of the mock server."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError

FAIL_KINDS = ("500", "429", "cut", "errevent")


@dataclass(frozen=True, slots=True)
class MockOptions:
    """How the server behaves; UserError, one line, for a value that cannot be.

    Token j of an answer is due `ttft_ms + j·itl_ms` after the request got its slot, times a factor a request within
    1 ± `jitter` that `seed` and the sequence number decide. `port` 0 takes a free one, `slots` 0 and `fail_every` 0
    mean none, `eos_after` is where an answer ends of itself (0: never) unless `ignore_eos`. `tokenizer` counts text
    prompts (see workloads/text/tokenizer.py); without one a token is four bytes.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    ttft_ms: float = 50.0
    itl_ms: float = 20.0
    jitter: float = 0.0
    seed: int = 0
    tokens_per_chunk: int = 1
    role_early: bool = False
    fail_every: int = 0
    fail_kind: str = "500"
    text: str = " the"
    log: Path | None = None
    model: str = "mock"
    tokenizer: str = ""
    slots: int = 0
    eos_after: int = 0
    max_model_len: int = 131_072
    kv_tokens: int = 1_000_000

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise UserError(f"--port {self.port}: give a port from 0 (any free one) to 65535")
        for name, value in (("ttft", self.ttft_ms), ("itl", self.itl_ms)):
            if not (math.isfinite(value) and value >= 0):
                raise UserError(f"--{name} {value:g}: give milliseconds, 0 or more")
        if not 0 <= self.jitter <= 1:
            raise UserError(f"--jitter {self.jitter:g}: give a share from 0 to 1")
        at_least = {"seed": 0, "fail_every": 0, "slots": 0, "eos_after": 0, "tokens_per_chunk": 1}
        for name, least in (at_least | {"max_model_len": 2, "kv_tokens": 1}).items():
            if getattr(self, name) < least:
                raise UserError(f"--{name.replace('_', '-')} {getattr(self, name)}: give {least} or more")
        if self.fail_kind not in (*FAIL_KINDS, "mix"):
            raise UserError(f"--fail-kind {self.fail_kind}: give one of {', '.join(FAIL_KINDS)}, mix")
        for name in ("text", "model", "host"):
            if not getattr(self, name):
                raise UserError(f"--{name}: give at least one character")

    def fail_of(self, seq: int) -> str:
        """How the request with this sequence number is to fail, empty where it is not."""
        if not self.fail_every or seq % self.fail_every != self.fail_every - 1:
            return ""
        return FAIL_KINDS[seq // self.fail_every % len(FAIL_KINDS)] if self.fail_kind == "mix" else self.fail_kind
