"""Options after a colon: `name:key=value,key=value`, typed, checked, written back in one way."""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from workloads.core.errors import WorkloadError
from workloads.core.reading import shown, spelled

LARGEST = 10**9
# Options whose values are paths.
_PATHS = frozenset({"path", "hf", "tokenizer"})
# A quoted value, and the name of its option where that stands before it.
_QUOTED = re.compile(r'\s*(?:[^",=]*=\s*)?"(?:[^"]|"")*"\s*')
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
    """` (did you mean X?)`, or nothing where no known word is near; what a file knows may hold anything."""
    near = nearest(word, known)
    return f" (did you mean {spelled(near, 60)}?)" if near else ""


def split(text: str) -> tuple[str, dict[str, str]]:
    """`name:key=value,key=value` as a name and its options; a first part without `=` is given as `path`.

    A value in double quotes is taken as it stands (`file:"a,b=1.jsonl"`, a quote in it doubled). Without quotes commas
    and equals signs belong to a path where it then names what is there: `file:isl=1024,osl=128.jsonl`.
    """
    name, _, rest = text.partition(":")
    name = name.strip()
    options: dict[str, str] = {}
    parts, at = _parts(text, rest) if rest else [], 0
    while at < len(parts):
        key, value, taken = _option(text, name, parts, at)
        if key in options:
            raise WorkloadError(f"{text}: {key} is given twice")
        options[key] = value
        at += taken
    return name, options


def quoted(text: str, commas: str = ",") -> str:
    """A value as `split` reads it back: in quotes where one of `commas` or a quote in it would end it elsewhere."""
    plain = text == text.strip() and not text.startswith('"') and not any(one in text for one in commas)
    return text if plain else '"' + text.replace('"', '""') + '"'


def _parts(text: str, rest: str) -> list[str]:
    """What stands between the commas, but for those in a quoted value."""
    parts: list[str] = []
    at = 0
    while True:
        found = _QUOTED.match(rest, at)
        end = found.end() if found else rest.find(",", at)
        if found and end < len(rest) and rest[end] != ",":
            raise WorkloadError(f"{text}: {rest[end:]!r} follows a quoted value: write a comma after it")
        if end == len(rest) or end < 0:
            return [*parts, rest[at:]]
        parts.append(rest[at:end])
        at = end + 1


def _option(text: str, name: str, parts: list[str], at: int) -> tuple[str, str, int]:
    """The option that begins at a part: its name, its value, and how many parts it takes."""
    part = parts[at]
    key, equals, value = part.partition("=")
    key, value = key.strip(), value.strip()
    first = at == 0 and (not equals or part.lstrip().startswith('"') or (name == "file" and key != "path"))
    if first and (taken := _path_of(part.strip(), parts[1:])):
        return "path", taken[0], taken[1]
    if not equals:
        if at:
            raise WorkloadError(f"{text}: {part!r} is not an option: write key=value")
        return "path", part.strip(), 1
    if key in _PATHS and (taken := _path_of(value, parts[at + 1 :])):
        return key, taken[0], taken[1]
    return key, _unquoted(value), 1


def _path_of(start: str, rest: list[str]) -> tuple[str, int] | None:
    """A path that is quoted, or the longest that is there, with the parts it takes; None where there is none."""
    if start.startswith('"'):
        return _unquoted(start), 1
    for taken in range(len(rest), -1, -1):
        path = ",".join([start, *rest[:taken]]).rstrip()
        if os.path.exists(os.path.expanduser(path)):
            return path, 1 + taken
    return None


def _unquoted(value: str) -> str:
    whole = len(value) > 1 and value.startswith('"') and value.endswith('"')
    return value[1:-1].replace('""', '"') if whole else value


def _number(where: str, option: Option, given: str) -> int | float:
    text = spelled(given, 40)
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
            raise WorkloadError(f"{where}: {option.name}={spelled(text, 40)} is neither true nor false")
        return text.lower() in _TRUE
    if option.type in (int, float):
        return _number(where, option, text)
    if option.choices and text not in option.choices:
        near, listed = suggest(text, option.choices), ", ".join(choice for choice in option.choices if choice)
        raise WorkloadError(f"{where}: {option.name}={spelled(text, 40)} is unknown{near}: it is one of {listed}")
    return text


def read(where: str, known: tuple[Option, ...], given: Mapping[str, str]) -> dict[str, Any]:
    """Every known option with its typed value, from what was given or by default.

    Raises WorkloadError for an unknown option (with the nearest), a value of the wrong type or below its
    minimum, and an option that must be given and is not.
    """
    names = [option.name for option in known]
    for key in given:
        if key not in names:
            if "path" not in given and any(option.name == "path" and option.default is None for option in known):
                named = spelled(f"{key}={given[key]}", 120)
                raise WorkloadError(f"{where}: no file {named} is there, and no option {shown(key)}: name the file")
            listed = f"its options are {', '.join(names)}" if names else "it has no options"
            raise WorkloadError(f"{where} has no option {shown(key)}{suggest(key, names)}: {listed}")
    values: dict[str, Any] = {}
    for option in known:
        values[option.name] = option.default
        if option.name in given:
            values[option.name] = _value(where, option, given[option.name])
        elif option.default is None:
            raise WorkloadError(f"{where} needs {option.name}=…: {option.help}")
    return values


def write(value: Any) -> str:
    """A value as an option's text: `true`, `0.5`, `500`, a text with a comma in quotes."""
    return str(value).lower() if isinstance(value, bool) else quoted(str(value))
