"""A policy's file run: its class, its options, and the policy as engines ask it."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Mapping
from typing import Any

from policies import options
from policies.catalog import make_policy
from policies.core import Policy, PolicyError, StepCosts
from policies.own.base import OwnPolicy
from policies.own.checked import Checked, said
from policies.own.choices import options_of
from policies.own.file import PolicyFile, is_own
from policies.own.watch import Watch

# Columns of a policy's own, and the letters of a name of one.
MOST_COLUMNS, LONGEST_COLUMN = 16, 40


def make_any(
    name: str, given: Mapping[str, str], slots: int, costs: StepCosts | None, file: PolicyFile | None
) -> Policy:
    """A fresh policy for one run, the catalog's of this name or that of a file; PolicyError where it cannot be made."""
    if file is None:
        if is_own(name):
            raise PolicyError(f"policy {name} is in a file that is not at hand: name it, --policy ./FILE.py:CLASS")
        return make_policy(name, given, slots, costs)
    return make_own(file, given, slots, costs)


def make_own(file: PolicyFile, given: Mapping[str, str], slots: int, costs: StepCosts | None) -> Checked:
    """A fresh policy of a file; PolicyError, with the line, where it fails while it is made."""
    cls = load(file)
    values = options.read(file.class_name, options_of(cls), given)
    watch = Watch(file.name)
    try:
        with watch.inside("__init__"), stdout_aside():
            policy = cls(slots=slots, costs=costs, **values)
    except (Exception, SystemExit) as error:
        raise PolicyError(said(file, error, "at construction")) from error
    return Checked(file, policy, watch, columns_of(cls))


def canonical_own(file: PolicyFile, given: Mapping[str, str]) -> str:
    """A file's policy as one string: `Mine@3f2a9c1b04de:k=8`, defaults left out."""
    taken = options_of(load(file))
    return options.write(file.name, taken, options.read(file.class_name, taken, given))


def load(file: PolicyFile) -> type:
    """The class of a policy's file, which is run; PolicyError, with the line, where it fails or is no policy."""
    name = f"bench_policy_{file.sha256[:16]}"
    # Run anew for each policy: what one run leaves in it does not reach the next. Dataclasses look it up there.
    module = sys.modules[name] = types.ModuleType(name)
    module.__file__ = file.path
    try:
        with Watch(file.name).inside("the file"), stdout_aside():
            exec(compile(file.text, file.path, "exec"), module.__dict__)  # noqa: S102 - what --policy asks for
    except (Exception, SystemExit) as error:
        raise PolicyError(said(file, error, "as it was loaded")) from error
    cls = getattr(module, file.class_name, None)
    if not isinstance(cls, type):
        raise PolicyError(f"{file.path}: {file.class_name} is no class once the file has run")
    plan = getattr(cls, "plan", None)
    if not callable(plan) or plan is OwnPolicy.plan:
        raise PolicyError(f"{file.path}: class {file.class_name} has no method plan(self, view): write it")
    columns_of(cls)
    return cls


def columns_of(cls: type) -> tuple[str, ...]:
    """The names of its own columns; PolicyError where they are none."""
    names: Any = getattr(cls, "COLUMNS", ())
    fits = isinstance(names, tuple) and len(names) <= MOST_COLUMNS and len(set(names)) == len(names)
    if not fits or not all(
        isinstance(name, str) and name.isascii() and name.isidentifier() and len(name) <= LONGEST_COLUMN
        for name in names
    ):
        raise PolicyError(
            f"class {cls.__name__}: COLUMNS must be a tuple of at most {MOST_COLUMNS} names "
            f"of at most {LONGEST_COLUMN} letters, such as COLUMNS = ('oldest_s',)"
        )
    return names  # type: ignore[no-any-return] # checked above


def stdout_aside() -> contextlib.AbstractContextManager[Any]:
    """What a policy prints goes to standard error: the other is for answers."""
    return contextlib.redirect_stdout(sys.stderr)
