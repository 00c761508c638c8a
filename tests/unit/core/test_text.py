"""A name that is suggested may come from a stranger's file: it is spelled on one line."""

from harness.core.text import nearest
from workloads.core.options import suggest


def test_a_suggestion_is_one_line() -> None:
    assert suggest("tokens", ["tok\x1dens\x1b[2J"]) == " (did you mean tok\\x1dens\\x1b[2J?)"
    assert nearest("tokens", ["tok\x1dens"]) == "; did you mean tok\\x1dens?"
    assert suggest("tokens", ["unlike"]) == ""
