"""The catalog of policies: what it reads, what it refuses and how, and canonical names."""

from __future__ import annotations

import pytest

from policies.catalog import (
    ALIASES,
    NO_SCHEDULER_OF_OURS,
    POLICIES,
    POOLS,
    STOCK,
    canonical_policy,
    find_policy,
    make_policy,
    read_options,
    read_policy,
)
from policies.core import Policy, PolicyError, StepCosts
from policies.online.ebplus import EBPlus
from policies.online.exclusive import Exclusive
from policies.online.mixed import Mixed

COSTS = StepCosts(0.0013, 2.5e-5, 0.0089, 4.6e-5, 0.0013, 2.5e-5, 5.2e-5, 1.5e-5)


def made(text: str, slots: int = 100, costs: StepCosts | None = COSTS) -> Policy:
    return make_policy(*read_policy(text), slots, costs)


def canonical(text: str) -> str:
    return canonical_policy(*read_policy(text))


def parts(thing: object) -> object:
    """Everything a policy holds, as plain values, to compare two of them."""
    told = ("on_admit", "on_finish", "on_timed_step")  # bound to what is among the values
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()) if name not in told]
    module = type(thing).__module__
    if module.startswith("policies."):
        held = {name: getattr(thing, name) for name in slots} or vars(thing)
        return type(thing), [(name, parts(value)) for name, value in held.items()]
    return repr(thing)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("eb:k", "'k' is not an option: write key=value"),
        ("eb:32", "'32' is not an option"),
        ("eb:k=3,", "'' is not an option"),
        ("eb:,k=3", "'' is not an option"),
        ("eb:k=3,k=4", "k is given twice"),
        ("eb:k=3, k =4", "k is given twice"),
    ],
)
def test_what_is_no_option_is_refused(text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=says) as error:
        read_policy(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ebpluss", "did you mean ebplus?"),
        ("fcsf", "did you mean fcfs?"),
        ("v2", "did you mean v"),
        ("isjl-best", "isjl-best plans all requests at once, before any runs: it needs --engine tokenstep"),
        ("isjl-paper:alpha=5", "isjl-paper plans all requests at once"),
        ("isjl:alpah=5", "did you mean alpha?"),
        ("isjl", "isjl needs alpha=…, the largest gap, tokens: such as isjl:alpha=100"),
        ("isjl:plan=0.5", "isjl needs alpha=…"),
        ("sjf:x=1", "it takes no options"),
        ("", "known are v0, v0-engine, v1, eb, ebplus, mb, adaptive, sjf, ljf, isjl, stock, v1-interval, pd, fcfs"),
        ("zzz", "unknown policy 'zzz': known are"),
        ("eb:theta_mn=0.1", "did you mean theta_min?"),
        ("ebplus:detla=1e-5", "did you mean delta?"),
        ("ebplus:k=3", "ebplus: unknown option 'k'"),
        ("v1:k=3", "v1: unknown option 'k': its options are budget"),
        ("sjf:k=3", "it takes no options"),
        ("v0:k=1", "it takes no options"),
    ],
)
def test_unknown_names_suggest_the_nearest(text: str, says: str) -> None:
    for use in (canonical, made):
        with pytest.raises(PolicyError) as error:
            use(text)
        assert says in str(error.value)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "option",
    [
        "k=0",
        "k=-1",
        "k=1.5",
        "k=",
        "k=many",
        "theta=0",
        "theta=1",
        "theta=1.5",
        "theta=-0.1",
        "theta=nan",
        "theta=x",
        "theta_min=0",
        "theta_max=1",
        "theta_init=inf",
        "epsilon=0",
        "epsilon=1",
        "update_every=0",
        "window=0",
        "window=2.5",
        "correction=second_order",
        "correction=",
    ],
)
def test_a_value_out_of_range_is_refused_with_what_it_must_be(option: str) -> None:
    key, _, value = option.partition("=")
    with pytest.raises(PolicyError) as error:
        canonical(f"eb:{option}")
    message = str(error.value)
    assert message.startswith(f"eb: {key}={value} must be ")
    must = next(o for o in find_policy("eb").options if o.name == key).must
    assert must
    assert message.endswith(must)


@pytest.mark.parametrize(
    "option", ["delta=inf", "delta=nan", "delta=", "smoothing=0", "smoothing=1.1", "smoothing=nan", "cooldown=0"]
)
def test_a_value_of_ebplus_out_of_range_is_refused(option: str) -> None:
    with pytest.raises(PolicyError, match=f"^ebplus: {option} must be "):
        canonical(f"ebplus:{option}")


def test_a_k_above_the_slots_is_refused_and_one_of_all_slots_is_not() -> None:
    with pytest.raises(PolicyError, match=r"k=101 is above the 100 slots.*lower k or raise --slots"):
        made("eb:k=101")
    assert isinstance(made("eb:k=100"), Exclusive)


@pytest.mark.parametrize(
    ("option", "must"),
    [
        ("alpha=-1", "a whole number of 0 to 1000000000"),
        ("alpha=1.5", "a whole number of 0 to 1000000000"),
        ("alpha=nan", "a whole number of 0 to 1000000000"),
        ("alpha=10,plan=1.5", "0 to 1"),
        ("alpha=10,plan=nan", "0 to 1"),
        ("alpha=10,footprint=gpu", "decode or kv"),
        ("alpha=10,guard=soft", "strict or lenient"),
        ("alpha=10,prefill=both", "mixed or exclusive"),
        ("alpha=10,max_wait=0", "a whole number of 1 to 1000000000"),
    ],
)
def test_a_value_of_isjl_out_of_range_is_refused(option: str, must: str) -> None:
    with pytest.raises(PolicyError, match=f"must be {must}$"):
        canonical(f"isjl:{option}")


def test_k_and_theta_together_are_refused() -> None:
    with pytest.raises(PolicyError, match="k or theta, not both"):
        made("eb:k=3,theta=0.5")


@pytest.mark.parametrize("name", ["eb", "ebplus"])
def test_limits_the_wrong_way_round_are_refused(name: str) -> None:
    with pytest.raises(PolicyError, match=r"theta_min=0\.9 is above theta_max=0\.8: swap them"):
        made(f"{name}:theta_min=0.9")
    assert made(f"{name}:theta_min=0.5,theta_max=0.5")


@pytest.mark.parametrize("text", ["eb", "ebplus", "ebplus:delta=1e-5"])
def test_without_step_costs_an_online_threshold_says_what_to_do(text: str) -> None:
    with pytest.raises(PolicyError, match=r"needs the step costs.*name both, or give a fixed k \(eb:k=32\)"):
        made(text, costs=None)


@pytest.mark.parametrize("text", ["v0", "v1", "fcfs", "eb:k=3", "eb:theta=0.3"])
def test_what_needs_no_step_costs_is_the_same_without_them(text: str) -> None:
    assert parts(made(text, costs=None)) == parts(made(text))


@pytest.mark.parametrize("slots", [1, 7, 100, 1000, 1024])
def test_theta_is_k_over_the_slots_for_every_k(slots: int) -> None:
    """0.29 · 100 is 28.999… in doubles and still 29 of 100."""
    for k in range(1, slots):
        assert parts(made(f"eb:theta={k / slots!r}", slots)) == parts(made(f"eb:k={k}", slots))
    if slots == 100:
        for k in range(1, 100):
            assert parts(made(f"eb:theta=0.{k:02}")) == parts(made(f"eb:k={k}"))


def test_theta_of_less_than_a_slot_is_one_slot() -> None:
    assert parts(made("eb:theta=0.001")) == parts(made("eb:k=1"))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("v0", "v0"),
        ("eb:k=1", "eb:k=1"),
        ("eb: k = 01 ", "eb:k=1"),
        ("eb:gate=paper,k=1", "v0"),
        ("eb:gate=forecast,k=1", "eb:k=1"),
        ("v1", "v1"),
        ("fcfs", "v1"),
        ("EBplus", "ebplus"),
        ("fcfs:", "v1"),
        ("eb", "eb"),
        ("eb:k=32", "eb:k=32"),
        ("eb:theta=.50", "eb:theta=0.5"),
        ("eb:window=500,theta_min=0.01,correction=first_order", "eb"),
        ("eb:window=7,k=32", "eb:k=32,window=7"),
        ("eb:k=1,window=100", "eb:k=1,window=100"),
        ("ebplus:delta=0", "ebplus"),
        ("ebplus:delta=-0.0", "ebplus"),
        ("ebplus:theta_min=0.7,delta=0.00001", "ebplus:delta=1e-05,theta_min=0.7"),
        ("ebplus:cooldown=3,smoothing=0.1", "ebplus"),
        ("ebplus:correction=none", "ebplus:correction=none"),
    ],
)
def test_canonical_names(text: str, name: str) -> None:
    assert canonical(text) == name
    assert canonical(name) == name


EVERY = {
    "k": "7",
    "theta": "0.37",
    "theta_min": "0.030000000000000002",
    "theta_max": "0.71",
    "theta_init": "0.3",
    "epsilon": "1e-300",
    "update_every": "77",
    "window": "123",
    "correction": "none",
    "gate": "paper",
    "ttft": "0.2",
    "budget": "77",
    "delta": "-1.2345678901234567e-05",
    "smoothing": "0.1000000000000001",
    "cooldown": "9",
    "n": "3",
    "alpha": "50",
    "footprint": "kv",
    "plan": "0.35",
    "max_wait": "77",
    "guard": "lenient",
    "prefill": "exclusive",
}


@pytest.mark.parametrize("name", [*sorted(POLICIES.keys() - NO_SCHEDULER_OF_OURS), *ALIASES])
def test_a_canonical_name_read_again_is_the_same_policy(name: str) -> None:
    options = [option.name for option in find_policy(name).options]
    assert set(options) <= set(EVERY)
    together = ",".join(f"{key}={EVERY[key]}" for key in reversed(options) if key not in ("k", "theta"))
    alone = [
        ",".join(f"{key}={EVERY[key]}" for key in options if key == one or (key == "alpha" and name == "isjl"))
        for one in options
    ]
    for text in (*([] if name == "isjl" else [name]), *(f"{name}:{one}" for one in alone), f"{name}:{together}"):
        again = canonical(text)
        assert parts(made(text)) == parts(made(again))
        assert canonical(again) == again
    assert find_policy(name).source


@pytest.mark.parametrize(
    "option", ["theta_min=0.02", "theta_max=0.5", "theta_init=0.3", "epsilon=0.1", "correction=none"]
)
def test_what_does_nothing_with_a_fixed_k_is_refused(option: str) -> None:
    for fixed in ("k=7", "theta=0.3"):
        with pytest.raises(PolicyError, match=option.partition("=")[0]):
            made(f"eb:{fixed},{option}")


def test_different_options_are_different_policies() -> None:
    texts = ["v0", "v1", "eb", "eb:k=2", "eb:window=1", "ebplus", "ebplus:cooldown=1", "ebplus:delta=1"]
    assert len({repr(parts(made(text))) for text in texts}) == len(texts)
    assert parts(made("v0")) == parts(made("eb:gate=paper,k=1"))


def test_what_the_catalog_makes() -> None:
    assert isinstance(made("v1"), Mixed)
    assert isinstance(made("fcfs"), Mixed)
    assert isinstance(made("v0"), Exclusive)
    assert isinstance(made("ebplus"), EBPlus)
    assert made("eb") is not made("eb"), "a fresh one for each run"


def test_every_default_passes_its_own_check() -> None:
    for entry in POLICIES.values():
        for option in entry.options:
            assert option.help
            assert option.default is None or option.check(option.read(str(option.default)))


@pytest.mark.parametrize("option", ["k", "update_every", "window"])
def test_a_count_has_an_upper_bound(option: str) -> None:
    assert read_options("eb", {option: "1000000000"})[option] == 10**9
    for text in ("1000000001", "9" * 400, "9" * 5000):
        with pytest.raises(PolicyError, match=f"{option}=.* must be a whole number of 1 to 1000000000") as caught:
            read_options("eb", {option: text})
        assert len(str(caught.value)) < 120


@pytest.mark.parametrize(
    "given",
    [{"theta_init": "0.9"}, {"theta_init": "0.001"}, {"theta_init": "0.7", "theta_max": "0.5"}],
)
def test_a_first_threshold_that_is_given_lies_within_the_limits(given: dict[str, str]) -> None:
    with pytest.raises(PolicyError, match=r"theta_init=.* must be within theta_min=.* and theta_max="):
        read_options("ebplus", given)


def test_the_first_threshold_by_default_is_cut_to_the_limits() -> None:
    assert canonical_policy("ebplus", {"theta_max": "0.5"}) == "ebplus:theta_max=0.5"
    make_policy("ebplus", {"theta_max": "0.5"}, 64, COSTS)
    assert read_options("ebplus", {"theta_init": "0.8"})["theta_init"] == 0.8


def test_engines_of_two_kinds_are_named_and_no_scheduler_is_made_of_them() -> None:
    assert canonical("pd:decode=2,prefill=1") == "pd:decode=2"
    assert canonical("pd:prefill=1,decode=1") == POOLS
    with pytest.raises(PolicyError, match="--engine simulated --replicas"):
        made(POOLS)
    with pytest.raises(PolicyError, match="prefill=0 must be a whole number of 1 to"):
        canonical("pd:prefill=0")


def test_what_is_vllms_own_is_named_and_not_made() -> None:
    assert canonical(STOCK) == STOCK
    with pytest.raises(PolicyError, match="--engine vllm"):
        made(STOCK)
