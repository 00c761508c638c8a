"""Data sets by id from a hub on this machine: revisions, gates, what is sent, and a hub that is gone or hangs up.

The hub's client reads its address when it is imported, so that each question is asked by a process of its own.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import dataset_files as made
from tests.support.fake_hub import TOKEN, FakeHub, FakeRepository, folder_of, running
from tests.support.places import ROOT
from workloads.catalog import load_workload
from workloads.core import options

ASK = """
import json, sys
from workloads.catalog import load_workload
from workloads.core import options
from workloads.core.errors import WorkloadError
for asked in sys.argv[1:]:
    try:
        trace = load_workload(*options.split(asked), requests=None, seed=0, model="none/none")
        print(json.dumps({"digest": trace.digest, **trace.source}))
    except WorkloadError as error:
        print(json.dumps({"error": str(error)}))
"""
CONFIGS = ("small", "rest")
LMSYS = "lmsys/lmsys-chat-1m"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def ask(home: Path, url: str, *workloads: str, token: str = "", **more: str) -> list[dict[str, Any]]:
    """What becomes of workloads where the hub stands at `url`, with caches of their own under `home`."""
    own = {"HF_ENDPOINT": url, "HF_HOME": str(home / "hf"), "BENCH_CACHE": str(home / "bench"), **more}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")} | own
    if token:
        environment["HF_TOKEN"] = token
    command = [sys.executable, "-W", "error", "-c", ASK, *workloads]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def lmsys_set(folder: Path, count: int = 600, shards: int = 2) -> FakeRepository:
    made.write_shards(folder, made.lmsys_schema(), list(made.lmsys_rows(count, seed=1)), shards)
    (folder / "README.md").write_text("---\nlicense: other\n---\nthe card\n")
    return FakeRepository(folder_of(folder))


def local(workload: str) -> str:
    """The digest of files that lie here, for which no hub is asked."""
    return load_workload(*options.split(workload), requests=None, seed=0, model="none/none").digest


def content_requests(hub: FakeHub) -> list[str]:
    return [request for request in hub.requests if request.endswith(".parquet") and request.startswith("GET")]


def test_streamed_from_a_hub_then_from_the_cache(tmp_path: Path, home: Path, bytes_tokenizer: Path) -> None:
    repository = lmsys_set(tmp_path / "set")
    end = f",tokenizer={bytes_tokenizer}"
    expected = local(f"lmsys:path={tmp_path / 'set'}{end}")
    with running(lmsys__lmsys_chat_1m=repository) as hub:
        hub.repositories = {LMSYS: repository}
        (found,) = ask(home, hub.url, f"lmsys:hf={LMSYS}{end}")
        assert found["digest"] == expected
        assert (found["hub"], found["revision"]) == (LMSYS, repository.sha)
        assert (found["config"], found["split"], found["rows"]) == ("default", "train", 600)
        assert found["library"].startswith("datasets ")
        assert "notices" not in found
        # The next run asks which revision is the newest, and no more; one that names its revision asks nothing.
        hub.requests.clear()
        pinned = f"lmsys:hf={LMSYS}@{repository.sha}{end}"
        again, named = ask(home, hub.url, f"lmsys:hf={LMSYS}{end}", pinned)
        assert (again, named["digest"]) == (found, expected)
        assert hub.requests == [f"GET /api/datasets/{LMSYS}"]
    gone = ask(home, hub.url, f"lmsys:hf={LMSYS}{end}", pinned, f"lmsys:hf={LMSYS},split=test{end}")
    assert [each.get("digest") for each in gone] == [expected, expected, None]
    assert gone[0]["notices"] == [f"{LMSYS}: no network: what bench's cache holds of it is read"]
    assert "notices" not in gone[1]
    assert "no network and it is not in the Hugging Face cache" in gone[2]["error"]


def test_a_new_commit_is_seen_and_an_old_one_stays(tmp_path: Path, home: Path, bytes_tokenizer: Path) -> None:
    end = f",tokenizer={bytes_tokenizer}"
    first, second = lmsys_set(tmp_path / "a", 20, 1), lmsys_set(tmp_path / "b", 30, 1)
    with running() as hub:
        hub.repositories[LMSYS] = first
        assert ask(home, hub.url, f"lmsys:hf={LMSYS}{end}")[0]["rows"] == 20
        hub.repositories[LMSYS] = second
        newest, old = ask(home, hub.url, f"lmsys:hf={LMSYS}@main{end}", f"lmsys:hf={LMSYS}@{first.sha}{end}")
    assert (newest["rows"], newest["revision"]) == (30, second.sha)
    assert (old["rows"], old["revision"]) == (20, first.sha)


def test_no_more_is_sent_than_is_asked_for(tmp_path: Path, home: Path, bytes_tokenizer: Path) -> None:
    repository = lmsys_set(tmp_path / "set", 1800, 6)
    end = f",tokenizer={bytes_tokenizer}"
    with running() as hub:
        hub.repositories[LMSYS] = repository
        (found,) = ask(home, hub.url, f"lmsys:hf={LMSYS},rows=290{end}")
        assert not any("train-00002" in request for request in hub.requests)
        part = local(f"lmsys:path={tmp_path / 'set'},conversations=290{end}")
        assert (found["digest"], found["rows"]) == (part, 290)
        # Once the files lie in the hub's cache as well the source of the same rows stays the same.
        whole, again = ask(home, hub.url, f"lmsys:hf={LMSYS},streaming=false{end}", f"lmsys:hf={LMSYS}{end}")
        assert whole["digest"] == local(f"lmsys:path={tmp_path / 'set'}{end}")
        assert again["library"] == whole["library"]


def test_gates_open_with_the_token(tmp_path: Path, home: Path, bytes_tokenizer: Path) -> None:
    workload = f"lmsys:hf={LMSYS},tokenizer={bytes_tokenizer}"
    with running() as hub:
        hub.repositories[LMSYS] = lmsys_set(tmp_path / "set", 20, 1)
        hub.repositories[LMSYS].gated = True
        for token in ("", "hf_of_somebody_else"):
            (found,) = ask(home, hub.url, workload, token=token)
            assert f"cannot load {LMSYS} from the hub (it is gated: accept its licence on its page" in found["error"]
            assert "set HF_TOKEN; the page is https://huggingface.co/datasets/" in found["error"]
            assert not content_requests(hub)
        (found,) = ask(home, hub.url, workload, token=TOKEN)
        assert found["rows"] == 20


def test_what_a_hub_has_not(tmp_path: Path, home: Path) -> None:
    card = "---\nconfigs:\n" + "".join(f"- config_name: {name}\n  data_files: data/*\n" for name in CONFIGS) + "---\n"
    repository = lmsys_set(tmp_path / "set", 20, 1)
    script = FakeRepository({"LongBench.py": b"raise SystemExit", "data.zip": b"PK", "README.md": b"card"})
    several = FakeRepository({**repository.files, "README.md": card.encode()})
    with running() as hub:
        hub.repositories = {LMSYS: repository, "THUDM/LongBench": script, "a/several": several}
        errors = [
            found["error"]
            for found in ask(
                home,
                hub.url,
                "lmsys:hf=lmsys/lmsys-chat-2m",
                f"lmsys:hf={LMSYS}@mane",
                f"lmsys:hf={LMSYS},split=trian",
                f"lmsys:hf={LMSYS},config=x",
                "lmsys:hf=a/several",
                "lmsys:hf=a/several,config=smal",
                "longbench:hf=THUDM/LongBench",
                "longbench:hf=THUDM/LongBench,config=qasper",
            )
        ]
    assert "needs HF_TOKEN (did you mean lmsys/lmsys-chat-1m?)" in errors[0]
    assert "the hub has no such revision of it (did you mean main?)" in errors[1]
    assert errors[2].endswith("(it has no split trian (did you mean train?)): its splits are train")
    assert errors[3].endswith("(it has no config x): its configs are default")
    assert errors[4].endswith("(it has several configs): give config=… of small, rest")
    assert errors[5].endswith("(it has no config smal (did you mean small?)): its configs are small, rest")
    fetch = "fetch its files with `hf download THUDM/LongBench --repo-type dataset` and run this again"
    assert f"(it is a script, LongBench.py, which datasets runs no more): {fetch}, or give" in errors[6]
    assert f"{fetch} without config, split and rows, or give" in errors[7]


def test_files_in_the_hubs_cache_are_read_where_all_of_them_are_there(
    tmp_path: Path, home: Path, bytes_tokenizer: Path
) -> None:
    end = f",tokenizer={bytes_tokenizer}"
    card = "".join(f"- config_name: {name}\n  data_files: data/train-0000{i}*\n" for i, name in enumerate(CONFIGS))
    lmsys_set(tmp_path / "set", 40, 2)
    (tmp_path / "set" / "README.md").write_text(f"---\nconfigs:\n{card}---\n")
    repository = FakeRepository(folder_of(tmp_path / "set"))
    tasks = {"qasper": [made.longbench_v1_row(i, "qasper", "word " * 3000, "what?", ["b"]) for i in range(3)]}
    archive = made.write_longbench_zip(tmp_path / "data.zip", tasks).read_bytes()
    script = FakeRepository({"LongBench.py": b"raise SystemExit", "data.zip": archive, "README.md": b"card"})
    download = "import sys, huggingface_hub as hub\nfor name in sys.argv[1:]:"
    download += " hub.snapshot_download(name, repo_type='dataset')"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    with running() as hub:
        hub.repositories = {LMSYS: repository, "THUDM/LongBench": script}
        # One configuration, downloaded whole, leaves half of the data set in the hub's cache.
        small = f"lmsys:hf={LMSYS},config=small,streaming=false{end}"
        half, asked = ask(home, hub.url, small, f"lmsys:hf={LMSYS}{end}")
        assert half["rows"] == 20
        assert asked["error"].endswith("(it has several configs): give config=… of small, rest")
        own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home / "hf")}
        subprocess.run([sys.executable, "-c", download, *hub.repositories], env=environment | own, check=True)
        hub.requests.clear()
        found, bench = ask(home, hub.url, f"lmsys:hf={LMSYS}{end}", f"longbench:hf=THUDM/LongBench{end}")
        assert sorted(hub.requests) == [f"GET /api/datasets/{name}" for name in ("THUDM/LongBench", LMSYS)]
    assert found["digest"] == local(f"lmsys:path={tmp_path / 'set'}{end}")
    assert (found["hub"], found["revision"], "library" in found) == (LMSYS, repository.sha, False)
    assert (bench["hub"], bench["file"]) == ("THUDM/LongBench", "data.zip")
    (offline,) = ask(home, hub.url, f"lmsys:hf={LMSYS}{end}", HF_HUB_OFFLINE="1")
    assert offline["digest"] == found["digest"]
    assert offline["notices"] == [f"{LMSYS}: HF_HUB_OFFLINE is set: what the Hugging Face cache holds of it is read"]


def test_sharegpt_is_the_one_file(tmp_path: Path, home: Path, bytes_tokenizer: Path) -> None:
    talk = [{"from": "human", "value": "hello"}, {"from": "gpt", "value": "hi"}]
    records = json.dumps([{"id": "a", "conversations": talk}] * 3).encode()
    name = "Aeala/ShareGPT_Vicuna_unfiltered"
    files = {"ShareGPT_V4.3_unfiltered_cleaned_split.json": records, "other/raw.json": b'[{"x": 1}]'}
    with running() as hub:
        hub.repositories[name] = FakeRepository(files)
        found, missing = ask(
            home, hub.url, f"sharegpt:hf={name},tokenizer={bytes_tokenizer}", "sharegpt:source=hub,rows=2"
        )
        assert not any("raw.json" in request for request in hub.requests)
    assert (found["data_set"], found["hub"], found["pairs_in_file"], found["rows"]) == (name, name, 3, 3)
    assert "the hub has no dataset of that name" in missing["error"]


def test_a_hub_that_hangs_up(tmp_path: Path, home: Path, bytes_tokenizer: Path) -> None:
    workload = f"lmsys:hf={LMSYS},tokenizer={bytes_tokenizer}"
    with running() as hub:
        hub.repositories[LMSYS] = lmsys_set(tmp_path / "set", 20, 1)
        hub.dies_after = 0
        (found,) = ask(home, hub.url, workload)
        assert "(the network was lost on the way): run it again, or with streaming=false" in found["error"]
        assert not [*(home / "bench").rglob("*")]
        hub.dies_after = None
        assert ask(home, hub.url, workload)[0]["rows"] == 20
