"""Qwen's vocabulary from tiktoken's form (token, rank) to a tokenizer.json (tokens, merges)."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

# Raise it when the conversion changes: converted files are cached.
FORMAT = 1

# The rule that cuts text before merging, as in tokenizer.json of Qwen2, Qwen2.5 and Qwen3.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Those that mean the same, with the same number, in every Qwen of this vocabulary.
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def byte_letters() -> list[str]:
    """The printable letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    letters = {byte: chr(byte) for byte in printable}
    letters.update({byte: chr(256 + n) for n, byte in enumerate(others)})
    return [letters[byte] for byte in range(256)]


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts that byte-pair encoding has in hand just before it makes this token."""
    parts = [token[i : i + 1] for i in range(len(token))]
    never = len(ranks)
    joined = [ranks.get(left + right, never) for left, right in itertools.pairwise(parts)]
    while len(parts) > 2:
        at = joined.index(min(joined))
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del joined[at]
        for pair in range(max(at - 1, 0), min(at + 1, len(joined))):
            joined[pair] = ranks.get(parts[pair] + parts[pair + 1], never)
    return parts[0], parts[1]


def convert(tiktoken_file: bytes) -> bytes:
    """The tokenizer.json (UTF-8, the same bytes every time) of a tiktoken vocabulary file."""
    lines = (line.split() for line in tiktoken_file.splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    letters = dict(enumerate(byte_letters()))

    def spell(token: bytes) -> str:
        return token.decode("latin-1").translate(letters)

    ordered = sorted(ranks, key=ranks.__getitem__)
    merges = [[spell(part) for part in _last_merge(token, ranks)] for token in ordered if len(token) > 1]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": len(ranks) + n, "content": t, **flags} for n, t in enumerate(SPECIAL_TOKENS)],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", **byte_level},
            ],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **byte_level},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spell(token): ranks[token] for token in ordered},
            "merges": merges,
        },
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
