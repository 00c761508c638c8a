"""What the plain oracle knows of a request, tells of a step, and counts of a run."""

from __future__ import annotations

from dataclasses import dataclass, field

MIXED, PREFILL, DECODE = 0, 1, 2
LENGTH, TOO_LONG = 0, 2


@dataclass(slots=True, eq=False)
class Request:
    """A request and where it stands; `to_prefill` is what its last admission has to compute, tokens."""

    row: int
    prompt: int
    asked: int
    due: int
    to_prefill: int
    computed: int = 0
    blocks: int = 0
    preemptions: int = 0
    done: int = -1
    finish: int = LENGTH
    seen: bool = False  # has held a slot before
    table: list[int] = field(default_factory=list)  # its blocks by number, where there is a prefix cache
    found: int = 0  # tokens that the prefix cache had when it was first admitted
    token_times: list[int] = field(default_factory=list)

    @property
    def output(self) -> int:
        return len(self.token_times)

    @property
    def prefilling(self) -> bool:
        return self.computed < self.to_prefill

    @property
    def context(self) -> int:
        """Tokens known: the prompt and what came out so far."""
        return self.prompt + self.output


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step's integers, named as in harness/records.py, ns and tokens."""

    t: int
    duration: int
    phase: int
    prefill_tokens: int
    decode_requests: int
    running: int
    waiting: int
    preempted: int
    kv_tokens: int
    producing: int
    generated_sum: int
    generated_min: int
    generated_max: int
    footprint_sum: int
    footprint_min: int
    footprint_max: int


@dataclass(slots=True)
class Counts:
    """What happened in a run, to show that a test has seen it happen."""

    steps: int = 0
    preemptions: int = 0
    chunked: int = 0  # admissions whose prompt did not fit the step's budget
    rejected: int = 0
    watermark_held: int = 0  # admissions that the watermark alone put off
    starved_chunks: int = 0  # prompts under way that found no block
    empty_prefills: int = 0  # prefill steps that came back empty and decoded instead
    starved_prefills: int = 0  # of these, the ones whose chunk found no block
    held_back: int = 0  # times that an order named nobody though some waited
    hits: int = 0  # admissions that found something in the prefix cache
    hit_tokens: int = 0
    own_hits: int = 0  # of these, preempted requests
    whole_hits: int = 0  # of these, all full blocks but the one that must be computed again
    evictions: int = 0
    duplicates: int = 0  # blocks named as another is already
