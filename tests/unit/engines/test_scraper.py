"""A server's metrics beside a run: kept as far as they are metrics, and never in the run's way."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.drive.endpoint import Endpoint
from harness.engines.serving import scraper as module
from harness.engines.serving.scraper import Scraper, samples_of
from tests.support.raw_server import Answers, RawServer, plain, raw_server, raw_server_of

KEY = "canary-key-1234567890"


def test_a_page_is_kept_at_the_start_each_second_and_at_the_end(tmp_path: Path) -> None:
    enough = threading.Event()

    def make(server: RawServer) -> Answers:
        def answers(_: str, __: bytes) -> list[bytes]:
            if len(server.asked) > 4:
                enough.set()
            return [plain(b'# HELP x\nx{a="b"} 1\nh_bucket{le="1"} 2\n')]

        return answers

    with raw_server_of(make) as server:
        with Scraper(Endpoint(server.url + "/v1"), tmp_path, every_s=0.01) as kept:
            assert enough.wait(60)
        assert not kept.notes
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) >= 4
    assert all(line["samples"] == {'x{a="b"}': 1.0} for line in lines)
    assert set(server.asked) == {"GET /metrics"}
    for when in ("start", "end"):
        assert (tmp_path / f"metrics-{when}.txt").read_text().startswith("# HELP")


@pytest.mark.parametrize("answer", [plain(b"x 1\n", "404 Not Found"), plain(b"x 1\n" * (1 << 21))])
def test_a_server_without_a_page_that_is_kept_leaves_a_note(answer: bytes, tmp_path: Path) -> None:
    with raw_server(lambda _, __: [answer]) as server, Scraper(Endpoint(server.url), tmp_path) as kept:
        pass
    assert "no /metrics" in kept.notes[0]
    assert not list(tmp_path.iterdir())


def test_a_page_that_never_ends_holds_up_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.1)
    begun = threading.Event()

    def make(server: RawServer) -> Answers:
        def answers(_: str, __: bytes) -> Iterator[bytes]:
            if len(server.asked) == 1:
                yield plain(b"x 1\n")
                return
            begun.set()
            yield b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"
            while not server.ended.is_set():
                yield b"a"
                server.wait(0.05)

        return answers

    with raw_server_of(make) as server:
        with Scraper(Endpoint(server.url), tmp_path, every_s=0.01) as kept:
            assert begun.wait(60)
        assert "could not be kept to the end" in kept.notes[0]


def test_a_key_in_the_page_is_kept_nowhere(tmp_path: Path) -> None:
    page = f'x{{key="{KEY}",upper="{KEY.upper()}"}} 1\n'.encode()
    with raw_server(lambda _, __: [plain(page)]) as server, Scraper(Endpoint(server.url, key=KEY), tmp_path):
        pass
    for file in tmp_path.iterdir():
        assert KEY not in file.read_text().lower()
    assert (tmp_path / "metrics-end.txt").is_file()


def test_samples_are_numbers() -> None:
    page = 'a 1\nb NaN\nc +Inf\nd -Inf\ne 1e999\nf x\n\ng{h="i j"} 2.5'
    assert samples_of(page) == {"a": 1.0, 'g{h="i j"}': 2.5}
