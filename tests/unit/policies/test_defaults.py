"""The defaults of eb and ebplus."""

from __future__ import annotations

from policies.catalog import read_options


def test_defaults_are_those_of_the_spec() -> None:
    expected = {
        "delta": 0.0,
        "smoothing": 0.1,
        "cooldown": 3,
        "theta_min": 0.01,
        "theta_max": 0.8,
        "theta_init": 0.7,
        "epsilon": 0.01,
        "update_every": 100,
        "window": 500,
        "correction": "first_order",
        "gate": "forecast",
    }
    assert read_options("ebplus", {}) == expected
    assert read_options("eb", {}) == {"k": None, "theta": None} | {
        key: value for key, value in expected.items() if key not in ("delta", "smoothing", "cooldown")
    }
