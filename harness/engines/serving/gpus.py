"""The GPUs in this machine, by what `nvidia-smi` says of them."""

from __future__ import annotations

import contextlib
import functools
import re
import subprocess
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.profiles.files import load_gpu

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU: its name, driver version and memory as the driver tells them."""

    name: str
    driver: str
    memory: str


@functools.lru_cache(maxsize=1)
def cards() -> tuple[Card, ...]:
    """The GPUs of this machine; none where there is no `nvidia-smi` that answers."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    rows = [[part.strip() for part in line.split(",")] for line in done.stdout.splitlines()]
    return tuple(Card(*row) for row in rows if len(row) == 3) if done.returncode == 0 else ()


def is_cpu(gpu: str) -> bool:
    """Whether `--gpu` names the processor: `cpu`, or a profile file whose name or label begins so."""
    names = [gpu.rpartition("/")[2]]
    if gpu.endswith(".toml"):
        names.append(load_gpu(gpu).label)
    return any(name.lower() == CPU or name.lower().startswith((f"{CPU}-", f"{CPU} ", f"{CPU}.")) for name in names)


def is_here(gpu: str, found: tuple[Card, ...]) -> bool:
    """Whether a GPU named as in `--gpu` (a profile's name, an alias, a profile file) is among the cards.

    A name counts where whole words of a card's name make it: `h100` is an `NVIDIA H100 PCIe`, `l40` no `L40S`.
    """
    names = {gpu}
    # A card that no profile knows can be measured all the same.
    with contextlib.suppress(UserError):
        known = load_gpu(gpu)
        names = {known.name, known.label, *known.aliases}
    keys = {"".join(_words(name)) for name in names}
    for card in found:
        words = _words(card.name)
        slices = {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}
        if keys & slices:
            return True
    return False


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("", "nvidia", "geforce")]
