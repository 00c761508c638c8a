"""The one door for text that comes from a server: what is secret is masked, control characters are shown, then cut."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from harness.core.masking import MASK, SHAPES
from harness.core.text import one_line

KEY = "[key]"
# A shorter one would be found in words.
_SHORTEST = 6


@dataclass(frozen=True, slots=True)
class Door:
    """Lets text in without the secrets of a run, however they are written in it."""

    pattern: re.Pattern[str] | None

    @classmethod
    def of(cls, secrets: Iterable[str]) -> Door:
        """A door for these; one of fewer than six letters is let through, since words hold such."""
        long = sorted({one for one in secrets if len(one) >= _SHORTEST}, key=len, reverse=True)
        return cls(re.compile("|".join(map(re.escape, long)), re.IGNORECASE) if long else None)

    def line(self, text: str, most: int = 300) -> str:
        """A text as one line of at most so many letters."""
        # What has a secret's shape may be another's: of a log that the server shows.
        shown = one_line(" ".join(SHAPES.sub(MASK, self.mask(text)).split()))
        return shown if len(shown) <= most else f"{shown[: most - 1]}…"

    def mask(self, text: str) -> str:
        """A text whole, with a word in the place of each secret."""
        return text if self.pattern is None else self.pattern.sub(KEY, text)

    def hides(self, text: str) -> bool:
        """Whether a text has a secret in it."""
        return self.pattern is not None and self.pattern.search(text) is not None
