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
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if answer.returncode != 0:
        return ()
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.stdout.splitlines()]
    return tuple(Card(*row) for row in rows if len(row) == 3)


def is_cpu(gpu: str) -> bool:
    """Whether `--gpu` names the processor: `cpu`, or a profile file whose name or label begins so."""
    names = [gpu.rpartition("/")[2]]
    if gpu.endswith(".toml"):
        names.append(load_gpu(gpu).label)
    return any(name.lower() == CPU or name.lower().startswith((f"{CPU}-", f"{CPU} ", f"{CPU}.")) for name in names)


def is_here(gpu: str, present: tuple[Card, ...]) -> bool:
    """Whether a GPU named as in `--gpu` (a profile's name, an alias, a profile file) is among the cards present.

    A name counts where whole words of a card's name make it: `h100` is an `NVIDIA H100 PCIe`, `l40` no `L40S`.
    """
    names = {gpu}
    # A card that no profile knows can be measured all the same.
    with contextlib.suppress(UserError):
        profile = load_gpu(gpu)
        names = {profile.name, profile.label, *profile.aliases}
    asked = {"".join(_words(name)) for name in names}
    return any(asked & _runs_of_words(_words(card.name)) for card in present)


def _runs_of_words(words: list[str]) -> set[str]:
    """Every run of words that stand side by side, joined."""
    return {"".join(words[i:j]) for i in range(len(words)) for j in range(i + 1, len(words) + 1)}


def _words(name: str) -> list[str]:
    """The words of a GPU's name in small letters, its maker left out."""
    return [word for word in re.split(r"[^a-z0-9]+", name.lower()) if word not in ("", "nvidia", "geforce")]
