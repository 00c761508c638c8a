"""The host's time: what a step takes besides the GPU, a figure of the machine that serves."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.core.errors import UserError
from harness.core.text import shown

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6}
# A host that took longer for a step would serve nobody.
LONGEST_S = 1.0
_PART = re.compile(r"(t0|h)=([0-9.eE+-]+?)(s|ms|us|µs|)")


@dataclass(frozen=True, slots=True)
class Host:
    """The host's time: `step_s` t0 of each step, `decode_s` h of each decode in it."""

    step_s: float = 2.5e-3
    decode_s: float = 5e-6

    @property
    def canonical(self) -> str:
        """The text that `read_host` reads as this, equal for equal hosts; empty for the default."""
        return "" if self == Host() else f"t0={self.step_s:g},h={self.decode_s:g}"


def read_host(text: str) -> Host:
    """`t0=1ms,h=5us` as a host, seconds where no unit stands; what is not given is the default. UserError otherwise."""
    found: dict[str, float] = {}
    for part in text.split(",") if text else []:
        match = _PART.fullmatch(part.strip())
        try:
            seconds = float(f"{float(match[2]) * UNITS[match[3]]:.12g}") if match else -1.0
        except ValueError:
            seconds = -1.0
        if match is None or not 0 <= seconds <= LONGEST_S or match[1] in found:
            raise UserError(f"--host {shown(text)}: write t0=2.5ms,h=5us, each once, up to {LONGEST_S:g} s")
        found[match[1]] = seconds
    default = Host()
    return Host(found.get("t0", default.step_s), found.get("h", default.decode_s))
