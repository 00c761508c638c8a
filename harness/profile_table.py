"""Reading profile files (TOML): each complaint is one line that names file, key and remedy."""

from __future__ import annotations

import difflib
import math
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import UserError

Value = TypeVar("Value", str, int, float, bool)

_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", list: "a list"}


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file; raises UserError where it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such profile file") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not a TOML file ({error}): mend that line") from None


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
        return f"{self.file}: {self.path}{key}"

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

    def positive(self, key: str, kind: type[Value]) -> Value:
        """A figure that must be above zero."""
        value = self.figure(key, kind)
        if isinstance(value, str) or value <= 0:
            raise UserError(f"{self.where(key)} is {value}: it must be above 0")
        return value

    def strings(self, key: str) -> tuple[str, ...]:
        """A list of strings."""
        if not self.has(key):
            raise UserError(f"{self.where(key)} is missing: add `{key} = []`")
        value = self.values[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise UserError(f"{self.where(key)} is {value!r}: write a list of strings")
        return tuple(value)

    def table(self, key: str) -> Table:
        """The table under a key."""
        if not self.has(key):
            raise UserError(f"{self.where(key)} is missing: add the table `[{self.path}{key}]`")
        value = self.values[key]
        if not isinstance(value, dict):
            raise UserError(f"{self.where(key)} is {value!r}: write the table `[{self.path}{key}]`")
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
            raise UserError(f"{self.where(key)} is {value!r}: write {_NAMES[kind]}")
        typed = kind(value)
        if isinstance(typed, float) and not math.isfinite(typed):
            raise UserError(f"{self.where(key)} is {value}: write a finite number")
        return typed


def nearest(name: str, known: Iterable[str]) -> str:
    """How the sentence `no X named Y` ends: `; did you mean Z?` for the nearest known name, or a stop."""
    names = {item.lower(): item for item in known}
    match = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f"; did you mean {names[match[0]]}?" if match else "."
