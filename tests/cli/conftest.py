from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.commands import BENCH, Bench, Serve, bench_in
from tests.support.models import write_bytes_tokenizer
from tests.support.warm import Warm


@pytest.fixture(scope="session")
def warm() -> Iterator[Warm]:
    """A process that has imported `bench`."""
    with Warm() as one:
        yield one


@pytest.fixture
def bench(tmp_path: Path, warm: Warm) -> Bench:
    return bench_in(tmp_path, warm)


@pytest.fixture
def bytes_tokenizer(tmp_path: Path) -> Path:
    """A tokenizer that counts bytes."""
    return write_bytes_tokenizer(tmp_path / "tokenizer.json")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """Starts mock servers on free ports and ends them with the test."""
    with ExitStack() as stack:

        def start(*options: str) -> tuple[str, subprocess.Popen[str]]:
            return stack.enter_context(_server(tmp_path, options))

        yield start


@contextmanager
def _server(directory: Path, options: tuple[str, ...]) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    command = [BENCH, "mock-server", "--port", "0", "--ttft", "5", "--itl", "1", *options]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address is not None
        try:
            yield address.group(), process
        finally:
            process.terminate()
