"""Showing a site on this machine: its files, nothing else, and no word about strange requests."""

from __future__ import annotations

import http.client
import os
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from harness.pages.serve import _Handler, _Server


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    site = tmp_path / "site"
    (site / "runs").mkdir(parents=True)
    (site / "bare").mkdir()
    (site / "index.html").write_text("first")
    (site / "runs/index.html").write_text("runs")
    (tmp_path / "secret").write_text("secret")
    (site / "bare/index.html").symlink_to(tmp_path / "secret")
    (site / "link").symlink_to(tmp_path / "secret")
    (site / "loop").symlink_to("loop")
    os.mkfifo(site / "pipe")
    with _Server(("127.0.0.1", 0), partial(_Handler, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/", 200),
        ("/index.html?x=1", 200),
        ("/runs", 301),
        ("/runs/", 200),
        ("/%00", 404),
        ("/a%00b", 404),
        ("/%ed%a0%80", 404),
        ("/%ff%fe", 404),
        ("/" + "a" * 5000, 404),
        ("/pipe", 404),
        ("/link", 404),
        ("/loop", 404),
        ("/bare/", 404),
        ("/index.html/", 404),
        ("/../secret", 404),
    ],
)
def test_only_files_of_the_site_are_sent(port: int, path: str, wanted: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert status(port, path) == wanted
    assert capfd.readouterr().err == ""


def test_a_browser_that_goes_away_is_no_news(port: int, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", port)) as one:
        # Closed with a reset, while the server reads.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        one.sendall(b"GET / HTT")
    assert status(port, "/") == 200
    assert capfd.readouterr().err == ""
