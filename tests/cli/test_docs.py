"""Every command block of README, CONTRIBUTING and docs/ runs; those of a document one after the other in one folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.cli.calibrate import RunsOrCommand
from harness.cli.main import bench as commands
from tests.support.commands import BENCH
from tests.support.doc_blocks import DOCUMENTS, Block, blocks_of
from tests.support.places import ROOT

# `make demo` runs its own lines here. The others are what runs this test, or hours long: that they are there is enough.
REAL_MAKE = shutil.which("make") or "make"
MAKE = f"""#!/usr/bin/env bash
set -euo pipefail
for target in "$@"; do
  if [ "$target" = demo ]; then
    env -u MAKEFLAGS {REAL_MAKE} -C {ROOT} -n -s -o setup demo | sed 's#^.venv/bin/##' | bash -euo pipefail
  else
    env -u MAKEFLAGS {REAL_MAKE} -C {ROOT} -n -s "$target" > /dev/null
  fi
done
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a paced server, in place of the reader's own."""
    command = [BENCH, "mock-server", "--port", "0", "--ttft", "5", "--itl", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = re.search(r"http://[\d.:]+", process.stdout.readline())
        assert address is not None
        yield address[0]
        process.terminate()


def prepare(folder: Path) -> dict[str, str]:
    """A folder with what a reader has, and the environment of its shell."""
    (folder / "bin").mkdir()
    for name, script in (("make", MAKE), ("pytest", f'#!/usr/bin/env bash\nexec {sys.executable} -m pytest "$@"\n')):
        (folder / "bin" / name).write_text(script)
        (folder / "bin" / name).chmod(0o755)
    for name in ("tests", "scripts", "docs", "pyproject.toml", "harness", "policies", "workloads", "schedbench"):
        (folder / name).symlink_to(ROOT / name)
    rows = [{"timestamp_s": i / 10, "prompt_tokens": 50 + i % 300, "output_tokens": 1 + i % 150} for i in range(400)]
    (folder / "my-trace.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path = os.pathsep.join((str(folder / "bin"), str(Path(BENCH).parent), os.environ["PATH"]))
    return os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "COLUMNS": "120"}


def run_block(block: Block, folder: Path, environment: dict[str, str], address: str) -> str:
    """What a block prints; fails with it where it does not run."""
    text = block.text.replace("http://127.0.0.1:8000", address)
    command = ["bash", "-euo", "pipefail", "-c", text] if block.kind == "sh" else [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.name}\n{text}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("document", [path for path in DOCUMENTS if blocks_of(path)], ids=lambda path: path.name)
def test_the_commands_of_a_document_run(document: Path, tmp_path: Path, server: str) -> None:
    environment = prepare(tmp_path)
    printed = [run_block(block, tmp_path, environment, server) for block in blocks_of(document) if block.skip is None]
    if document.name == "README.md":
        # What it shows of `make demo`, its first block, is what that prints.
        lines = {line.rstrip() for line in printed[0].splitlines()}
        (shown,) = [text for text in document.read_text().split("```")[1::2] if text[0] == "\n" and "ebplus" in text]
        assert [line for line in shown.strip("\n").splitlines() if line not in lines] == []


def test_a_block_is_skipped_for_a_reason() -> None:
    blocks = [block for document in DOCUMENTS for block in blocks_of(document)]
    assert len(blocks) > 8
    for block in blocks:
        assert block.skip is None or len(block.skip.split()) >= 4, f"{block.name}: say why"


def _inline_commands() -> list[tuple[str, str]]:
    """Every `bench …` and `python FILE …` that stands in a sentence or a table, with its place."""
    commands_found = []
    for document in DOCUMENTS:
        text = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), document.read_text(), flags=re.S)
        for number, line in enumerate(text.splitlines(), 1):
            codes = re.findall(r"`((?:bench|python|\.venv/bin/pytest) [^`]+)`", line)
            commands_found += [(f"{document.name}:{number}", code) for code in codes]
    return commands_found


@pytest.mark.parametrize(("place", "code"), _inline_commands())
def test_a_command_in_a_sentence_exists_with_its_options(place: str, code: str) -> None:
    program, *words = code.split()
    if program != "bench":
        path = next((word for word in words if word.endswith(".py") or word.startswith("tests/")), None)
        if path is not None:
            source = ROOT / path
            assert source.exists(), f"{place}: {path} is not there"
            text = source.read_text() if source.is_file() else ""
            options = [word.strip(",()") for word in re.sub(r"\$\(.*?\)", "", code).split() if word.startswith("--")]
            assert all(f'"{option}"' in text for option in options), f"{place}: {code}"
        return
    command: click.Command = commands
    for word in words:
        if isinstance(command, RunsOrCommand) and word not in command.commands:
            command = command.commands[command.usual]
        if word.startswith("--"):
            known = {option for parameter in command.params for option in (*parameter.opts, "--help", "--version")}
            name = re.match(r"--[a-z0-9-]+", word)
            assert name is not None, f"{place}: {code}"
            assert name[0] in known, f"{place}: `{command.name}` has no {name[0]}"
        elif isinstance(command, click.Group) and re.fullmatch(r"[a-z-]+", word):
            assert word in command.commands, f"{place}: no command {word}"
            command = command.commands[word]
