"""docs/run-directory.md names everything that a run directory holds."""

from __future__ import annotations

import dataclasses
import re

from harness.core import sizes
from harness.core.records import REQUESTS, STEPS
from harness.core.runspec import RunSpec
from tests.support.places import ROOT

PAGE = (ROOT / "docs/run-directory.md").read_text(encoding="utf-8")


def section(name: str) -> str:
    """The text under a heading."""
    match = re.search(rf"^## {re.escape(name)}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
    assert match is not None, name
    return match[1]


def test_every_field_of_the_spec_is_named() -> None:
    row = next(line for line in section("run.json").splitlines() if line.startswith("| spec |"))
    words = set(re.findall(r"\w+", row))
    assert [field.name for field in dataclasses.fields(RunSpec) if field.name not in words] == []


def test_every_column_of_the_tables_is_named() -> None:
    for heading, schema in (("requests.parquet", REQUESTS), ("steps.parquet", STEPS)):
        words = set(re.findall(r"`(\w+)`", section(heading)))
        assert [name for name in schema.names if name not in words] == [], heading


def test_the_sizes_that_are_read_are_those_of_the_document() -> None:
    limits = (ROOT / "docs/limits.md").read_text(encoding="utf-8")
    for words in (
        f"| {sizes.MOST_REQUESTS / 1e6:g} million, {sizes.MOST_STEPS / 1e6:g} million |",
        f"| {sizes.MOST_TABLE_BYTES >> 30} GiB |",
        f"| {sizes.MOST_BATCH_BYTES >> 20} MiB, never compressed |",
        f"| {sizes.MOST_JSON_BYTES >> 20} MiB |",
        f"{sizes.READER_BYTES >> 30} GiB of address space and {sizes.READER_BYTES_A_CORE >> 20} MiB",
    ):
        assert words in limits
    contributing = (ROOT / "docs/contributing-results.md").read_text(encoding="utf-8")
    assert f"at most {sizes.MOST_STEPS / 1e6:g} million steps, {sizes.MOST_REQUESTS / 1e6:g} million" in contributing
