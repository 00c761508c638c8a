"""Profile files of one's own as `--gpu` names them: a path says where one lies, its label is its name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.core.errors import UserError
from harness.core.text import shown, spelled
from harness.profiles.files import load_gpu

ENDING = ".toml"
# Of a name that tables, pages and folders hold.
LONGEST_LABEL = 120


@dataclass(frozen=True, slots=True)
class ProfileFile:
    """A profile file: its path as the user wrote it, the label that its runs go by, the sha256 (hex) of its bytes."""

    path: str
    label: str
    sha256: str


def profile_files(gpus: Iterable[str]) -> dict[str, ProfileFile]:
    """The profile files among what --gpu names, by their labels.

    UserError where one cannot be read or is no profile, and where two have one label: their runs could not be told
    apart.
    """
    found: dict[str, ProfileFile] = {}
    for gpu in gpus:
        if not gpu.endswith(ENDING):
            continue
        label = load_gpu(gpu).label
        if not label.strip() or len(label) > LONGEST_LABEL:
            raise UserError(
                f"{spelled(gpu)}: label is {shown(label)}: runs go by it: write 1 to {LONGEST_LABEL} characters"
            )
        if label in found:
            raise UserError(
                f"--gpu {spelled(gpu)}: has the same label as {spelled(found[label].path)} ({spelled(label, 60)}): "
                "give each profile a label of its own"
            )
        found[label] = ProfileFile(gpu, label, digest_of(gpu))
    return found


def digest_of(path: str) -> str:
    """The sha256 (hex) of a profile file's bytes; UserError where it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"{spelled(path)}: cannot be read ({error.strerror})") from None


def labels_of(gpus: Iterable[str], profiles: Mapping[str, ProfileFile]) -> list[str]:
    """What runs call each GPU that --gpu names: the label of a profile file, and any other name as it is."""
    names = {profile.path: label for label, profile in profiles.items()}
    return [names.get(gpu, gpu) for gpu in gpus]
