"""`make mutants`: seeded mutants of the modules that numbers rest on, and which of them the tests notice.

cosmic-ray makes the mutants. This draws some of each module by a seed, runs the tests of its room on each in a copy of
the checkout, and prints a table and every mutant that lived. A mutant that lives is a test that is missing, or changes
nothing that anyone could see: read its lines.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# Modules by the tests that hold them: those of the room, and the properties where they are the reference.
MODULES = {
    "policies/online": (
        "tests/unit/policies tests/properties/test_policies.py",
        "threshold exclusive isjl hazard ebplus controller",
    ),
    "policies/offline": (
        "tests/unit/policies/test_insertion.py tests/properties/test_isjl.py tests/properties/test_resource_fair.py",
        "insertion isjl",
    ),
    "harness/measure": (
        "tests/unit/measure tests/properties/test_measure_statistics.py tests/properties/test_fairness.py",
        "estimate sample statistics fairness profit metrics verdict window gaps measured",
    ),
    "harness/report": ("tests/unit/report", "comparison comparable arms"),
    "harness/runs": ("tests/unit/runs", "run tables writer"),
    "harness/drive": (
        "tests/unit/drive tests/properties/test_drive_stream.py",
        "openai_stream wire schedule recorder pool driver",
    ),
    "harness/published": ("tests/unit/published tests/unit/pages/test_build.py", "verify check"),
    "workloads/core": ("tests/unit/workloads tests/properties/test_arrivals.py", "arrivals stream"),
    "workloads/datasets": (
        # Without those that start a hub, which are slow.
        "tests/unit/workloads --ignore-glob=*_hub_*.py tests/properties/test_data_sets.py",
        "sharegpt conversations longbench",
    ),
}
# Of the tests without a mutant, and at least so many seconds: a loop that a mutant made endless is noticed so.
TIMES, LEAST_S = 3.0, 30.0
NOTICED = ("KILLED", "TIMEOUT")
PYTEST = f"{sys.executable} -m pytest -x -q -p no:cacheprovider -p no:randomly"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one mutant: KILLED, TIMEOUT, SURVIVED or INCOMPETENT, and its lines."""

    result: str
    diff: str


def modules(pattern: str) -> list[tuple[str, str]]:
    """Paths of the modules that hold `pattern`, each with its tests."""
    return [
        (path, tests)
        for folder, (tests, names) in MODULES.items()
        for path in (f"{folder}/{name}.py" for name in names.split())
        if pattern in path
    ]


def copy_of_the_checkout(place: Path) -> Path:
    """The files that git tracks, as they are now."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in names.splitlines():
        if (ROOT / name).is_file() and not name.startswith("results/"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name)
    (place / "results").symlink_to(ROOT / "results")
    return place


def within(path: Path, tests: str) -> bool:
    """Whether a file is one of those tests."""
    return any(Path(word) in (path, *path.parents) for word in tests.split())


@functools.cache
def plain_s(tests: str, checkout: Path) -> float:
    """Seconds that tests take without a mutant; where they fail so, every mutant would seem noticed."""
    start = time.monotonic()
    plain = subprocess.run(f"{PYTEST} {tests}".split(), cwd=checkout, capture_output=True, text=True, check=False)
    if plain.returncode:
        sys.exit(f"the tests fail as they are: {tests}\n{plain.stdout[-2000:]}")
    return time.monotonic() - start


def mutants_of(module: str, tests: str, count: int, seed: int, checkout: Path) -> list[Outcome]:
    """Draws `count` mutants of a module and runs its tests on each."""
    session = checkout / "session.sqlite"
    session.unlink(missing_ok=True)
    # Tests that import the module come first: they notice most, and at the first that does the others are spared.
    name = module.removesuffix(".py").replace("/", ".")
    files = sorted(
        path for path in checkout.glob("tests/**/test_*.py") if f"from {name} import" in path.read_text("utf-8")
    )
    first = [str(path.relative_to(checkout)) for path in files if within(path.relative_to(checkout), tests)]
    command = " ".join([PYTEST, *first, tests])
    config = {
        "module-path": module,
        "timeout": max(LEAST_S, TIMES * plain_s(tests, checkout)),
        "excluded-modules": [],
        "test-command": command,
        "distributor": {"name": "local"},
    }
    file = checkout / "mutants.toml"
    file.write_text(_toml(config))
    assert tomllib.loads(file.read_text())["cosmic-ray"]["module-path"] == module
    tool = str(Path(sys.executable).with_name("cosmic-ray"))
    subprocess.run([tool, "init", file.name, session.name], cwd=checkout, check=True, capture_output=True)
    _keep_some(session, count, random.Random(f"{seed} {module}"), checkout / module)
    subprocess.run([tool, "exec", file.name, session.name], cwd=checkout, check=True, capture_output=True)
    with contextlib.closing(sqlite3.connect(session)) as database:
        rows = database.execute("select test_outcome, diff, output from work_results").fetchall()
    return [
        # This word alone is the tool's own; what tests print may hold it too.
        Outcome("TIMEOUT" if output == "timeout" else str(result), diff)
        for result, diff, output in rows
    ]


def _toml(config: dict[str, object]) -> str:
    plain = {key: value for key, value in config.items() if not isinstance(value, dict)}
    lines = ["[cosmic-ray]", *(f"{key} = {json.dumps(value)}" for key, value in plain.items())]
    return "\n".join([*lines, "[cosmic-ray.distributor]", 'name = "local"', ""])


def _annotated(module: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where a module's annotations begin and end (line, column): they are never run, and a mutant there is none."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
    return [((n.lineno, n.col_offset), (n.end_lineno or 0, n.end_col_offset or 0)) for n in found if n is not None]


def _keep_some(session: Path, count: int, draw: random.Random, module: Path) -> None:
    """Leaves so many of a session's mutants, as many of each operator as chance gives, and none of an annotation."""
    annotated = _annotated(module)
    with contextlib.closing(sqlite3.connect(session)) as database:
        jobs = sorted(
            database.execute(
                "select operator_name, start_pos_row, start_pos_col, occurrence, job_id from mutation_specs"
            )
        )
        run = [job for job in jobs if not any(start <= job[1:3] < end for start, end in annotated)]
        kept = {job for *_, job in draw.sample(run, min(count, len(run)))}
        gone = [(job,) for *_, job in jobs if job not in kept]
        database.executemany("delete from mutation_specs where job_id = ?", gone)
        database.executemany("delete from work_items where job_id = ?", gone)
        database.commit()


def main() -> None:
    """Print the table and the survivors; exit 1 where any lived, so that somebody reads them."""
    parser = argparse.ArgumentParser(description="Which seeded mutants the tests notice.")
    parser.add_argument("pattern", nargs="?", default="", help="only modules whose path holds this")
    parser.add_argument("--count", type=int, default=8, help="mutants a module")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="bench-mutants-") as place:
        checkout = copy_of_the_checkout(Path(place))
        for module, tests in modules(options.pattern):
            outcomes = mutants_of(module, tests, options.count, options.seed, checkout)
            results = Counter(outcome.result for outcome in outcomes)
            total += results
            print(f"{module:<42} {dict(results)}", flush=True)
            for outcome in outcomes:
                if outcome.result not in NOTICED:
                    lines = [line for line in outcome.diff.splitlines() if line[:1] in ("+", "-", "@")]
                    print("lived:\n" + "\n".join(lines[2:]), flush=True)
    noticed = sum(total[result] for result in NOTICED)
    print(f"\n{noticed} of {sum(total.values())} noticed")
    sys.exit(noticed < sum(total.values()))


if __name__ == "__main__":
    main()
