"""A server's /metrics, kept in a run directory while it is driven."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import orjson

from harness.core.outside import Door
from harness.drive.endpoint import Endpoint
from harness.engines.serving.fetch import TIMEOUT_S, fetch

# vLLM's page has about 200 kB.
_MOST_PAGE_BYTES = 4 << 20
# Of all scrapes together; an hour of vLLM's has a tenth of it.
_MOST_KEPT_BYTES = 1 << 30
_TOO_MUCH = "the server's /metrics are more than is kept: the rest of them was left out"


class Scraper:
    """Keeps the server's /metrics in a run directory: whole at start and end, its plain samples every second.

    `metrics-start.txt` and `metrics-end.txt` are as the server wrote them; `metrics.jsonl` has a line a scrape
    with `t_s` (seconds since the start) and every sample but histogram buckets. A server without /metrics
    leaves no file; `notes` say so.
    """

    def __init__(self, endpoint: Endpoint, directory: Path, every_s: float = 1.0) -> None:
        self.notes: list[str] = []
        self._endpoint = endpoint
        self._door = Door.of(endpoint.secrets)
        self._directory = directory
        self._every_s = every_s
        self._kept_bytes = 0
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
        if self._thread.ident is None:
            return
        # A scrape under way ends by its own deadline; what hangs beyond it holds up no run.
        self._thread.join(2 * TIMEOUT_S)
        if self._thread.is_alive() or not self._scrape("metrics-end.txt"):
            self.notes.append("the server's /metrics could not be kept to the end")
        elif self._kept_bytes > _MOST_KEPT_BYTES:
            self.notes.append(_TOO_MUCH)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._scrape(None)

    def _scrape(self, name: str | None) -> bool:
        """Asks once and keeps the samples, and under `name` the whole page; whether both could be had."""
        try:
            status, body = fetch(self._endpoint, f"{self._endpoint.root}/metrics", most_bytes=_MOST_PAGE_BYTES)
        except OSError:
            return False
        if status != 200:
            return False
        text = body.decode(errors="replace")
        if self._door.hides(text):
            text = self._door.mask(text)
            body = text.encode()
        scrape = {"t_s": round(time.monotonic() - self._start, 6), "samples": samples_of(text)}
        line = orjson.dumps(scrape, option=orjson.OPT_APPEND_NEWLINE)
        self._kept_bytes += len(line)
        try:
            if self._kept_bytes <= _MOST_KEPT_BYTES:
                with (self._directory / "metrics.jsonl").open("ab") as file:
                    file.write(line)
            if name is not None:
                (self._directory / name).write_bytes(body)
        except OSError:
            # A full disk ends the run where its rows go; these files are only company.
            return False
        return True


def samples_of(text: str) -> dict[str, float]:
    """The samples of a Prometheus page by name and labels, histogram buckets and what is no number left out."""
    samples: dict[str, float] = {}
    for line in text.splitlines():
        if not line or line.startswith("#") or "_bucket{" in line:
            continue
        name, _, value = line.rpartition(" ")
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(number):
            samples[name] = number
    return samples
