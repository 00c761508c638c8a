"""Every policy by name: its options, where it comes from, and how to make one."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from policies.core import Policy, PolicyError, StepCosts
from policies.online.controller import ControlOptions, FixedController, OnlineController
from policies.online.ebplus import EBPlus
from policies.online.exclusive import Exclusive
from policies.online.guard import PLAN, GuardOptions
from policies.online.isjl import Isjl
from policies.online.mixed import Mixed
from policies.online.orders import Ranked, expected

LARGEST = 10**9
EB_PAPER = "arXiv 2606.00516"
FAIR_PAPER = "arXiv 2608.02244"
# What a policy does with the output lengths that `--lengths` makes known.
IGNORED, USED, NEEDED = "ignored", "used", "needed"

# Settings of vLLM's own scheduler, which no engine of ours can run.
STOCK, INTERVAL = "stock", "v1-interval"
VLLM_OWN = (STOCK, INTERVAL)


@dataclass(frozen=True, slots=True)
class Option:
    """One option: how it is read, what holds without it, and what it may be."""

    name: str
    read: Callable[[str], Any]
    default: Any
    help: str
    check: Callable[[Any], bool] = lambda _: True
    must: str = ""
    required: bool = False
    needs_lengths: bool = False


@dataclass(frozen=True, slots=True)
class Setting:
    """What a policy is made for: the engine's slots N and the step costs, None where no profile gives them."""

    slots: int
    costs: StepCosts | None


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """A line of the catalog."""

    name: str
    summary: str
    source: str
    options: tuple[Option, ...]
    make: Callable[[dict[str, Any], Setting], Policy]
    lengths: str = IGNORED


class Entry(Protocol):
    """What reading a policy's options takes of its entry, in this catalog or another (`policies.offline`)."""

    @property
    def name(self) -> str:
        """The canonical name."""

    @property
    def options(self) -> tuple[Option, ...]:
        """What may follow the name."""


AnEntry = TypeVar("AnEntry", bound=Entry)


def _share(name: str, default: float | None, help_: str) -> Option:
    return Option(name, float, default, help_, lambda x: 0 < x < 1, "between 0 and 1")


def _count(name: str, default: int | None, help_: str) -> Option:
    return Option(name, int, default, help_, lambda x: 1 <= x <= LARGEST, f"a whole number of 1 to {LARGEST}")


def _word(name: str, default: str, other: str, help_: str) -> Option:
    return Option(name, str, default, help_, lambda x: x in (default, other), f"{default} or {other}")


_CONTROL = (
    _share("theta_min", 0.01, "lowest threshold θ*"),
    _share("theta_max", 0.8, "highest threshold θ*"),
    _share("theta_init", 0.7, "threshold until 30 requests have completed"),
    _share("epsilon", 0.01, "accepted probability of exceeding the KV cache, in N*"),
    _count("update_every", 100, "completions between updates"),
    _count("window", 500, "completions that the estimates look back on"),
    Option(
        "correction",
        str,
        "first_order",
        "first_order or none: the correction Δθ for an increasing hazard",
        lambda x: x in ("first_order", "none"),
        "first_order or none",
    ),
)


# With a fixed k only the estimate behind the KV reserve is left to shape.
_WITH_FIXED_K = ("update_every", "window")


def _control(options: Mapping[str, Any]) -> ControlOptions:
    control = ControlOptions(**{option.name: options[option.name] for option in _CONTROL})
    if control.theta_min > control.theta_max:
        raise PolicyError(f"theta_min={control.theta_min} is above theta_max={control.theta_max}: swap them")
    return control


def _online(options: dict[str, Any], setting: Setting) -> OnlineController:
    if setting.costs is None:
        raise PolicyError("this policy needs the step costs of a GPU and model: name both, or give a fixed k (eb:k=32)")
    return OnlineController(_control(options), setting.costs)


def _eb(options: dict[str, Any], setting: Setting) -> Policy:
    k, theta = options["k"], options["theta"]
    if k is not None and theta is not None:
        raise PolicyError("eb takes k or theta, not both")
    if theta is not None:
        k = max(1, math.floor(theta * setting.slots + 1e-9))  # 0.29 · 100 is 28.999… in doubles
    if k is None:
        return Exclusive(_online(options, setting))
    for option in _CONTROL:
        if option.name not in _WITH_FIXED_K and options[option.name] != option.default:
            raise PolicyError(
                f"eb: {option.name} shapes the online threshold and does nothing with a fixed k: leave out one"
            )
    if k > setting.slots:
        raise PolicyError(
            f"eb: k={k} is above the {setting.slots} slots: it could never be reached; lower k or raise --slots"
        )
    return Exclusive(FixedController(k, _control(options)))


def _ebplus(options: dict[str, Any], setting: Setting) -> Policy:
    controller = _online(options, setting)
    assert setting.costs is not None
    return EBPlus(controller, setting.costs, options["delta"], options["smoothing"], options["cooldown"])


def _v0(options: dict[str, Any], setting: Setting) -> Policy:
    return Exclusive(FixedController(1, ControlOptions()))


def _v1(options: dict[str, Any], setting: Setting) -> Policy:
    return Mixed()


def _sjf(options: dict[str, Any], setting: Setting) -> Policy:
    return Mixed(Ranked(expected))


def _ljf(options: dict[str, Any], setting: Setting) -> Policy:
    # Nobody starts beside one that is a token further: ISJL with α = 0.
    return Isjl(GuardOptions(0, plan=0.0, exclusive=True))


def _isjl(options: dict[str, Any], setting: Setting) -> Policy:
    return Isjl(
        GuardOptions(
            options["alpha"],
            options["footprint"] == "kv",
            options["plan"],
            options["max_wait"],
            options["guard"] == "lenient",
            options["prefill"] == "exclusive",
        )
    )


def _vllm_alone(options: dict[str, Any], setting: Setting) -> Policy:
    raise PolicyError("this is a setting of vLLM's own scheduler and no policy of ours: it goes with --engine vllm")


POLICIES: dict[str, PolicyEntry] = {
    entry.name: entry
    for entry in (
        PolicyEntry(
            "v0",
            "prefill first, alone, as soon as a slot is free: EB with k = 1",
            f"{EB_PAPER}; vLLM v0",
            (),
            _v0,
        ),
        PolicyEntry(
            "v1",
            "mixed batching: prefill chunks and decodes share each step, first come first served",
            "vLLM v1",
            (),
            _v1,
        ),
        PolicyEntry(
            "eb",
            "exclusive batching: prefill and decode take turns, with a fixed k or the online k*",
            f"{EB_PAPER}, EB(k) and EB(k*)",
            (
                _count(
                    "k",
                    None,
                    "free slots that trigger a prefill phase; without it (and theta) k* is found online",
                ),
                _share("theta", None, "the same as a share of the slots: k = floor(theta·N)"),
                *_CONTROL,
            ),
            _eb,
        ),
        PolicyEntry(
            "ebplus",
            "mixed or exclusive batching with k*, whichever the crossover inequality favours",
            f"{EB_PAPER}, EB+",
            (
                Option(
                    "delta",
                    float,
                    0.0,
                    "s/token added to the side of mixed batching: above 0 favours TTFT, below throughput",
                    math.isfinite,
                    "a finite number",
                ),
                Option(
                    "smoothing",
                    float,
                    0.1,
                    "weight of one step in the smoothed number of running requests",
                    lambda x: 0 < x <= 1,
                    "above 0 and at most 1",
                ),
                _count("cooldown", 3, "updates in a row that must favour the other mode before it changes"),
                *_CONTROL,
            ),
            _ebplus,
        ),
        PolicyEntry(
            "sjf",
            "shortest job first: mixed batching, the least expected output first",
            "classical",
            (),
            _sjf,
            NEEDED,
        ),
        PolicyEntry(
            "ljf",
            "longest job first, batch after batch: nobody starts while anyone decodes, so all have equal progress",
            f"{FAIR_PAPER}, LJF",
            (),
            _ljf,
            NEEDED,
        ),
        PolicyEntry(
            "isjl",
            "no two that decode together are ever more than alpha tokens apart: long ones first, shorts before them",
            f"{FAIR_PAPER}, ISJL",
            (
                Option(
                    "alpha",
                    int,
                    None,
                    "the largest gap, tokens",
                    lambda x: 0 <= x <= LARGEST,
                    f"a whole number of 0 to {LARGEST}",
                    required=True,
                ),
                _word("footprint", "decode", "kv", "decode or kv: gaps in output tokens, or in prompt plus output"),
                Option(
                    "plan",
                    float,
                    PLAN,
                    "share of alpha that shorts may take before a long one",
                    lambda x: 0 <= x <= 1,
                    "0 to 1",
                    needs_lengths=True,
                ),
                _count("max_wait", 5000, "decode steps after which a waiting request lets nobody past"),
                _word("guard", "strict", "lenient", "strict or lenient: whether a late long one waits or starts"),
                _word("prefill", "mixed", "exclusive", "mixed or exclusive: whether decoding goes on during prefill"),
            ),
            _isjl,
            USED,
        ),
        PolicyEntry(
            STOCK,
            "vLLM untouched: what our scheduler and its log cost is the difference to v1 (--engine vllm)",
            "vLLM",
            (),
            _vllm_alone,
        ),
        PolicyEntry(
            INTERVAL,
            "vLLM's own mixed batching, prefill only every n-th step (--engine vllm, vLLM 0.33 or newer)",
            "vLLM, prefill_schedule_interval",
            (_count("n", 4, "steps from one that may prefill to the next"),),
            _vllm_alone,
        ),
    )
}

ALIASES = {"fcfs": "v1"}


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.4)
    return f"did you mean {close[0]}? " if close else ""


# Schedules made of all requests at once: no engine that meets them one by one can follow them.
OFFLINE_ONLY = ("isjl-best", "isjl-paper")


def find_policy(name: str) -> PolicyEntry:
    """The catalog's entry; PolicyError with the nearest name where there is none."""
    if name.lower() in OFFLINE_ONLY:
        raise PolicyError(f"{name} plans all requests at once, before any runs: it needs --engine tokenstep")
    return find_entry(name, POLICIES)


def find_entry(name: str, catalog: Mapping[str, AnEntry]) -> AnEntry:
    """A catalog's entry; PolicyError with the nearest name where there is none."""
    name = ALIASES.get(name.lower(), name.lower())
    if name not in catalog:
        known = [*catalog, *(alias for alias, meant in ALIASES.items() if meant in catalog)]
        raise PolicyError(f"unknown policy {name!r}: {_nearest(name, known)}known are {', '.join(known)}")
    return catalog[name]


def read_options(name: str, given: Mapping[str, str], entry: Entry | None = None) -> dict[str, Any]:
    """Every option of the policy, the given ones read and checked; PolicyError names the option and what it must be."""
    entry = entry or find_policy(name)
    known = {option.name: option for option in entry.options}
    for key in given:
        if key not in known:
            options = f"its options are {', '.join(known)}" if known else "it takes no options"
            raise PolicyError(f"{name}: unknown option {key!r}: {_nearest(key, list(known))}{options}")
    for option in entry.options:
        if option.required and option.name not in given:
            raise PolicyError(f"{name} needs {option.name}=…, {option.help}: such as {name}:{option.name}=100")
    values = {key: option.default for key, option in known.items()}
    for key, text in given.items():
        option = known[key]
        try:
            value = option.read(text)
        except ValueError:
            value = None
        if value is None or not option.check(value):
            told = text if len(text) <= 40 else f"{text[:39]}…"
            raise PolicyError(f"{name}: {key}={told} must be {option.must or 'a number'}")
        values[key] = value
    if "theta_init" in given:
        low, init, high = (values[key] for key in ("theta_min", "theta_init", "theta_max"))
        # The default is cut to the limits; what a user gives and does not get is an error.
        if low <= high and not low <= init <= high:
            raise PolicyError(f"{name}: theta_init={init} must be within theta_min={low} and theta_max={high}")
    return values


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def canonical_policy(name: str, given: Mapping[str, str], entry: Entry | None = None) -> str:
    """The policy as one string: options in alphabetical order, defaults left out, aliases resolved (v0 = eb:k=1)."""
    entry = entry or find_policy(name)
    values = read_options(name, given, entry)
    defaults = {option.name: option.default for option in entry.options}
    changed = [f"{key}={_shown(values[key])}" for key in sorted(values) if values[key] != defaults[key]]
    text = f"{entry.name}:{','.join(changed)}" if changed else entry.name
    return "v0" if text == "eb:k=1" else text


def make_policy(name: str, given: Mapping[str, str], slots: int, costs: StepCosts | None) -> Policy:
    """A fresh policy for one run of an engine with N = `slots`; PolicyError where an option does not fit."""
    return find_policy(name).make(read_options(name, given), Setting(slots, costs))


def read_policy(text: str) -> tuple[str, dict[str, str]]:
    """A policy's name and options; PolicyError where a part is no option."""
    name, _, rest = text.partition(":")
    given: dict[str, str] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        if not equals:
            raise PolicyError(f"policy {text}: {part!r} is not an option: write key=value, such as eb:k=32")
        if key.strip() in given:
            raise PolicyError(f"policy {text}: {key.strip()} is given twice")
        given[key.strip()] = value.strip()
    return name.strip(), given


def use_of(policy: str) -> str:
    """What a policy by its canonical name does with lengths; one that is not ours may use them."""
    name = policy.partition(":")[0]
    return find_policy(name).lengths if name in POLICIES else USED
