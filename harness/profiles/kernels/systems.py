"""The GPUs of the measured tables, and what of their chips decides what a mixed call costs."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class System:
    """A GPU in the package of tables: its folder there, the vLLM that was measured, and that of its all-reduces.

    `sms` streaming multiprocessors and `l2_bytes` of level-2 cache enter the law of mixed calls alone; they are 0
    where no law reads them. `checked` says whether the law was held against mixed calls measured on this GPU.
    """

    folder: str
    version: str
    all_reduce_version: str
    sms: int
    l2_bytes: int
    checked: bool
    source: str


# vLLM 0.24.0 is the current collection of the package; the A100 has an older one, and the L40S older all-reduces.
SYSTEMS: dict[str, System] = {
    "a100": System(
        "a100_sxm", "0.14.0", "0.14.0", 108, 40 * MIB, False, "NVIDIA A100 architecture white paper: 108 SMs, 40 MB L2"
    ),
    "h100": System(
        "h100_sxm", "0.24.0", "0.24.0", 132, 50 * MIB, False, "NVIDIA H100 architecture white paper: 132 SMs, 50 MB L2"
    ),
    "h200": System(
        "h200_sxm", "0.24.0", "0.24.0", 132, 50 * MIB, False, "the H100's chip: 132 SMs, 50 MB L2 (white paper)"
    ),
    "l40s": System(
        "l40s", "0.24.0", "0.22.0", 142, 96 * MIB, False, "NVIDIA Ada architecture white paper: 142 SMs, 96 MB L2"
    ),
    "rtxpro6000": System(
        "rtx_pro_6000_server",
        "0.24.0",
        "0.24.0",
        188,
        128 * MIB,
        True,
        "NVIDIA RTX Blackwell PRO architecture white paper: 188 SMs, 128 MB L2",
    ),
    "b200": System("b200_sxm", "0.24.0", "0.24.0", 0, 0, False, "no law of mixed calls: not read"),
    "b300": System("b300_sxm", "0.24.0", "0.24.0", 0, 0, False, "no law of mixed calls: not read"),
    "gb200": System("gb200", "0.24.0", "0.24.0", 0, 0, False, "no law of mixed calls: not read"),
    "gb300": System("gb300", "0.24.0", "0.24.0", 0, 0, False, "no law of mixed calls: not read"),
}
