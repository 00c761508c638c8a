"""Count the rooms, floors and arrows of the code, and fail where an arrow points upward or a circle stands.

A room is a folder at the first two levels of harness/ that holds code, and `policies` and `workloads` are one each. An
arrow goes from a room to each room that it imports from. A room's floor is one above the highest that it knows, so a
circle has no floor. Run by `make check`; `--arrows` lists them all.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
MOST_ROOMS, MOST_FLOORS, MOST_ARROWS, MOST_LINES = 22, 8, 100, 350
# Below everything: whoever stands on the ground is no arrow worth counting twice.
PACKAGES = ("harness", "workloads", "policies")


def room_of(module: str, rooms: set[str]) -> str:
    """The room that a module lies in: the longest name of a room that its own begins with."""
    parts = module.split(".")
    return next(name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in rooms)


def rooms_of_harness() -> set[str]:
    """The folders with code at the first two levels of harness/, with the two packages below it."""
    folders = [path for pattern in ("*", "*/*") for path in (ROOT / "harness").glob(pattern) if path.is_dir()]
    coded = [path for path in folders if any(path.glob("*.py"))]
    return {".".join(path.relative_to(ROOT).parts) for path in coded} | {"harness", "workloads", "policies"}


def arrows() -> dict[str, set[str]]:
    """Each room with the rooms that it imports from."""
    # This checkout's, wherever the installed one lies.
    sys.path.insert(0, str(ROOT))
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    rooms = rooms_of_harness()
    known: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        room = room_of(module, rooms)
        for imported in graph.find_modules_directly_imported_by(module):
            other = room_of(imported, rooms)
            # The package itself holds the version alone.
            if other not in (room, "harness"):
                known[room].add(other)
    known.pop("harness", None)
    return {room: known[room] for room in sorted(rooms - {"harness"})}


def floors(known: dict[str, set[str]]) -> dict[str, int]:
    """The floor of each room; CycleError where rooms know each other in a circle."""
    floor: dict[str, int] = {}
    for room in TopologicalSorter(known).static_order():
        floor[room] = 1 + max((floor[other] for other in known[room]), default=0)
    return floor


def long_files() -> list[str]:
    """Python files of more lines than one idea takes."""
    files = [path for folder in (*PACKAGES, "tests", "scripts") for path in (ROOT / folder).rglob("*.py")]
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    return [f"{path.relative_to(ROOT)}: {count} lines" for path, count in sorted(lines.items()) if count > MOST_LINES]


def main() -> None:
    """Print what was counted; exit 1 where it is more than the house may have."""
    parser = argparse.ArgumentParser(description="Count the rooms, floors and arrows of the code.")
    parser.add_argument("--arrows", action="store_true", help="list every arrow")
    options = parser.parse_args()
    known = arrows()
    try:
        floor = floors(known)
    except CycleError as error:
        sys.exit(f"rooms know each other in a circle: {' -> '.join(error.args[1])}")
    count = sum(map(len, known.values()))
    for level in range(max(floor.values()), 0, -1):
        print(f"{level}  {'  '.join(room for room in known if floor[room] == level)}")
    print(f"{len(known)} rooms on {max(floor.values())} floors, {count} arrows, none upward, no circle")
    if options.arrows:
        for room, others in known.items():
            print(f"{room} -> {', '.join(sorted(others))}")
    faults = long_files()
    for name, most, have in (
        ("rooms", MOST_ROOMS, len(known)),
        ("floors", MOST_FLOORS, max(floor.values())),
        ("arrows", MOST_ARROWS, count),
    ):
        if have > most:
            faults.append(f"{have} {name}, at most {most}")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
