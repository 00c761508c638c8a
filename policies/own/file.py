"""A policy's file: read once, checked without being run, known by its digest from then on."""

from __future__ import annotations

import ast
import hashlib
import sys
from dataclasses import dataclass
from pathlib import Path

from policies.core import PolicyError

ENDING = ".py"
# Of a policy that is read by people as well.
LARGEST_BYTES = 256 << 10
# The hex digits of the digest that stand in a policy's name.
SHORT = 12
LONGEST_CLASS = 60
# What a policy may import beside the standard library: it rides inside vLLM, where nothing else need be.
ALLOWED = "policies"


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A class in a file: where the file lies, its text, and the sha256 (hex) of its bytes."""

    path: str
    class_name: str
    text: str
    sha256: str

    @property
    def name(self) -> str:
        """What its runs go by: `Mine@3f2a9c1b04de`, so that two files with one class name are two policies."""
        return name_of(self.class_name, self.sha256)

    def check_unchanged(self) -> None:
        """PolicyError where the file has other bytes by now."""
        if read_bytes(self.path) != self.text.encode():
            raise PolicyError(
                f"{self.path}: edited since this command began: what it holds now is another policy: run again"
            )


def name_of(class_name: str, sha256: str) -> str:
    """The name of a policy in a file, of its class and the file's sha256 (hex)."""
    return f"{class_name}@{sha256[:SHORT]}"


def is_file(text: str) -> bool:
    """Whether a policy as the user wrote it names a file: `./mine.py:Mine,k=8`."""
    return text.partition(":")[0].strip().endswith(ENDING)


def is_own(name: str) -> bool:
    """Whether a policy's canonical name is that of one in a file."""
    return "@" in name.partition(":")[0]


def split(text: str) -> tuple[str, str, str]:
    """Path, class and options of `./mine.py:Mine,k=8`, the options as `k=8`; the class empty where none is named."""
    path, _, rest = text.partition(":")
    class_name, comma, options = rest.partition(",")
    if not comma or ":" in class_name:
        class_name, _, options = rest.partition(":")
    return path.strip(), class_name.strip(), options.strip()


def read_file(path: str, class_name: str) -> PolicyFile:
    """The file with a policy of this class, seen to be Python that imports nothing foreign; PolicyError elsewhere."""
    return of_bytes(path, class_name, read_bytes(path))


def read_bytes(path: str) -> bytes:
    """The bytes of a policy's file; PolicyError where it cannot be read or is no size for a policy."""
    try:
        with Path(path).expanduser().open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise PolicyError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    if len(data) > LARGEST_BYTES:
        raise PolicyError(f"{path}: more than {LARGEST_BYTES >> 10} KiB: a policy's file is for people to read")
    return data


def of_bytes(path: str, class_name: str, data: bytes) -> PolicyFile:
    """The same of a file's bytes."""
    try:
        text = data.decode()
        tree = ast.parse(text, path)
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: not UTF-8: save it as UTF-8") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f"line {line}: " if line else ""
        raise PolicyError(f"{path}: {where}{getattr(error, 'msg', None) or error}: it is no Python") from None
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    listed = f"it has {', '.join(classes)}" if classes else "it has no class"
    if not class_name:
        example = classes[-1] if classes else "Mine"
        raise PolicyError(f"{path}: name the policy's class ({listed}): --policy {path}:{example}")
    if class_name not in classes:
        raise PolicyError(f"{path}: no class {class_name[:LONGEST_CLASS]}: {listed}")
    if len(class_name) > LONGEST_CLASS or not class_name.isascii():
        raise PolicyError(f"{path}: class {class_name[:LONGEST_CLASS]}: at most {LONGEST_CLASS} ASCII letters")
    _check_imports(path, tree)
    return PolicyFile(path, class_name, text, hashlib.sha256(data).hexdigest())


def _check_imports(path: str, tree: ast.Module) -> None:
    """PolicyError, with the line, for an import that the engine's environment need not have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = ["." if node.level else node.module or "."]
        else:
            continue
        for name in names:
            top = name.partition(".")[0]
            if top != ALLOWED and top not in sys.stdlib_module_names:
                raise PolicyError(
                    f"{path}: line {node.lineno}: imports {name}: a policy rides inside vLLM, where only the standard "
                    "library and `policies` are sure to be"
                )
