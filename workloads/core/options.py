"""Options after a colon: `name:key=value,key=value`, typed, checked, written back in one way."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.reading import brief, shown

LARGEST = 10**9
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True, slots=True)
class Option:
    """An option a user can give: `type` is int, float, bool or str; without a default it must be given."""

    name: str
    type: type
    default: Any
    help: str
    minimum: float | None = None
    choices: tuple[str, ...] = ()


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word (in lower case) that is nearest; None where none is near."""
    near = difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.5)
    return near[0] if near else None


def suggest(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)`, or nothing where no known word is near."""
    near = nearest(word, known)
    return f" (did you mean {near}?)" if near else ""


def split(text: str) -> tuple[str, dict[str, str]]:
    """`name:key=value,key=value` as a name and its options; a first part without `=` is given as `path`."""
    name, _, rest = text.partition(":")
    options: dict[str, str] = {}
    for position, part in enumerate(rest.split(",") if rest else []):
        key, equals, value = part.partition("=")
        if not equals:
            if position:
                raise WorkloadError(f"{text}: {part!r} is not an option: write key=value")
            key, value = "path", part
        if key.strip() in options:
            raise WorkloadError(f"{text}: {key.strip()} is given twice")
        options[key.strip()] = value.strip()
    return name.strip(), options


def _number(where: str, option: Option, given: str) -> int | float:
    text = shown(given, 40)
    try:
        value = int(given) if option.type is int else float(given)
    except ValueError:
        kind = "a whole number" if option.type is int else "a number"
        raise WorkloadError(f"{where}: {option.name}={text} is not {kind}") from None
    if not math.isfinite(value):
        raise WorkloadError(f"{where}: {option.name}={text} is not finite")
    if option.type is int and value > LARGEST:
        raise WorkloadError(f"{where}: {option.name}={text} is above {LARGEST}")
    if option.minimum is not None and value < option.minimum:
        raise WorkloadError(f"{where}: {option.name}={text} is below {option.minimum:g}")
    return value


def _value(where: str, option: Option, text: str) -> Any:
    if option.type is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise WorkloadError(f"{where}: {option.name}={shown(text, 40)} is neither true nor false")
        return text.lower() in _TRUE
    if option.type in (int, float):
        return _number(where, option, text)
    if option.choices and text not in option.choices:
        listed = ", ".join(choice for choice in option.choices if choice)
        raise WorkloadError(
            f"{where}: {option.name}={shown(text, 40)} is unknown{suggest(text, option.choices)}: it is one of {listed}"
        )
    return text


def read(where: str, known: tuple[Option, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """Every known option with its typed value, from what was given or by default.

    Raises WorkloadError for an unknown option (with the nearest), a value of the wrong type or below its
    minimum, and an option that must be given and is not.
    """
    names = [option.name for option in known]
    for key in given:
        if key not in names:
            listed = f"its options are {', '.join(names)}" if names else "it has no options"
            raise WorkloadError(f"{where} has no option {brief(key)}{suggest(key, names)}: {listed}")
    values: dict[str, Any] = {}
    for option in known:
        values[option.name] = option.default
        if option.name in given:
            values[option.name] = _value(where, option, given[option.name])
        elif option.default is None:
            raise WorkloadError(f"{where} needs {option.name}=…: {option.help}")
    return values


def write(value: Any) -> str:
    """A value as an option's text: `true`, `0.5`, `500`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
