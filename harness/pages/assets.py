"""Where the templates and the assets lie: beside the sources in a checkout, inside the package once installed."""

from __future__ import annotations

from pathlib import Path

from harness.errors import UserError


def site_directory() -> Path:
    """The directory with `templates` and `assets`; UserError where an installation lacks it."""
    here = Path(__file__).resolve().parent
    for root in (here / "site", here.parents[1] / "site"):
        if (root / "templates").is_dir():
            return root
    raise UserError("the site's templates are not there: install schedbench again")


def plotly_script() -> bytes:
    """Plotly's own script as its Python package carries it: the site's one local copy."""
    import importlib.resources

    return (importlib.resources.files("plotly") / "package_data" / "plotly.min.js").read_bytes()


def changes_file() -> Path | None:
    """CHANGELOG.md of the checkout or the package, None where neither has one."""
    here = Path(__file__).resolve().parent
    found = (here / "site" / "CHANGELOG.md", here.parents[1] / "CHANGELOG.md")
    return next((path for path in found if path.is_file()), None)
