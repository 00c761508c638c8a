"""Reading profile files (TOML): each complaint is one line that names file, key and remedy."""

from __future__ import annotations

import math
import os
import stat
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from harness.core.errors import UserError
from harness.core.text import nearest, shown, spelled

# No figure of a profile is larger, and no time in one shorter: arithmetic with it could overflow.
LARGEST = 1e15
SMALLEST = 1e-12

Value = TypeVar("Value", str, int, float, bool)

# No profile is larger, and no text in one is longer.
_LARGEST_FILE = 1 << 20
_LONGEST_TEXT = 1000

_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file; raises UserError where it cannot be read or is not TOML."""
    try:
        status = os.stat(path)
        # A pipe would be waited for.
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE:
            raise UserError(f"{spelled(path)}: cannot be read: name a regular file of at most 1 MiB")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{spelled(path)}: no such profile file") from None
    except OSError as error:
        raise UserError(f"{spelled(path)}: cannot be read ({error.strerror})") from None
    except RecursionError:
        raise UserError(
            f"{spelled(path)}: nested too deep for a profile: write it as docs/adding-a-gpu.md shows"
        ) from None
    except (ValueError, OverflowError) as error:
        why = str(error).splitlines()[0][:120]
        raise UserError(f"{spelled(path)}: not a TOML file ({why}): mend that line") from None


class Table:
    """One table of a profile file, which knows where it stands and which keys were asked for."""

    def __init__(self, file: str, values: dict[str, Any], path: str = "") -> None:
        self.file = file
        self.path = path
        self.values = values
        self.sources: dict[str, str] = {}
        self._asked: set[str] = set()

    def where(self, key: str) -> str:
        """File and full key, as an error names them."""
        return f"{self.file}: {spelled(self.path + key, 120)}"

    def has(self, key: str) -> bool:
        """Whether the key is there."""
        self._asked.add(key)
        return key in self.values

    def get(self, key: str, kind: type[Value], remedy: str = "") -> Value:
        """A plain value of the type asked for; a whole number also serves as a number."""
        if not self.has(key):
            raise UserError(f"{self.where(key)} is missing: add {remedy or f'`{key} = …`'}")
        return self._typed(key, self.values[key], kind)

    def figure(self, key: str, kind: type[Value]) -> Value:
        """The value of `key = { value = …, source = "…" }`; the source goes to `sources`."""
        form = f'`{key} = {{ value = …, source = "…" }}`'
        if not self.has(key):
            raise UserError(f"{self.where(key)} is missing: add {form}")
        entry = self.values[key]
        if not isinstance(entry, dict) or "value" not in entry:
            raise UserError(f"{self.where(key)} has no value with a source: write {form}")
        inner = Table(self.file, entry, f"{self.path}{key}.")
        value = inner.get("value", kind)
        source = inner.get("source", str, '`source = "…"`, where the figure comes from')
        if not source.strip():
            raise UserError(f"{inner.where('source')} is empty: say where the figure comes from")
        inner.finish()
        self.sources[key] = source
        return value

    def positive(self, key: str, kind: type[Value], highest: float = LARGEST, lowest: float = 0) -> Value:
        """A figure that must be above zero and from `lowest` to `highest`."""
        value = self.figure(key, kind)
        if isinstance(value, str) or value <= 0:
            raise UserError(f"{self.where(key)} is {shown(value)}: it must be above 0")
        return self._within(key, value, lowest, highest)

    def seconds(self, key: str, highest: float) -> float:
        """A plain number, s: not beyond ±`highest`, and 0 or large enough to reckon with."""
        value = self.get(key, float)
        if abs(value) > highest or 0 < abs(value) < SMALLEST:
            raise UserError(f"{self.where(key)} is {value:g}: it must be {SMALLEST:g} to {highest:g}: recalibrate")
        return value

    def _within(self, key: str, value: Value, lowest: float, highest: float) -> Value:
        assert not isinstance(value, str)
        if not lowest <= value <= highest:
            raise UserError(f"{self.where(key)} is {value:g}: it must be {lowest:g} to {highest:g}")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        if not self.has(key):
            raise UserError(f"{self.where(key)} is missing: add `{key} = []`")
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UserError(f"{self.where(key)} is {shown(value)}: write a list of strings")
        return tuple(self._typed(key, item, str) for item in value)

    def table(self, key: str) -> Table:
        """The table under a key."""
        if not self.has(key):
            raise UserError(f"{self.where(key)} is missing: add the table `[{spelled(self.path + key, 120)}]`")
        value = self.values[key]
        if not isinstance(value, dict):
            raise UserError(f"{self.where(key)} is {shown(value)}: write the table `[{spelled(self.path + key, 120)}]`")
        return Table(self.file, value, f"{self.path}{key}.")

    def finish(self) -> None:
        """Refuses keys that nobody asked for: a typing error must not pass for a default."""
        for key in self.values:
            if key not in self._asked:
                unknown = f"{self.where(key)} is no key of a profile{nearest(key, self._asked)}"
                raise UserError(f"{unknown} Rename or remove it")

    def _typed(self, key: str, value: Any, kind: type[Value]) -> Value:
        fits = isinstance(value, (int, float) if kind is float else kind)
        # In Python true is also a whole number; in a profile it is not.
        if not fits or (isinstance(value, bool) and kind is not bool):
            raise UserError(f"{self.where(key)} is {shown(value)}: write {_NAMES[kind]}")
        if isinstance(value, str) and not (value.isprintable() and len(value) <= _LONGEST_TEXT):
            raise UserError(
                f"{self.where(key)} is {shown(value)}: write one line of at most {_LONGEST_TEXT} characters"
            )
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UserError(f"{self.where(key)} is {shown(value)}: it must be at most {LARGEST:g}")
        typed = kind(value)
        if isinstance(typed, float) and not math.isfinite(typed):
            raise UserError(f"{self.where(key)} is {value}: write a finite number")
        return typed
