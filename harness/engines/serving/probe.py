"""What a server says of itself before it is driven: that it is ready, which models it serves, its version."""

from __future__ import annotations

import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any

import orjson

from harness.core.count import count_of
from harness.core.errors import UserError
from harness.core.outside import Door
from harness.core.text import shown
from harness.drive.endpoint import Endpoint
from harness.drive.server_said import said_by
from harness.engines.serving.fetch import TIMEOUT_S, fetch

_POLL_S = 0.2
# A name stands in paths, tables and every manifest.
_LONGEST_NAME = 256
# Servers that tell how many tokens an event holds where they are asked, by what they call themselves.
_TELLING = ("vllm", "sglang")


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a server lists: its name, where its files lie, its longest request in tokens, who serves it."""

    name: str
    root: str | None = None
    max_model_len: int | None = None
    owner: str = ""

    @property
    def tells_tokens(self) -> bool:
        """Whether the server is known to tell how many tokens an event holds."""
        return self.owner.lower() in _TELLING


def wait_until_ready(endpoint: Endpoint, timeout_s: float) -> None:
    """Returns when the server answers; UserError where it has not after `timeout_s`.

    A server that knows no /health (404) counts as ready when it answers at all.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            left_s = max(deadline - time.monotonic(), _POLL_S)
            status, _ = fetch(endpoint, f"{endpoint.root}/health", min(TIMEOUT_S, left_s))
            if status < 500:
                return
            why = f"/health says {status}"
        except ssl.SSLError as error:
            raise UserError(
                f"--url {endpoint.url}: no TLS that can be trusted there ({error.reason or error}): "
                "use http:// for a plain server, or name its authority with --ca-file"
            ) from None
        except socket.gaierror as error:
            raise UserError(f"--url {endpoint.url}: no such host ({error.strerror}): correct --url") from None
        except OSError as error:
            why = str(error.strerror or error)
        if time.monotonic() >= deadline:
            raise UserError(
                f"--url {endpoint.url}: not ready after {timeout_s:g} s ({why}): "
                "start the server, or give --ready-timeout"
            )
        time.sleep(_POLL_S)


def models_of(endpoint: Endpoint) -> list[Served]:
    """The models that the server lists; UserError where it lists none, or one that cannot be written down."""
    path, door = f"{endpoint.api}/models", Door.of(endpoint.secrets)
    try:
        status, body = fetch(endpoint, path)
    except OSError as error:
        raise _no_model(endpoint, str(error.strerror or error)) from None
    if status in (401, 403):
        raise UserError(f"--url {endpoint.url}: {refused(endpoint, status, door.line(said_by(body)))}")
    if status != 200:
        said = door.line(said_by(body), 100)
        raise _no_model(endpoint, f"it answers {status}{f': {said}' if said else ''}")
    models = _listed(body)
    if models is None:
        raise _no_model(endpoint, "its answer is not a list of models")
    if not models:
        raise _no_model(endpoint, "its answer lists none")
    for model in models:
        if not model.name.isprintable() or len(model.name) > _LONGEST_NAME:
            raise UserError(
                f"--url {endpoint.url}: {path} names {shown(model.name)}: give --model with a name of one line"
            )
        if door.hides(model.name):
            raise UserError(f"--url {endpoint.url}: {path} names a model by the key that it was sent: give --model")
    return models


def _listed(body: bytes) -> list[Served] | None:
    """The models of an answer; None where it is no list of any."""
    try:
        cards = orjson.loads(body)["data"]
        return [_served(card) for card in cards if isinstance(card["id"], str) and card["id"]]
    except (ValueError, KeyError, TypeError):
        return None


def _served(card: dict[str, Any]) -> Served:
    root, owner = card.get("root"), card.get("owned_by")
    return Served(
        card["id"],
        root if isinstance(root, str) else None,
        count_of(card.get("max_model_len")),
        owner if isinstance(owner, str) else "",
    )


def find_served(endpoint: Endpoint, name: str) -> Served:
    """What the server says of a model by this name, as far as it says anything."""
    try:
        models = _listed(fetch(endpoint, f"{endpoint.api}/models")[1]) or []
    except OSError:
        models = []
    return next((model for model in models if model.name == name), Served(name))


def _no_model(endpoint: Endpoint, why: str) -> UserError:
    return UserError(
        f"--url {endpoint.url}: {endpoint.api}/models names no model ({why}): correct --url, give --path where its "
        "API lies elsewhere, or --model"
    )


def refused(endpoint: Endpoint, status: int, said: str) -> str:
    """What to say and do where the server lets nobody in without its key."""
    told = f"{status}{f': {said}' if said else ''}"
    if not endpoint.secrets:
        return (
            f"the server wants a key ({told}): name its variable with --key-env, or with --header-env where the server "
            "has a header of its own for it"
        )
    ways = ["as `Authorization: Bearer`"] if endpoint.key else []
    ways += [f"in {name}" for name in endpoint.headers]
    return (
        f"a key was sent {' and '.join(ways)}, and the server refuses it ({told}): correct it, or send it in the "
        "header that the server wants, such as --header-env x-api-key=VARIABLE"
    )
