"""Where a number comes from: machine, software and command line, without secrets and without who ran it."""

from __future__ import annotations

import functools
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import __version__
from harness.core.machine import cores

MASK = "***"

# Packages whose version can change a number.
PACKAGES = ("numpy", "pyarrow", "scipy", "tokenizers")

_SECRET_WORDS = frozenset(
    {"apikey", "auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "header"}
    | {"headers", "key", "keys", "passphrase", "passwd", "password", "secret", "secrets", "token"}
)
# Words that hold one of those and are no secret: an option of ours, and what a tokenizer counts.
_HARMLESS = frozenset({"token-budget", "token-budgets"})
_SECRET_FLAGS = frozenset({"-H"})

_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/@\s]*@)?(?P<rest>[^?#\s]*)(?P<tail>[?#]\S*)?", re.I)
# One sign after the other: in `sharegpt:token=x` the name of the value is `token`.
_ASSIGNED = [re.compile(rf"(?P<name>[A-Za-z_][\w-]*)(?P<sign>\s*{sign}\s*)(?P<value>[^\s,;&]+)") for sign in "=:"]
# No underscore follows in a token, as in a function of that library (hf_hub_download).
_KNOWN_SHAPES = re.compile(
    r"\b(?:hf_(?![a-z]+_)|sk-|ghp_|github_pat_|xox[abp]-)[\w-]{8,}"
    r"|\bBearer\s+\S{6,}|(?<=Authorization: )\S.*",
    re.I,
)


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

    Masked are the values of options, assignments and headers whose name holds a word such as key, token or
    authorization, a URL's user and query, and tokens of known shape: rather too much than too little.
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


def mask(text: str) -> str:
    """A text with `***` for what may be a secret in it, and `~` for the home directory."""

    def mask_assigned(match: re.Match[str]) -> str:
        return match["name"] + match["sign"] + (MASK if is_secret(match["name"]) else match["value"])

    def mask_url(match: re.Match[str]) -> str:
        user = f"{MASK}@" if match["user"] else ""
        tail = f"{match['tail'][0]}{MASK}" if match["tail"] else ""
        return match["scheme"] + user + match["rest"] + tail

    text = _URL.sub(mask_url, _KNOWN_SHAPES.sub(MASK, text))
    head, sign, value = text.partition("=")
    if sign and text.startswith("-"):
        # An option's value may hold an assignment of its own (`--workload=sharegpt:token=x`).
        return f"{head}={MASK}" if is_secret(head) else f"{head}={mask(value)}"
    for pattern in _ASSIGNED:
        text = pattern.sub(mask_assigned, text)
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text


def is_secret(name: str) -> bool:
    """Whether the value of an option or variable of this name may be a secret."""
    plain = re.sub(r"([a-z])([A-Z])", r"\1-\2", name.strip("-")).replace("_", "-").lower()
    # A count of tokens is none, nor is what something costs or takes per token.
    plain = plain.replace("per-token", "")
    return plain not in _HARMLESS and any(word in _SECRET_WORDS for word in plain.split("-"))


def scrub(value: Any) -> Any:
    """JSON values with every text in them masked, and `***` for what stands under a secret's name."""
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, dict):
        return {
            name: MASK if isinstance(inner, str) and is_secret(str(name)) else scrub(inner)
            for name, inner in value.items()
        }
    if isinstance(value, list | tuple):
        return [scrub(item) for item in value]
    return value


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
