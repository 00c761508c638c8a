"""How many tokens a served model knows, asked of its server where its tokenizer cannot be had."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import orjson

from harness.core.count import count_of
from harness.drive.endpoint import Endpoint
from harness.engines.serving.fetch import fetch
from harness.engines.serving.probe import Served

# No model in use knows fewer or more.
_LEAST, _MOST = 256, 1 << 24
_MOST_CONFIG_BYTES = 1 << 20


def vocabulary_of(endpoint: Endpoint, model: Served) -> int | None:
    """By the config.json in the folder that the server names, else by which ids its /detokenize knows; None: neither.

    A folder is looked into where it lies on this machine.
    """
    return _of_config(model.root) or _of_server(endpoint, model.name)


def _of_config(root: str | None) -> int | None:
    path = Path(root or "") / "config.json"
    try:
        if not root or not os.path.isabs(root) or not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with path.open("rb") as file:
            config = orjson.loads(file.read(_MOST_CONFIG_BYTES))
        # Models of several kinds of input keep it with their text's.
        text = config.get("text_config") or {}
        size = count_of(config.get("vocab_size")) or count_of(text.get("vocab_size"))
    except (OSError, ValueError, AttributeError):
        return None
    return size if size is not None and _LEAST <= size <= _MOST else None


def _of_server(endpoint: Endpoint, name: str) -> int | None:
    """The lowest id that a server refuses to turn into text; None where it knows none at all, or refuses none."""

    def knows(token: int) -> bool:
        body = orjson.dumps({"model": name, "tokens": [token]})
        status, _ = fetch(endpoint, f"{endpoint.root}/detokenize", body=body)
        if status not in (200, 400, 422):
            raise OSError(f"/detokenize says {status}")
        return status == 200

    try:
        if not knows(_LEAST - 1) or knows(_MOST):
            return None
        low, high = _LEAST - 1, _MOST  # known, and not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if knows(middle) else (low, middle)
    except OSError:
        return None
    return high
