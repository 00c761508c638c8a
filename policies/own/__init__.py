"""A policy of one's own in one file: what such a file imports, and how it is read, checked, made and asked.

from policies.own import MIXED, OwnPolicy, StepPlan, View
"""

from policies.core import (
    DECODE,
    MIXED,
    UNLIMITED,
    Order,
    PartialPrefill,
    Phase,
    PolicyState,
    StepCosts,
    StepPlan,
    TimedView,
    WaitingRequest,
)
from policies.online.orders import Ranked
from policies.options import Option
from policies.own.base import OwnPolicy

PREFILL = StepPlan(Phase.PREFILL, UNLIMITED)
View = TimedView

__all__ = [
    "DECODE",
    "MIXED",
    "PREFILL",
    "UNLIMITED",
    "Option",
    "Order",
    "OwnPolicy",
    "PartialPrefill",
    "Phase",
    "PolicyState",
    "Ranked",
    "StepCosts",
    "StepPlan",
    "View",
    "WaitingRequest",
]
