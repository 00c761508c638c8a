"""The data sets by the command line: local files, the hub's cache, and a hub that refuses."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.support import dataset_files as made
from tests.support.commands import BENCH, Bench, Result
from tests.support.fake_hub import TOKEN, FakeRepository, folder_of, running

REVISION = "200748d9d3cddcc9d782887541057aca0b18c5da"
LMSYS = "lmsys/lmsys-chat-1m"


def in_hub_cache(home: Path, repo: str, revision: str) -> Path:
    """The folder of a snapshot in the hub's cache, `main` pointing at it."""
    repository = home / "hub" / f"datasets--{repo.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(revision)
    folder = repository / "snapshots" / revision
    folder.mkdir(parents=True)
    return folder


def write_all(folder: Path) -> dict[str, Path]:
    """One small data set of each kind."""
    turns = [{"role": role, "content": f"turn {i}"} for i in range(7) for role in ("user", "assistant")]
    rows = {
        "wildchat": (made.wildchat_schema(), [made.wildchat_row(i, turns) for i in range(4)]),
        "lmsys": (made.lmsys_schema(), list(made.lmsys_rows(10, seed=1))),
        "numinamath": (made.numinamath_schema(), [made.numinamath_row("2+2?", "4" * 900)] * 3),
    }
    paths = {name: made.write_shards(folder / name, schema, held, 2) for name, (schema, held) in rows.items()}
    paths["longbench"] = folder / "data.json"
    paths["longbench"].write_text(json.dumps([made.longbench_v2_row(0, "word " * 5000, "what?")]))
    paths["sharegpt"] = folder / "ShareGPT_V4.3_unfiltered_cleaned_split.json"
    talk = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]
    paths["sharegpt"].write_text(json.dumps([{"id": "a", "conversations": talk}]))
    return paths


ROWS = {"wildchat": 28, "numinamath": 3, "sharegpt": 1}


def test_trace_info_on_each_data_set(bench: Bench, tmp_path: Path, bytes_tokenizer: Path) -> None:
    for name, path in write_all(tmp_path / "sets").items():
        result = bench("trace", "info", f"{name}:path={path},tokenizer={bytes_tokenizer}", "--json")
        assert result.code == 0, result.err
        document = result.json
        assert document["label"] == name
        assert document["rows"] == ROWS.get(name, document["rows"]) > 0
        source = document["source"]
        assert source["kind"] == "real"
        assert {"data_set", "licence", "file_sha256", "tokenizer_sha256", "filters", "skipped"} <= source.keys()
        if name == "sharegpt":
            assert source["data_set"] == "Aeala/ShareGPT_Vicuna_unfiltered"
        shown = bench("trace", "info", f"{name}:path={path},tokenizer={bytes_tokenizer}")
        assert shown.code == 0, shown.err
        assert "licence: " in shown.out


def test_the_hubs_cache_is_enough_without_a_network(bench: Bench, tmp_path: Path, bytes_tokenizer: Path) -> None:
    rows = list(made.lmsys_rows(20, seed=2))
    folder = in_hub_cache(tmp_path / "hf", LMSYS, REVISION)
    made.write_shards(folder, made.lmsys_schema(), rows, 2)
    (folder / "README.md").write_text("the card")
    found = {}
    for asked in (LMSYS, f"{LMSYS}@main", f"{LMSYS}@{REVISION}"):
        result = bench("trace", "info", f"lmsys:hf={asked},tokenizer={bytes_tokenizer}", "--json")
        assert result.code == 0, result.err
        source = result.json["source"]
        assert (source["hub"], source["revision"]) == (LMSYS, REVISION)
        found[asked] = result.json["digest"]
    local = bench("trace", "info", f"lmsys:path={folder},tokenizer={bytes_tokenizer}", "--json")
    assert set(found.values()) == {local.json["digest"]}
    other = bench("trace", "info", f"lmsys:hf={LMSYS}@v2,tokenizer={bytes_tokenizer}")
    assert other.code == 2
    assert f"cannot load {LMSYS} at v2 from the hub (HF_HUB_OFFLINE is set and it is not in the" in other.err
    (folder / "data" / "train-00001-of-00002-abcdef0123456789.parquet").unlink()
    part = bench("trace", "info", f"lmsys:hf={LMSYS},tokenizer={bytes_tokenizer}")
    assert part.code == 0
    assert f"{LMSYS}: 1 of 2 shards train-…-of-00002 are there" in part.out.replace("\n", " ")


@pytest.mark.parametrize(
    "workload", ["lmsys:hf=lmsys/lmsys-chat-1m", "longbench:hf=THUDM/LongBench", "sharegpt:source=hub"]
)
def test_offline_and_not_in_the_cache(bench: Bench, workload: str) -> None:
    result = bench("trace", "info", workload)
    assert result.code == 2
    (line,) = result.err.strip().splitlines()
    assert "HF_HUB_OFFLINE is set and it is not in the Hugging Face cache" in line
    assert f"give {workload.split(':', maxsplit=1)[0]}:path=FOLDER" in line


def from_hub(url: str, home: Path, *args: str, token: str = "") -> Result:
    """`bench ARGS…` where the hub stands at `url`."""
    own = {"HF_ENDPOINT": url, "HF_HOME": str(home / "hf"), "BENCH_CACHE": str(home / "cache")}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")} | own
    if token:
        environment["HF_TOKEN"] = token
    done = subprocess.run([BENCH, *args], env=environment, capture_output=True, text=True, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def test_a_hub_that_refuses(tmp_path: Path) -> None:
    def refused(workload: str, url: str) -> str:
        result = from_hub(url, tmp_path, "trace", "info", workload)
        assert result.code == 2, result.err
        (line,) = result.err.strip().splitlines()
        return line

    with running() as hub:
        hub.repositories[LMSYS] = FakeRepository({"data/train-00000-of-00001.parquet": b"PAR1"}, gated=True)
        line = refused(f"lmsys:hf={LMSYS}", hub.url)
        assert "it is gated: accept its licence on its page and set HF_TOKEN" in line
        assert f"/datasets/{LMSYS}" in line
        line = refused("wildchat:hf=allenai/WildChat-9M", hub.url)
        assert "the hub has no dataset of that name, or it is private and needs HF_TOKEN" in line
        assert "(did you mean allenai/WildChat-1M?)" in line
    assert "no network and it is not in the Hugging Face cache" in refused(f"lmsys:hf={LMSYS}", "http://127.0.0.1:9")


def test_rows_of_a_gated_set_come_with_the_token_and_stay(tmp_path: Path, bytes_tokenizer: Path) -> None:
    made.write_shards(tmp_path / "set", made.lmsys_schema(), list(made.lmsys_rows(300, seed=3)), 2)
    workload = f"lmsys:hf={LMSYS},rows=40,tokenizer={bytes_tokenizer}"
    with running() as hub:
        hub.repositories[LMSYS] = FakeRepository(folder_of(tmp_path / "set"), gated=True)
        result = from_hub(hub.url, tmp_path, "trace", "info", workload, "--json", token=TOKEN)
    assert (result.code, result.err) == (0, "")
    source = result.json["source"]
    assert (source["hub"], source["revision"]) == (LMSYS, hub.repositories[LMSYS].sha)
    assert (source["config"], source["split"], source["rows"]) == ("default", "train", 40)
    assert source["conversations_read"] == 40
    # The hub is gone by now: what was kept is enough.
    again = from_hub(hub.url, tmp_path, "trace", "info", workload, "--json")
    assert again.json["digest"] == result.json["digest"]
    shown = from_hub(hub.url, tmp_path, "trace", "info", workload)
    assert "no network: what bench's cache holds of it is read" in shown.out.replace("\n", " ")


def test_the_options_of_hf_are_listed(bench: Bench) -> None:
    listed = bench("workloads").out
    for option in ("hf  id or id@revision", "config  of", "split  of", "rows=0  of", "streaming=True  of"):
        assert listed.count(option) == 5, option
