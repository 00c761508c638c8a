"""Attention calls measured in an engine's own environment, into a file that step costs can rest on."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.text import spelled
from harness.engines.serving.environments import Environment
from harness.engines.serving.gpus import cards
from harness.engines.serving.scheduler_process import ProcessDied, SchedulerProcess
from harness.profiles.attention_check import HEADER, calls_in

MODULE = "policies.vllm_attention"
REPEATS = 9
Point = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The axes of a grid, tokens and requests: new tokens of a prompt, tokens before them, decodes, their context."""

    chunks: tuple[int, ...]
    before: tuple[int, ...]
    decodes: tuple[int, ...]
    contexts: tuple[int, ...]

    def points(self) -> list[Point]:
        """Prompts alone, decodes alone, and every mixed call, in an order that no slow change can follow."""
        prompts, decodes = list(product(self.chunks, self.before)), list(product(self.decodes, self.contexts))
        mixed = [(*prompt, *decode) for prompt, decode in product(prompts, decodes)]
        points = [(*prompt, 0, 0) for prompt in prompts] + [(0, 0, *decode) for decode in decodes] + mixed
        random.Random(0).shuffle(points)  # noqa: S311 - an order, no secret
        return points

    @property
    def kv_tokens(self) -> int:
        """What the cache must hold for the largest call, whole blocks for each request."""
        return (max(self.contexts) + 32) * max(self.decodes) + max(self.before) + max(self.chunks) + 64


# Two sizes an axis at least. A GPU takes minutes for the first, two cores for the second.
GRIDS = {
    "cuda": Sizes((128, 512, 2048, 8192), (0, 4096), (1, 8, 32, 128, 256), (256, 1024, 4096, 8192)),
    "cpu": Sizes((64, 256), (0, 256), (1, 4, 16), (64, 256, 1024)),
}


@dataclass(frozen=True, slots=True)
class Heads:
    """What of a model its attention is: query and KV heads on one GPU, their size, and the data type."""

    query_heads: int
    kv_heads: int
    head_size: int
    dtype: str = "bfloat16"


def measure_calls(
    environment: Environment, heads: Heads, sizes: Sizes, out: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Measures what a file lacks of a grid, and returns what the times hold for (also beside the file, as JSON).

    A line is written as soon as it is measured: after a stop the same command goes on. UserError where the file is of
    other heads, another engine or another GPU, or a call does not fit the cache.
    """
    about_path = out.with_suffix(".json")
    about = asdict(heads) | {"vllm": environment.version, "gpu": _gpu(environment)}
    done = _begun(out, about_path, about)
    lacking = [point for point in sizes.points() if point not in done]
    say(f"{len(done):,} calls are there, {len(lacking):,} to measure")
    if not lacking:
        return dict(json.loads(about_path.read_text(encoding="utf-8")))
    process = SchedulerProcess(environment.python, MODULE, "attention")
    try:
        process.ready(lambda: False, lambda _: None)
        process.send(asdict(heads) | {"kv_tokens": sizes.kv_tokens, "repeats": REPEATS, "points": lacking})
        about |= _answer(process)["about"] | {"started_utc": datetime.now(UTC).isoformat(timespec="seconds")}
        about_path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        _write(out, (_answer(process) for _ in lacking), len(lacking), say)
    except ProcessDied as error:
        raise UserError(f"{error}: {out} keeps what was measured, the same command goes on") from None
    finally:
        process.close()
    return about


def _gpu(environment: Environment) -> str:
    names = sorted({card.name for card in cards()})
    return "cpu" if environment.kind == "cpu" else ", ".join(names)


def _begun(out: Path, about_path: Path, about: dict[str, Any]) -> set[Point]:
    """The calls that the file has already; it is begun where there is none."""
    if not out.exists():
        out.write_text(HEADER, encoding="utf-8")
        return set()
    try:
        was = dict(json.loads(about_path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        raise UserError(
            f"{spelled(out)}: is there, and no {about_path.name} tells of what: name another --out"
        ) from None
    for name, value in about.items():
        if was.get(name) != value:
            raise UserError(f"{spelled(out)}: is of {name} {was.get(name)}, not {value}: name another --out")
    _end_line(out)
    return calls_in(out)


def _end_line(out: Path) -> None:
    """Takes away a line that a stop cut short."""
    data = out.read_bytes()
    if not data.endswith(b"\n"):
        out.write_bytes(data[: data.rfind(b"\n") + 1])


def _answer(process: SchedulerProcess) -> dict[str, Any]:
    answer = process.receive()
    if "error" in answer:
        raise ProcessDied(f"vLLM's attention could not be measured: {spelled(str(answer['error']))}")
    return answer


def _write(out: Path, answers: Iterable[dict[str, Any]], count: int, say: Callable[[str], None]) -> None:
    with out.open("a", encoding="utf-8", buffering=1) as file:
        for place, answer in enumerate(answers, 1):
            if "why" in answer:
                raise UserError(f"{answer['point']}: {answer['why']}: name smaller --decodes or --contexts")
            file.write(",".join(map(str, answer["point"])) + f",{answer['time_us']:.3f}\n")
            if place % 20 == 0 or place == count:
                say(f"{place:,} of {count:,}")
