"""Where a number comes from: machine, software and command line, without secrets and without who ran it."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import __version__
from harness.core.machine import cores
from harness.core.masking import MASK, is_secret, mask

# Packages whose version can change a number.
PACKAGES = ("numpy", "pyarrow", "scipy", "tokenizers")

_SECRET_FLAGS = frozenset({"-H"})


def collect(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Host, software and masked command line (of this process unless given), JSON values only."""
    return {
        "harness": {"version": __version__, "commit": commit()},
        "host": host(),
        "python": platform.python_version(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "command": mask_command(sys.argv if argv is None else argv),
    }


@functools.cache
def host() -> dict[str, Any]:
    """The machine as far as it matters to a number: no name, no user, no path."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu_model(),
        "cores": cores(),
        "memory_bytes": _memory_bytes(),
    }


@functools.cache
def commit() -> str | None:
    """The commit that the harness runs from, `-dirty` where files differ from it; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    # A pattern that no tag matches: one call then gives the bare commit and whether the tree is dirty.
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--match=/"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return described.stdout.strip() or None


def mask_command(argv: Sequence[str]) -> list[str]:
    """The command line with `***` for what may be a secret, `~` for the home directory and no path to itself.

    The word after an option of a secret's name is masked, and in every other word what `mask` finds.
    """
    masked: list[str] = []
    hide_next = False
    for place, word in enumerate(argv):
        if place == 0:
            masked.append(Path(word).name)
        elif hide_next:
            masked.append(MASK)
            hide_next = False
        elif word.startswith("-") and "=" not in word:
            glued = word[:2] in _SECRET_FLAGS and len(word) > 2
            masked.append(word[:2] + MASK if glued else word)
            hide_next = not glued and (word in _SECRET_FLAGS or is_secret(word))
        else:
            masked.append(mask(word))
    return masked


@functools.cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() in ("model name", "Model"):
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None
