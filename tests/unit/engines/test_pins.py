"""What is installed is pinned: bench's own packages by hash, the engine's by version."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.engines.serving.environments import KINDS, PINS
from tests.support.places import ROOT

LOCKED = ("requirements.txt", "constraints.txt")


def pins(text: str) -> dict[str, str]:
    """Versions by name, of lines `name==version`, whatever follows."""
    found = (re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line) for line in text.splitlines())
    return {canonicalize_name(one[1]): one[2] for one in found if one}


def asked(project: dict[str, Any]) -> Iterator[Requirement]:
    for group in project["project"]["optional-dependencies"].values():
        yield from map(Requirement, group)
    for group in project["dependency-groups"].values():
        yield from (Requirement(one) for one in group if isinstance(one, str))


def test_every_package_has_its_hashes_and_no_place() -> None:
    for name in LOCKED:
        text = (ROOT / name).read_text()
        blocks = text.replace("\\\n", " ").splitlines()
        assert len(blocks) > 40
        for block in blocks:
            assert re.fullmatch(r"[a-z0-9.-]+==\S+ (; [^\\]*)?( +--hash=sha256:[0-9a-f]{64})+", block), block[:100]
        assert "://" not in text


def test_the_lists_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    own, more = (pins((ROOT / name).read_text()) for name in LOCKED)
    assert not own.keys() & more.keys()
    for one in map(Requirement, project["project"]["dependencies"] + project["build-system"]["requires"]):
        assert one.specifier.contains(own[canonicalize_name(one.name)]), one
    for one in asked(project):
        assert one.specifier.contains((own | more)[canonicalize_name(one.name)]), one


@pytest.mark.parametrize("kind", KINDS)
def test_an_engines_environment_is_pinned_whole(kind: str) -> None:
    text = (PINS / f"{kind}.txt").read_text()
    pinned = pins(text)
    assert len(pinned) > 100
    assert all(map(pins, text.splitlines()))
    for package in map(Requirement, KINDS[kind].packages):
        assert package.specifier.contains(pinned[canonicalize_name(package.name)]), package
    assert {"torch", "numpy", "tokenizers"} <= pinned.keys()
