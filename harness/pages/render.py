"""From templates to files: text is escaped, numbers are written one way, files that stay equal are not touched."""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import jinja2

from harness.core.errors import UserError
from harness.core.text import visible
from harness.measure.metrics import METRICS
from harness.pages.assets import site_directory
from harness.pages.boards import Change
from harness.pages.facets import settings_words
from harness.pages.fidelity import signs_of
from harness.pages.numbers import change, exact, load_words, number, rate_words, seconds
from harness.pages.traffic import gpu_label, model_label, slo_words, workload_words
from harness.pages.words import KINDS, LEVELS, MARKS, TRUST, kind_title
from harness.published.cache import JsonCache
from harness.published.corpus import FILES, PublishedRun
from harness.runs.run import slug


@functools.cache
def environment(standalone: bool = False) -> jinja2.Environment:
    """Jinja2 with escaping everywhere, undefined names as errors, and the site's filters."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(site_directory() / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {"number": number, "change": change, "seconds": seconds, "exact": exact, "bar": bar, "slug": slug}
    env.filters |= {"settings": settings_words, "gpu": gpu_label, "model": model_label, "workload": workload_words}
    env.filters |= {
        "load": load_words,
        "limits": slo_words,
        "kind_title": kind_title,
        "files": _files,
        "rate": rate_words,
        "signs": signs_of,
    }
    env.globals |= {"METRICS": METRICS, "KINDS": KINDS, "LEVELS": LEVELS, "TRUST": TRUST, "MARKS": MARKS}
    # A report is one file and links to no other page.
    env.globals |= {"standalone": standalone}
    return env


def bar(change: Change, scale: float) -> tuple[float, float, float | None, float | None]:
    """A change as a bar 120 wide with no change in its middle: x and width, and the ends of its interval.

    `scale` is the |ln ratio| of half the width; what is beyond it ends at the edge.
    """

    def place(ratio: float) -> float:
        share = math.log(ratio) / scale if ratio > 0 else -1.0
        return round(60 + 58 * max(-1.0, min(1.0, share)), 1)

    at = place(change.ratio or 1.0)
    ends = (None, None) if change.low is None or change.high is None else (place(change.low), place(change.high))
    return min(at, 60.0), round(abs(at - 60.0), 1), *ends


def _files(published: PublishedRun) -> list[str]:
    """The raw files of a run, those for programs first and its tables last."""
    return [name for name in FILES if (published.run.path / name).is_file()]


def _shown(value: Any) -> Any:
    """A value as a page shows it: no text turns the direction of writing or hides in it."""
    return visible(value) if type(value) is str else value


class Writer:
    """Writes the site: only what changed touches the disk, and what no page names any more is taken away.

    A file is replaced whole, so that a build that is killed leaves no half of one.
    """

    def __init__(self, out: Path, cache: JsonCache) -> None:
        self.out = out
        self.env = environment()
        self.written = 0
        self._cache = cache
        self.names: set[str] = set()

    def page(self, name: str, template: str, **values: Any) -> None:
        """Renders a template to `name`, a path under the site; links go through `root` (the way back to the top)."""
        root = "../" * name.count("/")
        text = self.env.get_template(template).render(root=root, page=name, **values)
        self.file(name, text.encode())

    def page_of(self, name: str, template: str, made_of: Any, values: Callable[[], dict[str, Any]]) -> None:
        """Like `page`, but rendered only where `made_of` (JSON values that decide the page) or the file changed."""
        if self.is_current(name, template, made_of):
            self.names.add(name)
            return
        self.page(name, template, **values())
        self._cache.put(_key(name, template, made_of), self._digest(name))

    def is_current(self, name: str, template: str, made_of: Any) -> bool:
        """Whether a page is there as these values gave it."""
        is_kept, kept_digest = self._cache.look_up(_key(name, template, made_of))
        return is_kept and self._digest(name) == kept_digest

    def take_over(self, names: set[str], written: int, used: set[str]) -> None:
        """What another process wrote or left as it was, and the keys of the cache that it asked for."""
        self.names |= names
        self.written += written
        self._cache.add_used(used)

    def file(self, name: str, data: bytes) -> None:
        """Puts bytes at a path under the site."""
        self.names.add(name)
        if self._bytes(name) == data:
            return
        path = self.out / name
        with self._part(path) as part:
            part.write_bytes(data)
            part.replace(path)
        self.written += 1

    def copy(self, name: str, source: Path) -> None:
        """Puts a copy of a file at a path under the site, unless one of the same size and time is there."""
        self.names.add(name)
        path = self.out / name
        with contextlib.suppress(FileNotFoundError):
            copied, original = path.lstat(), source.stat()
            if (copied.st_size, copied.st_mtime_ns) == (original.st_size, original.st_mtime_ns):
                return
        with self._part(path) as part:
            shutil.copyfile(source, part)
            shutil.copystat(source, part)
            part.replace(path)
        self.written += 1

    def sweep(self) -> None:
        """Takes away files of earlier builds that this one did not make."""
        for directory, below, files in os.walk(self.out, topdown=False):
            below_out = os.path.relpath(directory, self.out)
            for name in files:
                if os.path.normpath(os.path.join(below_out, name)) not in self.names:
                    os.unlink(os.path.join(directory, name))
            for name in below:
                path = os.path.join(directory, name)
                if os.path.islink(path):
                    os.unlink(path)
            if directory != str(self.out) and not os.listdir(directory):
                os.rmdir(directory)

    def _bytes(self, name: str) -> bytes | None:
        """The bytes of a plain file under the site, None where there is none."""
        path = self.out / name
        return path.read_bytes() if path.is_file() and not path.is_symlink() else None

    def _digest(self, name: str) -> str | None:
        data = self._bytes(name)
        return None if data is None else sha256(data).hexdigest()

    @contextlib.contextmanager
    def _part(self, path: Path) -> Iterator[Path]:
        """Where a file is written before it takes its place; UserError where it cannot be, and nothing stays of it."""
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield part
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            why = error.strerror or error
            raise UserError(f"{path}: cannot be written ({why}): make room, or give another --out") from None


def _key(name: str, template: str, made_of: Any) -> str:
    return sha256(json.dumps([name, template, made_of]).encode()).hexdigest()
