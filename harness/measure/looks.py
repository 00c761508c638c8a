"""Looking at repeats before all of them are there: the chance of a false word that each look may spend.

A confidence sequence by the union bound (Darling and Robbins, 1967): the j-th look may spend 6/(pi j)^2 of one chance
in twenty, which sums to one over all looks, so that intervals hold at whatever look the repeats end.
"""

from __future__ import annotations

import math

# Repeats after which somebody looks; the last are the most.
LOOKS = (3, 5, 8, 12, 18, 27, 40)


def share_of_look(repeats: int) -> float | None:
    """The share of the chance that a look after so many repeats may spend; None before the first."""
    looks = sum(repeats >= look for look in LOOKS)
    return 6 / (math.pi * looks) ** 2 if looks else None
