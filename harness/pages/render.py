"""From templates to files: text is escaped, numbers are written one way, files that stay equal are not touched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jinja2

from harness.measure.metrics import METRICS
from harness.pages.assets import site_directory


def environment() -> jinja2.Environment:
    """Jinja2 with escaping everywhere, undefined names as errors, and the site's filters."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(site_directory() / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"number": number, "change": change, "seconds": seconds, "exact": exact}
    env.globals["METRICS"] = METRICS
    return env


def number(value: float | None, digits: int = 4) -> str:
    """A number for eyes: grouped thousands, four digits, a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def seconds(value: float | None) -> str:
    """A time with its unit: milliseconds under one second."""
    if value is None:
        return "–"
    return f"{number(value * 1e3, 3)} ms" if abs(value) < 1 else f"{number(value, 3)} s"


def change(ratio: float | None) -> str:
    """A ratio as a change in percent, as a factor beyond ten."""
    if ratio is None:
        return "–"
    return f"×{ratio:,.3g}" if ratio > 10 else f"{100 * (ratio - 1):+.1f} %"


def exact(value: float | None) -> str:
    """A number as an input holds it: the shortest form that reads back the same, nothing where there is none."""
    return "" if value is None else repr(value)


class Writer:
    """Writes the site: only what changed touches the disk, and what no page names any more is taken away."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.env = environment()
        self.written = 0
        self._kept: set[Path] = set()

    def page(self, name: str, template: str, **values: Any) -> None:
        """Renders a template to `name`, a path under the site; links go through `root` (the way back to the top)."""
        root = "../" * name.count("/")
        text = self.env.get_template(template).render(root=root, page=name, **values)
        self.file(name, text.encode())

    def file(self, name: str, data: bytes) -> None:
        """Puts bytes at a path under the site."""
        path = self.out / name
        self._kept.add(path)
        if path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        self.written += 1

    def copy(self, name: str, source: Path) -> None:
        """Puts a copy of a file at a path under the site, unless one of the same size and time is there."""
        path = self.out / name
        self._kept.add(path)
        there, here = path.stat() if path.is_file() else None, source.stat()
        if there and (there.st_size, there.st_mtime_ns) == (here.st_size, here.st_mtime_ns):
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)
        self.written += 1

    def sweep(self) -> None:
        """Takes away files of earlier builds that this one did not make."""
        for path in sorted(self.out.rglob("*"), reverse=True):
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in self._kept:
                path.unlink()
