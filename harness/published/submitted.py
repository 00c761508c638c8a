"""A run under a policy of its author's own: its file is kept beside the tables and is never run to show it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from harness.core.errors import USER_ERRORS, UserError
from harness.core.files import read_whole
from harness.runs.run import POLICY_FILE, Run
from policies import options
from policies.own.file import LARGEST_BYTES, PolicyFile, is_own, name_of, of_bytes


@dataclass(frozen=True, slots=True)
class Submission:
    """Whose code decided a run: class and options as the run's name has them, the file's sha256 (hex) and text."""

    class_name: str
    options: dict[str, str]
    sha256: str
    text: str
    columns: tuple[str, ...]


def is_submitted(run: Run) -> bool:
    """Whether the run's policy is in a file of its author's."""
    return run.kind != "reported" and bool(run.spec.policy_sha256)


def submission_of(run: Run) -> Submission | None:
    """What a page tells of a submitted policy; None of a run under one of the catalog, or whose file is not there."""
    if not is_submitted(run):
        return None
    try:
        file = file_in(run)
        return Submission(
            file.class_name, options.split(run.spec.policy)[1], file.sha256, file.text, tuple(columns_of(run))
        )
    except USER_ERRORS:
        return None


def columns_of(run: Run) -> list[str]:
    """The names of the policy's own columns, as its run.json has them; none where they are no names."""
    columns: Any = run.manifest.get("provenance", {}).get("policy_columns")
    fits = isinstance(columns, list) and len(columns) <= 16
    if not fits or not all(isinstance(name, str) and name.isidentifier() and len(name) <= 40 for name in columns):
        return []
    return list(columns)


def file_in(run: Run) -> PolicyFile:
    """The policy's file in a run's directory, read and not run; USER_ERRORS where it is no policy's file."""
    class_name = run.spec.policy.partition("@")[0]
    path = run.path / POLICY_FILE
    try:
        data = read_whole(path)
    except OSError as error:
        raise UserError(f"{POLICY_FILE}: cannot be read ({error.strerror or error})") from None
    return of_bytes(str(path), class_name, data)


def fault_of(run: Run) -> str | None:
    """Why the policy's file in a run's directory is not the one that its spec names; None where it is."""
    spec = run.spec
    there = os.path.lexists(run.path / POLICY_FILE)
    if not spec.policy_sha256:
        if there:
            return f"{POLICY_FILE}: the spec names no policy in a file: delete it"
        # At an endpoint the policy is a label.
        lacks = is_own(spec.policy) and spec.engine != "endpoint"
        return "the spec names a policy in a file and has no policy_sha256" if lacks else None
    if not there:
        return f"{POLICY_FILE}: not there: a run under a policy of one's own is published with it"
    try:
        if os.lstat(run.path / POLICY_FILE).st_size > LARGEST_BYTES:
            return f"{POLICY_FILE}: more than {LARGEST_BYTES >> 10} KiB"
        file = file_in(run)
        options.split(spec.policy)
    except USER_ERRORS as error:
        why = str(error).removeprefix(f"{run.path / POLICY_FILE}: ")
        return f"{POLICY_FILE}: no policy's file ({why[:160]})"
    if file.sha256 != spec.policy_sha256:
        return f"{POLICY_FILE}: its sha256 is {file.sha256[:12]}…, the spec has {spec.policy_sha256[:12]}…"
    if spec.policy.partition(":")[0] != name_of(file.class_name, file.sha256):
        return f"the policy goes by {spec.policy[:60]}, its file by {name_of(file.class_name, file.sha256)}"
    return None
