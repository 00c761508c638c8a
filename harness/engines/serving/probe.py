"""What a server says of itself before it is driven: that it is ready, which model it serves, its metrics."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import orjson

from harness.core.errors import UserError
from harness.core.text import shown
from harness.drive.endpoint import Endpoint

_TIMEOUT_S = 5.0
_POLL_S = 0.2


def get(endpoint: Endpoint, path: str, timeout_s: float = _TIMEOUT_S) -> tuple[int, bytes]:
    """Status and body of a GET on the endpoint, past any proxy; OSError where nothing answers."""
    base = urlsplit(endpoint.url).path.rstrip("/").removesuffix("/v1")
    headers = endpoint.added()
    context = endpoint.context()
    connection = (
        http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=timeout_s)
        if context is None
        else http.client.HTTPSConnection(endpoint.host, endpoint.port, timeout=timeout_s, context=context)
    )
    try:
        connection.request("GET", base + path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(1 << 24)
    except http.client.HTTPException as error:
        raise OSError(f"no HTTP answer ({type(error).__name__})") from None
    finally:
        connection.close()


def wait_until_ready(endpoint: Endpoint, timeout_s: float) -> None:
    """Returns when the server answers; UserError where it has not after `timeout_s`.

    A server that knows no /health (404) counts as ready when it answers at all.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            status, _ = get(endpoint, "/health")
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


def models_of(endpoint: Endpoint) -> list[str]:
    """The models that the server lists; UserError where it lists none."""
    names: list[str] = []
    try:
        status, body = get(endpoint, "/v1/models")
        why = f"it answers {status}" if status != 200 else "its answer lists none"
        if status == 200:
            names = [str(card["id"]) for card in json.loads(body)["data"]]
    except OSError as error:
        status, why = 0, str(error.strerror or error)
    except (ValueError, KeyError, TypeError):
        why = "its answer is not a list of models"
    if status in (401, 403):
        raise UserError(
            f"--url {endpoint.url}: the server refuses the key ({status}): name its variable with --key-env"
        )
    if not names:
        raise UserError(f"--url {endpoint.url}: /v1/models names no model ({why}): correct --url, or give --model")
    for name in names:
        if not name.isprintable():
            raise UserError(
                f"--url {endpoint.url}: /v1/models names {shown(name)}: give --model with a name of one line"
            )
    return names


class Scraper:
    """Keeps the server's /metrics in a run directory: whole at start and end, its plain samples every second.

    `metrics-start.txt` and `metrics-end.txt` are as the server wrote them; `metrics.jsonl` has a line a scrape
    with `t_s` (seconds since the start) and every sample but histogram buckets. A server without /metrics
    leaves no file; `notes` say so.
    """

    def __init__(self, endpoint: Endpoint, directory: Path, every_s: float = 1.0) -> None:
        self.notes: list[str] = []
        self._endpoint = endpoint
        self._directory = directory
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._start = time.monotonic()

    def __enter__(self) -> Scraper:
        if self._scrape("metrics-start.txt"):
            self._thread.start()
        else:
            self.notes.append("the server has no /metrics, or they could not be kept: nothing is known of its side")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
            if not self._scrape("metrics-end.txt"):
                self.notes.append("the server's /metrics could not be kept to the end")

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._scrape(None)

    def _scrape(self, name: str | None) -> bool:
        """Asks once and keeps the samples, and under `name` the whole page; whether both could be had."""
        try:
            status, body = get(self._endpoint, "/metrics")
        except OSError:
            return False
        if status != 200:
            return False
        scrape = {"t_s": round(time.monotonic() - self._start, 6), "samples": samples_of(body.decode(errors="replace"))}
        try:
            with (self._directory / "metrics.jsonl").open("ab") as file:
                file.write(orjson.dumps(scrape, option=orjson.OPT_APPEND_NEWLINE))
            if name is not None:
                (self._directory / name).write_bytes(body)
        except OSError:
            # A full disk ends the run where its rows go; these files are only company.
            return False
        return True


def samples_of(text: str) -> dict[str, float]:
    """The samples of a Prometheus page by name and labels, histogram buckets left out."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#") or "_bucket{" in line:
            continue
        name, _, value = line.rpartition(" ")
        try:
            samples[name] = float(value)
        except ValueError:
            continue
    return samples


def version_of(endpoint: Endpoint) -> str | None:
    """The version that the server says it is of; None where it tells none."""
    try:
        status, body = get(endpoint, "/version")
        return str(json.loads(body)["version"]) if status == 200 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
