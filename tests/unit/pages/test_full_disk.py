"""A page that finds no room is one line that names it, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.core.errors import UserError
from harness.pages.render import Writer
from harness.published.cache import JsonCache
from tests.support.disk import file_size_limit


def test_a_page_that_finds_no_room_is_named(tmp_path: Path) -> None:
    out = tmp_path / "site"
    writer = Writer(out, JsonCache(tmp_path / "cache"))
    source = tmp_path / "source"
    source.write_bytes(b"y" * 9000)
    told = pytest.raises(UserError, match=r"a/b\.html: cannot be written \(.*\): make room, or give")
    with file_size_limit(4000), told:
        writer.file("a/b.html", b"x" * 9000)
    with file_size_limit(4000), told:
        writer.copy("a/b.html", source)
    assert [path.name for path in out.rglob("*")] == ["a"]
    writer.file("a/b.html", b"x" * 9000)
    assert (out / "a/b.html").stat().st_size == 9000
