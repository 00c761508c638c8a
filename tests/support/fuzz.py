"""Inputs that nobody would write: bytes of well-formed ones, cut, doubled, swapped, and strewn with what hurts."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

# Words that parsers stumble over, as bytes of any format.
ODD = [
    b"", b"\0", b"\n", b"\r\n", b"\r", b",", b'"', b"{", b"}", b"[", b"]", b":", b"-", b"1e999", b"-1", b"NaN",
    b"Infinity", b"null", b"true", b"0x1", b"9" * 25, b"1" * 400, b"18446744073709551616", b"\xff\xfe", b"\xef\xbb\xbf",
    b"\xed\xa0\x80", b"\\ud800", b"\xe2\x80\xae", b"\x1b[2J", b"[" * 300, b'{"a":' * 300, b"a" * 5000, b"%s", b"../..",
    b"data:", b"data: [DONE]\n\n", b"\n\n", b"0\r\n\r\n", b"ffffffffffffffff\r\n",
]  # fmt: skip
VALUES: Sequence[Any] = (
    None, True, False, 0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**13, 0.5, -0.0, 1e308, 1e-308, "", "x",
    "\u202e\x1b[2J", "9" * 60, "a" * 3000, [], [[]], {}, {"a": {}}, ["x", 1], [None], {"": None},
)  # fmt: skip


def spoilt(data: bytes, rng: random.Random) -> bytes:
    """Bytes with one to four changes."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randrange(len(changed) + 1) for _ in range(2))
        match rng.randrange(6):
            case 0:
                changed[at:at] = rng.choice(ODD)
            case 1:
                changed[at : min(end, at + 40)] = rng.choice(ODD)
            case 2:
                del changed[at : min(end, at + 200)]
            case 3:
                changed[at:at] = changed[at : min(end, at + 300)]
            case 4:
                del changed[end:]
            case _:
                for place in range(at, min(end, at + rng.randint(1, 4))):
                    changed[place] = rng.randrange(256)
    return bytes(changed)


def spoilt_json(data: bytes, rng: random.Random) -> bytes:
    """A JSON document of which some values are others, left out, or named otherwise."""
    value = json.loads(data)
    for _ in range(rng.randint(1, 3)):
        places = list(_places(value))
        holder, key = rng.choice(places)
        match rng.randrange(4):
            case 0 if isinstance(holder, dict):
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[str(rng.choice(VALUES))[:50]] = holder.pop(key)
            case _:
                holder[key] = rng.choice(VALUES)
    return json.dumps(value, ensure_ascii=rng.random() < 0.5).encode(errors="surrogatepass")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value where another could stand."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)
