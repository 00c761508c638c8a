"""A policy's file: read, checked without being run, its options, its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from policies.core import PolicyError
from policies.own.file import LARGEST_BYTES, PolicyFile, is_file, of_bytes, read_file, split
from policies.own.load import canonical_own, load, make_own

HEAD = "from policies.own import MIXED, Option, OwnPolicy\n"
PLAN = "    def plan(self, view): return MIXED\n"


def file_of(text: str, name: str = "Mine") -> PolicyFile:
    return of_bytes("mine.py", name, (HEAD + text).encode())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("./mine.py:Mine", ("./mine.py", "Mine", "")),
        ("./mine.py:Mine,k=8,x=2", ("./mine.py", "Mine", "k=8,x=2")),
        ("./mine.py:Mine:k=8,x=2", ("./mine.py", "Mine", "k=8,x=2")),
        ("./mine.py", ("./mine.py", "", "")),
    ],
)
def test_how_a_file_is_named(text: str, parts: tuple[str, str, str]) -> None:
    assert is_file(text)
    assert split(text) == parts


def test_what_is_no_file() -> None:
    assert not any(map(is_file, ("v1", "eb:k=32", "py")))


def test_two_files_with_one_class_name_are_two_policies() -> None:
    one, other = file_of(f"class Mine(OwnPolicy):\n{PLAN}"), file_of(f"class Mine(OwnPolicy):\n{PLAN}# other\n")
    assert one.name.startswith("Mine@")
    assert one.name != other.name


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("class Mine: pass\n", "Other", "mine.py: no class Other: it has Mine"),
        ("class Mine: pass\n", "", "name the policy's class (it has Mine): --policy mine.py:Mine"),
        ("x = 1\n", "Mine", "no class Mine: it has no class"),
        ("class Mine(:\n", "Mine", "mine.py: line 2: "),
        ("import numpy\nclass Mine: pass\n", "Mine", "mine.py: line 2: imports numpy: "),
        ("class Mine:\n  def plan(self, v):\n    from torch.nn import x\n", "Mine", "line 4: imports torch.nn"),
        ("from . import x\nclass Mine: pass\n", "Mine", "line 2: imports .: "),
        ("import harness\nclass Mine: pass\n", "Mine", "line 2: imports harness"),
    ],
)
def test_what_is_no_policys_file(text: str, name: str, told: str) -> None:
    with pytest.raises(PolicyError) as error:
        file_of(text, name)
    assert told in str(error.value)


def test_the_standard_library_and_policies_may_be_imported() -> None:
    file_of("import math, collections.abc\nfrom policies.online.orders import Ranked\nclass Mine: pass\n")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        read_file(str(tmp_path / "none.py"), "Mine")
    large = tmp_path / "large.py"
    large.write_bytes(b"#" * (LARGEST_BYTES + 1))
    with pytest.raises(PolicyError, match="more than 256 KiB"):
        read_file(str(large), "Mine")
    odd = tmp_path / "odd.py"
    odd.write_bytes(b"# \xff\nclass Mine: pass\n")
    with pytest.raises(PolicyError, match="not UTF-8"):
        read_file(str(odd), "Mine")


def test_an_edited_file_is_another_policy(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}class Mine(OwnPolicy):\n{PLAN}")
    file = read_file(str(path), "Mine")
    file.check_unchanged()
    path.write_text(path.read_text() + "# edited\n")
    with pytest.raises(PolicyError, match="another policy: run again"):
        file.check_unchanged()


ANNOTATED = f"class Mine(OwnPolicy):\n    k: int = 8\n    share: float = 0.5\n    on: bool = False\n{PLAN}"
BY_INIT = (
    "class Mine(OwnPolicy):\n"
    "    def __init__(self, *, slots, costs=None, k: int = 8, share: float = 0.5, on: bool = False):\n"
    "        super().__init__(slots=slots, costs=costs)\n"
    f"        self.k, self.share, self.on = k, share, on\n{PLAN}"
)
DECLARED = (
    "class Mine(OwnPolicy):\n"
    "    OPTIONS = (Option('k', int, 8, ''), Option('share', float, 0.5, ''),\n"
    f"               Option('on', lambda text: text == 'true', False, ''))\n{PLAN}"
)


@pytest.mark.parametrize("text", [ANNOTATED, BY_INIT, DECLARED])
def test_options_by_annotation_by_init_and_declared(text: str) -> None:
    file = file_of(text)
    made = make_own(file, {"k": "3", "on": "true"}, 4, None).policy
    assert (made.k, made.share, made.on) == (3, 0.5, True)
    assert canonical_own(file, {"share": "0.50", "on": "true", "k": "3"}) == f"{file.name}:k=3,on=true"
    for given, told in (({"k": "x"}, "k=x must be"), ({"y": "1"}, "unknown option 'y'")):
        with pytest.raises(PolicyError) as error:
            make_own(file, given, 4, None)
        assert told in str(error.value)


def test_an_option_without_a_default_must_be_given() -> None:
    file = file_of(f"class Mine(OwnPolicy):\n    def __init__(self, *, slots, costs=None, k: int): self.k = k\n{PLAN}")
    assert make_own(file, {"k": "3"}, 4, None).policy.k == 3
    with pytest.raises(PolicyError, match="Mine needs k="):
        make_own(file, {}, 4, None)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"class Mine(OwnPolicy):\n    k: list = []\n{PLAN}", "option k has no kind that can be read"),
        ("class Mine(OwnPolicy): pass\n", "has no method plan(self, view)"),
        (f"class Mine(OwnPolicy):\n    COLUMNS = ('a b',)\n{PLAN}", "COLUMNS must be a tuple"),
        (f"class Mine:\n    def __init__(self): pass\n{PLAN}", "__init__ must take slots"),
        (f"class Mine(OwnPolicy):\n{PLAN}\nraise RuntimeError('boo')\n", "raised RuntimeError (boo) as it was loaded"),
        (f"class Mine(OwnPolicy):\n{PLAN}\nMine = 3\n", "Mine is no class once the file has run"),
        (
            f"class Mine(OwnPolicy):\n    def __init__(self, *, slots, costs=None): 1 / 0\n{PLAN}",
            "raised ZeroDivisionError (division by zero) at construction, line 3 of mine.py",
        ),
    ],
)
def test_a_class_that_is_no_policy(text: str, told: str) -> None:
    with pytest.raises(PolicyError) as error:
        make_own(file_of(text), {}, 4, None)
    assert told in str(error.value)


def test_what_one_run_leaves_in_the_module_does_not_reach_the_next() -> None:
    file = file_of(f"SEEN = []\nclass Mine(OwnPolicy):\n    seen = SEEN\n{PLAN}")
    load(file).seen.append(1)  # type: ignore[attr-defined] # of the file's class
    assert load(file).seen == []  # type: ignore[attr-defined] # of the file's class
