"""Why vLLM ended, read from the last lines of its log: one line, with what to do where the user can mend it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from harness.core.text import spelled

TAIL_BYTES = 64 << 10
LAST_LINES = 8
# Of a line that is shown, characters.
_LONGEST = 240


@dataclass(frozen=True, slots=True)
class Cause:
    """Why an engine ended; `mend` says that the user can do something about it before running again."""

    line: str
    mend: bool


# The first pattern that an error in the log matches tells; more special ones stand before more general ones.
_KNOWN: tuple[tuple[str, str], ...] = (
    (r"Address already in use|EADDRINUSE", "its port was taken by another process: run again"),
    (
        r"No module named '?vllm'?(?![.\w])|No module named vllm(?![.\w])",
        "there is no vLLM in this Python: `bench engine install cpu|cuda`, or --engine-python",
    ),
    (
        r"unrecognized arguments|error: argument|expected (?:one|at least one) argument|invalid choice",
        "vLLM does not take these flags: correct --engine-args",
    ),
    (
        r"Invalid repository ID or local directory|not a local folder and is not a valid model|Repository Not Found"
        r"|LocalEntryNotFound|OfflineModeIsEnabled|Can't load the configuration of|does not appear to have a file named"
        r"|Repo id must",
        "the model cannot be had: correct --model (a directory with config.json, or an id that can be downloaded)",
    ),
    (
        r"Cannot find any model weights",
        "the model has no weights: correct --model, or, for one of `bench engine tiny-model`, add --engine-args "
        "'--load-format dummy --dtype float32 --enforce-eager'",
    ),
    (
        r"User-specified max_model_len|max_model_len \(\d+\) is greater than|max seq len \(\d+\)"
        r"|KV cache is needed, which is larger than|larger than the available KV cache memory",
        "too long for the model or its KV cache: lower --max-model-len, or raise --kv-tokens",
    ),
    (r"max_num_batched_tokens \(\d+\) must be", "--token-budget does not fit: raise it, or lower --slots"),
    (
        r"[Oo]ut of memory|OutOfMemory|MemoryError|not enough memory|can't allocate memory|Cannot allocate memory"
        r"|less than requested memory|No available memory for the cache blocks"
        r"|Free memory on device|[Ii]nsufficient.{0,20}memory"
        r"|larger than the available memory|exceeds available|No space left on device",
        "out of memory: lower --kv-tokens, --slots or --token-budget, or take a larger GPU",
    ),
    (r"PolicyError", "the policy was refused"),
    (r"PolicyFault", "the policy failed"),
)

# The last line of a traceback, or what an argument parser says; its message may go on for a line or two.
_ERROR = re.compile(r"[\w.]*(?:Error|Exception|Fault)\b:?|\S+: error: ")
_GOES_ON = 3
# Only says that another process failed.
_HOLLOW = re.compile(
    r"RuntimeError: (?:Engine core initialization failed|Worker\w* failed)"
    r"|[\w.]*(?:EngineDeadError|EngineGenerateError)"
)
_PREFIX = re.compile(r"^(?:\([^)]*\)\s*)?(?:[A-Z]+ [\d:. -]+\[[^\]]*\]\s*)?")


def cause_of(log: str, code: int | None) -> Cause:
    """Why the engine with this log ended; `code` is its exit code (128 + N after signal N), None if it runs still."""
    lines = [_PREFIX.sub("", line).strip() for line in log.splitlines() if line.strip()]
    places = [i for i, line in enumerate(lines) if _ERROR.match(line) and not _HOLLOW.match(line)]
    for pattern, cause in _KNOWN:
        for place in places:
            for line in lines[place : place + _GOES_ON]:
                if re.search(pattern, line):
                    return Cause(f"{cause} ({spelled(line, _LONGEST)})", mend=True)
    # The later ones come of the first.
    if places:
        return Cause(spelled(lines[places[0]], _LONGEST), mend=False)
    if any(_HOLLOW.match(line) for line in lines):
        return Cause("its engine process died without a word (killed, as when memory runs out?)", mend=False)
    if code == 128 + 9:
        return Cause("it was killed (SIGKILL), as the kernel does when memory runs out: lower --kv-tokens", mend=False)
    if code is not None and code > 128:
        return Cause(f"it was ended by signal {code - 128}", mend=False)
    last = f"; its log ends with: {spelled(lines[-1], _LONGEST)}" if lines else "; its log is empty"
    return Cause("it does not say why" + last if code is None else f"it ended with code {code}{last}", mend=False)


def tail(path: Path) -> str:
    """The end of a log; empty where there is none."""
    try:
        with path.open("rb") as file:
            return end_of(file)
    except OSError:
        return ""


def end_of(log: IO[bytes]) -> str:
    """The end of a log that is open."""
    size = log.seek(0, os.SEEK_END)
    log.seek(max(size - TAIL_BYTES, 0))
    return log.read().decode("utf-8", "replace")


def last_lines(log: str) -> list[str]:
    """The last lines of a log, for a terminal."""
    return [line[:300] for line in log.splitlines() if line.strip()][-LAST_LINES:]
