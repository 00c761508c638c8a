"""A stranger's code has a process of its own, with limits."""

from __future__ import annotations

import os

import pytest

from harness.core.errors import RunFailed
from harness.session.confined import Confines, confined


def told(name: str) -> tuple[str | None, bool]:
    return os.environ.get(name), os.path.exists("mine")


def endless(_: int) -> None:
    while True:
        pass


def greedy(size: int) -> int:
    try:
        return len(bytearray(size))
    except MemoryError:
        return -1


def gone(code: int) -> None:
    os._exit(code)


def test_it_gives_what_the_task_gives_without_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "secret")
    assert confined(told, "SOME_TOKEN", Confines()) == (None, False)


def test_it_ends_what_does_not_end() -> None:
    with pytest.raises(RunFailed, match=r"has not ended after 0\.5 s"):
        confined(endless, 0, Confines(seconds=0.5))


def test_memory_is_bounded() -> None:
    assert confined(greedy, 6 << 30, Confines(memory_bytes=4 << 30)) == -1


def test_a_process_that_goes_is_told() -> None:
    with pytest.raises(RunFailed, match=r"ended its process \(exit code 7\)"):
        confined(gone, 7, Confines())
