"""The manifest says where numbers come from, and keeps secrets out."""

import getpass
import json
import os
import platform
from pathlib import Path

import pytest

from harness.core.masking import MASK, is_secret, mask, scrub
from harness.runs.provenance import collect, mask_command


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--api-key", "s3cret"], ["--api-key", MASK]),
        (["--api-key=s3cret"], [f"--api-key={MASK}"]),
        (["--hf-token", "s3cret", "--seed", "1"], ["--hf-token", MASK, "--seed", "1"]),
        (["--header", "Authorization: Bearer s3cret"], ["--header", MASK]),
        (["-H", "X-Key: s3cret"], ["-H", MASK]),
        (["-HX-Key: s3cret"], [f"-H{MASK}"]),
        (["OPENAI_API_KEY=s3cret"], [f"OPENAI_API_KEY={MASK}"]),
        (["--workload", "sharegpt:path=a,token=s3cret"], ["--workload", f"sharegpt:path=a,token={MASK}"]),
        (["--workload=sharegpt:path=a,token=s3cret"], [f"--workload=sharegpt:path=a,token={MASK}"]),
        (["--url", "http://me:s3cret@host:8000/v1?a=s3cret#x"], ["--url", f"http://{MASK}@host:8000/v1?{MASK}"]),
        (["--workload", "sharegpt:token=s3cret,path=a"], ["--workload", f"sharegpt:token={MASK},path=a"]),
        (["--url=https://host/v1"], ["--url=https://host/v1"]),
        (["hf_s3cretS3cret"], [MASK]),
        (["hf_hub_download"], ["hf_hub_download"]),
        (["hf_" + "abcdefgh" * 4], [MASK]),
        (["--token-budget", "14336"], ["--token-budget", "14336"]),
        (["--tokenizer", "qwen"], ["--tokenizer", "qwen"]),
        (["--policy", "eb:k=32", "--fail-on", "output_throughput<-5%"],) * 2,
        (["--workload", "synthetic:mu_l=512,mu_o=256"],) * 2,
    ],
)
def test_the_command_line_is_masked(words: list[str], expected: list[str]) -> None:
    assert mask_command(["/opt/x/bin/bench", "run", *words]) == ["bench", "run", *expected]


def test_the_home_directory_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert mask_command(["bench", "--out", "/home/someone/runs"]) == ["bench", "--out", "~/runs"]


def test_secret_names() -> None:
    assert all(map(is_secret, ["apiKey", "API_KEY", "--hf-token", "Authorization", "client_secret", "x-headers"]))
    assert not any(
        map(is_secret, ["tokenizer", "token-budget", "prompt_tokens", "monkey", "author", "k", "parameters_per_token"])
    )


def test_scrub_reaches_every_text() -> None:
    dirty = {"a": ["Bearer abcdef", {"password": "x"}], "n": 1, "token_budget": 14336, "none": None}
    assert scrub(dirty) == {"a": [MASK, {"password": MASK}], "n": 1, "token_budget": 14336, "none": None}


def test_plain_text_stays() -> None:
    assert mask("Authorization: Basic dXNlcjpwdw== x") == f"Authorization: {MASK}"
    line = "Basic assumption: mixed-step cost of this pair is assumed: 1.5 x the sum; see docs"
    assert mask(line) == line


def test_provenance_names_the_machine_and_not_its_owner() -> None:
    found = collect(["bench", "run"])
    assert json.loads(json.dumps(found)) == found
    assert found["packages"]["numpy"]
    assert found["host"]["cores"] >= 1
    text = json.dumps(found)
    for name in (platform.node(), os.path.expanduser("~")):
        assert len(name) < 4 or name not in text
    assert getpass.getuser() not in text.split()
    assert str(Path.cwd()) not in text
