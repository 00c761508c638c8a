"""A policy's options after its name, `name:key=value,key=value`: read, checked, written back in one way."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from policies.core import PolicyError

LARGEST = 10**9


@dataclass(frozen=True, slots=True)
class Option:
    """One option: how it is read, what holds without it, and what it may be."""

    name: str
    read: Callable[[str], Any]
    default: Any
    help: str
    check: Callable[[Any], bool] = lambda _: True
    must: str = ""
    required: bool = False
    needs_lengths: bool = False


def share(name: str, default: float | None, help_: str) -> Option:
    """An option that is a number between 0 and 1, without both."""
    return Option(name, float, default, help_, lambda value: 0 < value < 1, "between 0 and 1")


def count(name: str, default: int | None, help_: str) -> Option:
    """An option that counts something, from 1."""
    must = f"a whole number of 1 to {LARGEST}"
    return Option(name, int, default, help_, lambda value: 1 <= value <= LARGEST, must)


def word(name: str, default: str, other: str, help_: str) -> Option:
    """An option that is one of two words."""
    return Option(name, str, default, help_, lambda value: value in (default, other), f"{default} or {other}")


def split(text: str) -> tuple[str, dict[str, str]]:
    """A policy's name and options as they were written; PolicyError where a part is no option."""
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise PolicyError(f"policy {text}: {part!r} is not an option: write key=value, such as eb:k=32")
        if key.strip() in given:
            raise PolicyError(f"policy {text}: {key.strip()} is given twice")
        given[key.strip()] = value.strip()
    return name.strip(), given


def read(name: str, options: Iterable[Option], given: Mapping[str, str]) -> dict[str, Any]:
    """The value of every option, as given or by default; PolicyError names the option and what it must be."""
    known = {option.name: option for option in options}
    for key in given:
        if key not in known:
            listed = f"its options are {', '.join(known)}" if known else "it takes no options"
            raise PolicyError(f"{name}: unknown option {key!r}: {suggest(key, known)}{listed}")
    for option in known.values():
        if option.required and option.name not in given:
            raise PolicyError(f"{name} needs {option.name}=…, {option.help}: such as {name}:{option.name}=100")
    values = {key: option.default for key, option in known.items()}
    return values | {key: _value(name, known[key], text) for key, text in given.items()}


def _value(name: str, option: Option, text: str) -> Any:
    try:
        value = option.read(text)
    except ValueError:
        value = None
    if value is None or not option.check(value):
        short = text if len(text) <= 40 else f"{text[:39]}…"
        raise PolicyError(f"{name}: {option.name}={short} must be {option.must or 'a number'}")
    return value


def write(name: str, options: Iterable[Option], values: Mapping[str, Any]) -> str:
    """The policy as one string: options in alphabetical order, defaults left out."""
    changed = {option.name: values[option.name] for option in options if values[option.name] != option.default}
    written = ",".join(f"{key}={_text(changed[key])}" for key in sorted(changed))
    return f"{name}:{written}" if written else name


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def suggest(word: str, known: Iterable[str]) -> str:
    """`did you mean X? `, or nothing where no known word is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.4)
    return f"did you mean {near[0]}? " if near else ""
