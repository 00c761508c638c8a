"""The one mask for secrets: what looks like one, or stands under a secret's name, is in nothing that bench writes."""

from __future__ import annotations

import os
import re
from typing import Any

MASK = "***"

_SECRET_WORDS = frozenset(
    {"apikey", "auth", "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "header"}
    | {"headers", "key", "keys", "passphrase", "passwd", "password", "secret", "secrets", "token"}
)
# Words that hold one of those and are no secret: an option of ours, and what a tokenizer counts.
_HARMLESS = frozenset({"token-budget", "token-budgets"})

# What is a secret by its shape, wherever it stands. No underscore follows in a token, as in a function of that library
# (hf_hub_download).
SHAPES = re.compile(
    r"\b(?:hf_(?![a-z]+_)|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA)[\w-]{8,}"
    r"|(?<![\w-])eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY(?:(?!-----END)[\s\S])*"
    r"|\bBearer\s+\S{6,}|(?<=Authorization: )\S.*",
    re.I,
)

# None of these looks twice at a letter that another start has seen: a text of twice the letters takes twice the time.
_USER = re.compile(r"://[^/@\s]*@")
# Taken whole where it has no query: else its end would be looked for from each of its parts.
_URL = re.compile(r"://[^?#\s]*(?P<tail>[?#]\S+)?")
_SIGN = re.compile(r"(?<!\s)\s*[=:]\s*|^\s+[=:]\s*")
_VALUE = re.compile(r"[^\s,;&]+")
_LONGEST_NAME = 80
_NAME_AT_END = re.compile(r"[A-Za-z_][\w-]*\Z")


def mask(text: str) -> str:
    """A text with `***` for what may be a secret in it, and `~` for the home directory.

    Masked are tokens of known shape, a URL's user and query, and values of options, assignments and headers whose
    name holds a word such as key, token or authorization: rather too much than too little.
    """
    head, sign, _ = text.partition("=")
    if sign and text.startswith("-") and is_secret(head):
        return f"{head}={MASK}"
    text = _USER.sub(f"://{MASK}@", SHAPES.sub(MASK, text))
    text = _without_assigned(_URL.sub(_without_tail, text))
    home = os.path.expanduser("~")
    return text.replace(home, "~") if len(home) > 1 else text


def _without_tail(url: re.Match[str]) -> str:
    """A URL with `***` for its query or fragment."""
    tail = url["tail"]
    return url[0] if tail is None else f"{url[0][: -len(tail)]}{tail[0]}{MASK}"


def _without_assigned(text: str) -> str:
    """A text with `***` for what is assigned to a secret's name: `token=x`, `Authorization: x`."""
    kept, at = [], 0
    sign = _SIGN.search(text)
    while sign:
        name = _NAME_AT_END.search(text, max(at, sign.start() - _LONGEST_NAME), sign.start())
        value = _VALUE.match(text, sign.end()) if name and is_secret(name[0]) else None
        if value:
            kept += [text[at : sign.end()], MASK]
            at = value.end()
        sign = _SIGN.search(text, max(at, sign.end()))
    return "".join((*kept, text[at:]))


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
