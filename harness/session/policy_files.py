"""Policies in files of one's own as `--policy` names them: read once, so that every repeat runs the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.core.errors import UserError
from harness.core.runspec import RunSpec
from harness.core.text import spelled
from policies import options
from policies.own.file import PolicyFile, is_file, is_own, read_file, split
from policies.own.load import canonical_own

# Engines that ask a policy a step at a time.
ASKING = ("simulated", "emulated", "vllm")


def named_policies(texts: Sequence[str], engine: str) -> tuple[list[str], dict[str, PolicyFile]]:
    """The policies with those in files by their canonical names, and the files by the names `Mine@3f2a9c1b04de`.

    UserError or PolicyError where a file holds no such policy, or one is named that this engine does not ask.
    """
    names: list[str] = []
    files: dict[str, PolicyFile] = {}
    for text in texts:
        if engine == "endpoint" or not (is_file(text) or is_own(text)):
            names.append(text)
            continue
        if not is_file(text):
            raise UserError(f"policy {spelled(text, 80)}: name its file: --policy ./FILE.py:CLASS,key=value")
        if engine not in ASKING:
            raise UserError(f"policy {spelled(text, 80)}: a file's policy goes with --engine {', '.join(ASKING)}")
        path, class_name, rest = split(text)
        file = read_file(path, class_name)
        names.append(canonical_own(file, options.split(f"{class_name}:{rest}")[1]))
        files[file.name] = file
    return names, files


def file_of(spec: RunSpec, files: Mapping[str, PolicyFile]) -> PolicyFile | None:
    """The file of a run's policy, seen to hold what it held; None for a policy of the catalog."""
    if not spec.policy_sha256:
        return None
    name = spec.policy.partition(":")[0]
    file = files.get(name)
    if file is None:
        raise UserError(
            f"policy {name}: its file was edited since the run was planned: it is another policy: run again"
        )
    file.check_unchanged()
    return file


def sha256_of(policy: str, files: Mapping[str, PolicyFile]) -> str:
    """The digest of a policy's file by the policy's canonical name, empty for one of the catalog."""
    file = files.get(policy.partition(":")[0])
    return file.sha256 if file is not None else ""
