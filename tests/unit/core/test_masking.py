"""Secrets are masked wherever they stand, and a text of twice the letters is looked at twice as often."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.core.masking import MASK, mask
from harness.core.outside import Door

# Each takes hours where a letter is looked at once for every letter before it.
LONG = 1_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=token=s3cret", f"x=token={MASK}"),
        ("see http://a/http://u:s3cret@h/x", f"see http://a/http://{MASK}@h/x"),
        ("a://u:s3cret@h b://h?k=s3cret c://h#s3cret", f"a://{MASK}@h b://h?{MASK} c://h#{MASK}"),
        ("glpat-s3crets3cret, AKIAS3CRETS3CRET", f"{MASK}, {MASK}"),
        ("jwt eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0x.s3cret", f"jwt {MASK}"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\ns3cret\n-----END RSA PRIVATE KEY-----",
            f"{MASK}-----END RSA PRIVATE KEY-----",
        ),
        ("--workload=sharegpt:token=s3cret", f"--workload=sharegpt:token={MASK}"),
        ("token = s3cret;token :s3cret", f"token = {MASK};token :{MASK}"),
        (" = x", " = x"),
        ("http://host/v1", "http://host/v1"),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(text: str, expected: str) -> None:
    assert mask(text) == expected


@given(st.text(alphabet="ab=: -/?@#,key_0", max_size=40))
def test_what_is_masked_stays_masked(text: str) -> None:
    once = mask(f"{text} api_key=s3cret")
    assert "s3cret" not in once
    assert mask(once) == once


@pytest.mark.parametrize(
    "text_of",
    [
        lambda n: "a" * n,
        lambda n: "a" + " " * n,
        lambda n: " " * n + "=",
        lambda n: "1" * n + "=",
        lambda n: "-----BEGIN " + "A " * (n // 2),
        lambda n: "://" + "a" * n,
        lambda n: "hf_" + "a" * n,
        lambda n: "eyJ" + "a" * n,
    ],
)
def test_a_long_text_is_looked_at_once(text_of: Callable[[int], str]) -> None:
    assert len(mask(text_of(LONG))) > 0


@pytest.mark.parametrize("part", ["://", "a=", "--a=", "-eyJ", "://a:", "hf_a_-", "Bearer ", "://a?", "-----BEGIN A"])
def test_many_beginnings_are_looked_at_once(part: str) -> None:
    assert len(mask(part * 20_000)) > 0


def test_a_door_knows_shapes_besides_its_own_secrets() -> None:
    line = Door.of(["canary-key"]).line("bad CANARY-key, not sk-s3crets3cret\x1b[2J")
    assert line == "bad [key], not ***\\x1b[2J"
