"""The options that a policy's class takes, read from its annotations or from its OPTIONS."""

from __future__ import annotations

import inspect
import math
import types
import typing
from typing import Any

from policies.core import PolicyError
from policies.options import Option
from policies.own.base import OwnPolicy

GIVEN = ("slots", "costs")
WORDS = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
_RESERVED = frozenset(OwnPolicy.__annotations__)


def options_of(cls: type) -> tuple[Option, ...]:
    """The options of a policy's class; PolicyError where one has no kind that can be read from a text."""
    declared = getattr(cls, "OPTIONS", None)
    if declared is not None:
        if not isinstance(declared, tuple) or not all(isinstance(option, Option) for option in declared):
            raise PolicyError(f"class {cls.__name__}: OPTIONS must be a tuple of policies.own.Option")
        return declared
    found = {name: (kind, default) for name, kind, default in (*_parameters(cls), *_annotated(cls))}
    return tuple(_option(cls, name, kind, default) for name, (kind, default) in found.items())


def _parameters(cls: type) -> list[tuple[str, Any, Any]]:
    """What its own `__init__` takes by name: name, kind and default, `inspect.Parameter.empty` without one."""
    init: Any = cls.__init__  # type: ignore[misc] # of the class, not of an instance
    if init is OwnPolicy.__init__:
        return []
    try:
        signature = inspect.signature(init, eval_str=True)
    except Exception as error:
        raise PolicyError(f"class {cls.__name__}: __init__ cannot be read ({type(error).__name__}: {error})") from None
    named = signature.parameters
    open_ended = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in named.values())
    lacking = [name for name in GIVEN if name not in named and not open_ended]
    if lacking:
        raise PolicyError(
            f"class {cls.__name__}: __init__ must take {lacking[0]}: "
            "def __init__(self, *, slots, costs=None, **options)"
        )
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        (one.name, one.annotation, one.default)
        for one in list(named.values())[1:]
        if one.kind in kinds and one.name not in GIVEN
    ]


def _annotated(cls: type) -> list[tuple[str, Any, Any]]:
    """What the class annotates, where what its `__init__` does not name reaches the base's."""
    init: Any = cls.__init__  # type: ignore[misc] # of the class, not of an instance
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in inspect.signature(init).parameters.values()):
        return []
    try:
        hints = typing.get_type_hints(cls)
    except Exception as error:
        raise PolicyError(
            f"class {cls.__name__}: an annotation cannot be read ({type(error).__name__}: {error})"
        ) from None
    return [
        (name, kind, getattr(cls, name))
        for name, kind in hints.items()
        if name not in _RESERVED
        and not name.startswith("_")
        and typing.get_origin(kind) is not typing.ClassVar
        and hasattr(cls, name)
        and not callable(getattr(cls, name))
    ]


def _option(cls: type, name: str, kind: Any, default: Any) -> Option:
    required = default is inspect.Parameter.empty
    default = None if required else default
    if kind is inspect.Parameter.empty and not required:
        kind = type(default)
    parts = kind.__args__ if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union else (kind,)
    parts = tuple(part for part in parts if part is not type(None))
    if len(parts) == 1 and typing.get_origin(parts[0]) is typing.Literal:
        words = tuple(map(str, typing.get_args(parts[0])))
        return Option(name, str, default, "", lambda value: value in words, " or ".join(words), required)
    reads = {int: (int, "a whole number"), float: (_finite, "a number"), bool: (_yes, "true or false"), str: (str, "")}
    if len(parts) != 1 or parts[0] not in reads:
        raise PolicyError(
            f"class {cls.__name__}: option {name} has no kind that can be read: annotate it as int, float, bool or str"
        )
    read, must = reads[parts[0]]
    return Option(name, read, default, "", must=must, required=required)  # type: ignore[arg-type] # one of four


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _yes(text: str) -> bool:
    try:
        return WORDS[text.lower()]
    except KeyError:
        raise ValueError from None
