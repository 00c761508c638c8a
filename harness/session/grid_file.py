"""A grid's file: axes as lists, cells left out, settings that go with an axis; from it the cells' own options."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.core.errors import UserError
from harness.core.text import nearest, shown, some, spelled
from harness.session.ask import split_policies, split_workloads
from harness.session.options import known_names, names_in, read_options

# More are rather a slip of the pen: a list too many multiplies.
MOST_CELLS = 1_000_000
TABLES = ("skip", "set", "grid")
# What a list of is one value, as an option that is given several times.
GIVEN_SEVERAL_TIMES = ("url", "arm", "field", "no_field", "header_env", "accept")
# A cell may run on a node of a cluster itself, from where it would join none.
OF_ONE_RUN = ("drivers", "address")
# What every cell has beside its axes.
NOT_AXES = ("repeat", *GIVEN_SEVERAL_TIMES)
SPLIT: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "policy": split_policies,
    "workload": split_workloads,
    "gpu": lambda texts: [name for text in texts for name in names_in(text)],
}

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One table of axes: `axes` by option, what all its cells have, what is skipped, what goes with an axis."""

    where: str
    axes: Mapping[str, Sequence[Any]]
    fixed: Mapping[str, Any]
    skip: Sequence[Values]
    settings: Sequence[tuple[Values, Values]]

    @property
    def count(self) -> int:
        """How many cells it has before any is skipped."""
        return math.prod(map(len, self.axes.values())) * int(self.fixed.get("repeat", 1))


@dataclass(frozen=True, slots=True)
class Point:
    """One place of the grid: the options of its runs, without the policies that are compared there."""

    values: Mapping[str, Any]
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GridFile:
    """A grid as its file tells it; with `twice` the first policy of each point runs twice (A/A)."""

    path: Path
    parts: Sequence[Part]
    twice: bool

    @property
    def count(self) -> int:
        """How many cells there are before any is skipped."""
        return sum(part.count for part in self.parts)


def read_grid(path: Path) -> GridFile:
    """The grid in a TOML file; UserError, with the file and the key, where it is none."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{spelled(str(path))}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{spelled(str(path))}: not a TOML file ({error})") from None
    twice = document.pop("aa", False)
    if not isinstance(twice, bool):
        raise UserError(f"{path}: aa is {shown(twice)}: give true or false")
    for table in TABLES:
        found = document.get(table, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            raise UserError(f"{path}: {table} is no list of tables: write [[{table}]]")
    parts = document.pop("grid", [])
    merged = [_merged(document, part) for part in parts] or [document]
    names = [f"{path}, [[grid]] {number}" if parts else str(path) for number in range(1, len(merged) + 1)]
    return GridFile(path, [_part(where, values) for where, values in zip(names, merged, strict=True)], twice)


def points_of(grid: GridFile, most: int = MOST_CELLS) -> list[Point]:
    """The grid's points in the file's order.

    UserError where there are more than `most` cells, where [[skip]] leaves none, or names what no cell has.
    """
    if grid.count > most:
        raise UserError(
            f"{grid.path}: {grid.count:,} cells, more than {most:,}: give shorter lists, or --most {grid.count} if "
            "so many are meant"
        )
    found: dict[tuple[Any, ...], tuple[Values, list[str]]] = {}
    for part in grid.parts:
        for values in _cells(part):
            policy = values.pop("policy", None)
            key = tuple(sorted((name, _frozen(value)) for name, value in values.items()))
            policies = found.setdefault(key, (values, []))[1]
            if policy is not None and policy not in policies:
                policies.append(policy)
    if not found:
        raise UserError(f"{grid.path}: no cell is left: [[skip]] takes all {grid.count:,} away")
    return [Point(values, tuple(policies)) for values, policies in found.values()]


def _merged(document: Values, part: Values) -> Values:
    """A part with what stands above all parts: its own keys go before, tables add up."""
    merged = {name: value for name, value in document.items() if name not in TABLES} | part
    for table in ("skip", "set"):
        merged[table] = [*document.get(table, []), *part.get(table, [])]
    # What stands above all parts may be of an axis value that this one has not.
    merged["shared"] = len(document.get("skip", []))
    return merged


def _part(where: str, values: Values) -> Part:
    skip, settings, shared = values.pop("skip", []), values.pop("set", []), values.pop("shared", 0)
    axes: dict[str, list[Any]] = {}
    fixed: Values = {}
    for name, value in values.items():
        if name not in known_names():
            raise UserError(
                f"{where}: no option {shown(name)}{nearest(str(name), [*known_names(), *TABLES, 'aa'])} "
                "`bench run --help` lists them"
            )
        if name in OF_ONE_RUN:
            raise UserError(f"{where}: {name} is for bench run alone: who runs a cell drives its servers; leave it out")
        _check(where, name, value)
        if name in SPLIT:
            texts = value if isinstance(value, list) else [value]
            axes[name] = list(dict.fromkeys(SPLIT[name](texts)))
        elif isinstance(value, list) and name not in NOT_AXES:
            axes[name] = list(dict.fromkeys(value))
        else:
            fixed[name] = value
    part = Part(where, axes, fixed, skip, [_setting(where, table) for table in settings])
    for place, table in enumerate(skip):
        _check_condition(part, f"{where}: [[skip]]", table, place < shared)
    return part


def _check(where: str, name: str, value: Any) -> None:
    """UserError where a value, or one of a list, is none that the option takes."""
    if value == [] or (name == "repeat" and isinstance(value, list)):
        why = "an empty list: give at least one value" if value == [] else "a list: give one number"
        raise UserError(f"{where}: {name} is {why}")
    for one in value if isinstance(value, list) else [value]:
        try:
            read_options({name: one})
        except UserError as error:
            raise UserError(f"{where}: {error}") from None


def _setting(where: str, table: Values) -> tuple[Values, Values]:
    """A [[set]] table: the condition, and what then holds."""
    given = {name: value for name, value in table.items() if name != "where"}
    condition = table.get("where")
    if not isinstance(condition, dict) or not condition or not given:
        raise UserError(f'{where}: [[set]] needs where = {{ gpu = "l40s" }} and what then holds, such as slots = 256')
    for name, value in given.items():
        if name not in known_names() or name == "policy":
            raise UserError(f"{where}: [[set]] {shown(name)}: no option that can be set")
        if isinstance(value, list) and name not in GIVEN_SEVERAL_TIMES:
            raise UserError(f"{where}: [[set]] {name} is a list: give one value; axes stand above all tables")
        _check(where, name, value)
    return condition, given


def _check_condition(part: Part, where: str, table: Values, shared: bool) -> None:
    """UserError where a condition names what no cell of the part has; one that all parts share may."""
    if not table:
        raise UserError(f"{where}: an empty table would leave out every cell")
    for name, wanted in table.items():
        if name not in part.axes and name not in part.fixed:
            if shared and name in known_names():
                continue
            raise UserError(
                f"{where}: {shown(name)} is no key of this grid{nearest(str(name), [*part.axes, *part.fixed])}"
            )
        there = part.axes.get(name, [part.fixed.get(name)])
        for one in wanted if isinstance(wanted, list) else [wanted]:
            if not shared and not any(_same(one, value) for value in there):
                raise UserError(f"{where}: {name} = {shown(one)}: the grid has {some([str(value) for value in there])}")


def _cells(part: Part) -> Iterator[Values]:
    """The options of each cell that is not skipped, with what goes with its axes."""
    for combination in itertools.product(*part.axes.values()):
        values: Values = dict(part.fixed) | dict(zip(part.axes, combination, strict=True))
        if any(_fits(values, table) for table in part.skip):
            continue
        for condition, given in part.settings:
            if _fits(values, condition):
                values |= given
        yield values


def _fits(values: Values, condition: Values) -> bool:
    return all(
        any(_same(one, values.get(name)) for one in (wanted if isinstance(wanted, list) else [wanted]))
        for name, wanted in condition.items()
    )


def _same(a: Any, b: Any) -> bool:
    """Equal values; of texts case does not count."""
    if isinstance(a, str) and isinstance(b, str):
        return a.strip().lower() == b.strip().lower()
    return isinstance(a, bool) == isinstance(b, bool) and bool(a == b)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
