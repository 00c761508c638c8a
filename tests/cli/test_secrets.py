"""A key that the server repeats wherever it can stands nowhere afterwards: no output, no file, no path, no cell."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.support.commands import Bench
from tests.support.drive_servers import event, good, streamed
from tests.support.raw_server import json_answer, plain, raw_server

KEY, HEADER = "CANARY-key-Zq9x7WvUT3rPLmN8", "canary.header:7f3Kd0Qw2xYz"
# Of a secret any piece so long is a leak.
PIECE = 12


def repeated(number: int, tokens: int) -> bytes:
    """An answer of the server, well and in each odd way in turn, that says what it was sent."""
    said = f"key {KEY}, {KEY.lower()}, Bearer {KEY}, x-api-key: {HEADER}, http://user:{KEY}@host/?key={HEADER}"
    # So that a cut of the line falls into a secret.
    long = "x" * (480 + number % 100) + said
    match number % 6:
        case 0:
            return json_answer({"error": {"message": said}}, "401 Unauthorized")
        case 1:
            return json_answer({"error": {"message": long}}, "500 Internal Server Error")
        case 2:
            return streamed(event({"error": {"message": long}}))
        case 3:
            return plain(said.encode(), "503 Service Unavailable").replace(
                b"\r\n", f"\r\nRetry-After: {KEY}\r\n".encode(), 1
            )
        case 4:
            return json_answer({"detail": said, KEY: HEADER})
        case _:
            body = good(tokens).replace(b'"cmpl-0000002a"', json.dumps(KEY).encode())
            return with_header(streamed(body), f"X-Request-Id: {HEADER}")


def with_header(answer: bytes, header: str) -> bytes:
    return answer.replace(b"\r\n", f"\r\n{header}\r\n".encode(), 1)


def places(folder: Path) -> Iterator[tuple[str, str]]:
    """Everything that lies in a folder: names, bytes, and what the tables hold."""
    for path in folder.rglob("*"):
        yield str(path), str(path.relative_to(folder))
        if path.is_file():
            yield str(path), path.read_bytes().decode("latin-1")
        if path.suffix == ".parquet":
            yield f"cells of {path}", json.dumps(pq.read_table(path).to_pylist(), default=str, ensure_ascii=False)


def leaked(text: str) -> set[str]:
    low = text.lower()
    pieces = {one[at : at + PIECE].lower() for one in (KEY, HEADER) for at in range(len(one) - PIECE + 1)}
    return {piece for piece in pieces if piece in low}


def test_what_a_server_repeats_of_a_secret_stands_nowhere(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def answers(what: str, body: bytes) -> Iterable[bytes]:
        match what.split()[1]:
            case "/v1/models":
                yield json_answer({"data": [{"id": "m", "root": f"/models/{KEY}"}]})
            case "/version":
                yield json_answer({"version": f"1 {KEY}"})
            case "/metrics":
                yield plain(f'vllm:num_requests_running{{key="{KEY}"}} 1\n{HEADER} 2\n'.encode())
            case "/v1/completions":
                asked.append(body)
                yield repeated(5 if len(asked) < 4 else len(asked), json.loads(body)["max_tokens"])
            case _:
                yield json_answer({"error": KEY}, "404 Not Found")

    monkeypatch.setenv("THE_KEY", KEY)
    monkeypatch.setenv("THE_HEADER", HEADER)
    with raw_server(answers) as server:
        command = ["run", "--url", server.url, "--workload", "synthetic:mu_l=8,mu_o=4"]
        command += ["--requests", "24", "--concurrency", "4", "--vocabulary", "1000", "--out", "runs"]
        done = bench(*command, "--key-env", "THE_KEY", "--header-env", "x-api-key=THE_HEADER", "--warmup", "2")
        assert any(f"x-api-key: {HEADER}".encode() in head for head in server.heads), "it was sent"
    assert len(asked) > 10, done.err
    said = [("what was said", done.out + done.err)]
    for words in (["list", "runs"], ["show", "runs", "--json"], ["show", "runs"]):
        shown = bench(*words)
        said.append((" ".join(words), shown.out + shown.err))
    said += places(tmp_path)
    for kept in ("http_401", "http_500", "http_503", "error_event", "no_tokens"):
        assert any(kept in text for _, text in said), kept
    for where, text in said:
        assert not leaked(text), where
