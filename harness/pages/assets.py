"""Where the templates and the assets lie: beside the sources in a checkout, inside the package once installed."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from harness.core.errors import UserError


def site_directory() -> Path:
    """The directory with `templates` and `assets`; UserError where an installation lacks it."""
    package = Path(__file__).resolve().parent
    for root in (package / "site", package.parents[1] / "site"):
        if (root / "templates").is_dir():
            return root
    raise UserError("the site's templates are not there: install schedbench again")


def changes_file() -> Path | None:
    """CHANGELOG.md of the checkout or the package, None where neither has one."""
    return _found("CHANGELOG.md", "CHANGELOG.md")


def document(name: str) -> str:
    """A document of docs/ that pages tell from; empty where neither checkout nor package has it."""
    path = _found(name, f"docs/{name}")
    return path.read_text(encoding="utf-8") if path else ""


def _found(packaged: str, checked_out: str) -> Path | None:
    package = Path(__file__).resolve().parent
    places = (package / "site" / packaged, package.parents[1] / checked_out)
    return next((path for path in places if path.is_file()), None)


@functools.cache
def code_digest() -> str:
    """Digest of the code and templates that decide what a cache keeps and what pages look like."""
    harness = Path(__file__).resolve().parents[1]
    policies = harness.parent / "policies"
    code = [path for kind in ("py", "toml", "parquet") for path in harness.rglob(f"*.{kind}")]
    code += policies.rglob("*.py")
    sha = hashlib.sha256(document("fidelity.md").encode())
    for path in [*sorted(code), *sorted((site_directory() / "templates").rglob("*.j2"))]:
        sha.update(f"{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return sha.hexdigest()[:16]
