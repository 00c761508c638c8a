"""What may help where a server answers no request well: the option that fits what it said."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harness.drive.bodies import NEEDED
from harness.drive.endpoint import Endpoint
from harness.engines.serving.probe import refused

# Of fields that an option of its own leaves out.
_OWN_OPTION = {
    "ignore_eos": "--no-ignore-eos",
    "vllm_xargs": "--lengths none",
    "stream_options": "--no-field stream_options --accept no_usage",
}
_BY_NAME = {
    "short": "give --no-ignore-eos where the server ends answers itself",
    "overlong": "give --no-ignore-eos where the server ends answers itself",
    "no_done": "--accept no_done takes answers that have finish_reason and usage without it",
    "no_usage": "--accept no_usage counts their events instead",
}


def remedy_for(error: str, endpoint: Endpoint, fields: Iterable[str]) -> str:
    """The remedy for a failure `name: detail` of a request whose body had these fields; empty where none is known."""
    name, _, said = error.partition(": ")
    if name in ("http_401", "http_403"):
        return refused(endpoint, int(name[5:]), "")
    if name in ("http_404", "http_405"):
        return f"asked was {endpoint.path}: correct --url, or give --path"
    if name.startswith("http_4"):
        if "max_completion_tokens" in said:
            return "--length-field max_completion_tokens sends the length by that name"
        words = set(re.findall(r"\w+", said))
        named = [field for field in fields if field in words and field not in NEEDED]
        if named:
            field = max(named, key=len)
            return f"{_OWN_OPTION.get(field, f'--no-field {field}')} leaves it out"
    if "vocabulary" in said:
        return "give --vocabulary"
    return _BY_NAME.get(name, "")
