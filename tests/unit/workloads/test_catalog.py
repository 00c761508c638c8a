import json
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tests.support.places import ROOT
from workloads.catalog import CATALOG, canonical_workload, load_workload
from workloads.core import options
from workloads.core.errors import WorkloadError
from workloads.core.trace import Ints, Trace
from workloads.lengths.embedded import load_embedded
from workloads.lengths.filters import select, with_history

EMBEDDED = ("sharegpt", "longbench", "wildchat", "numinamath", "lmsys")
TWINS = EMBEDDED[1:]


def load(name: str, requests: int | None = None, seed: int = 0, **given: str) -> Trace:
    return load_workload(name, given, requests=requests, seed=seed, model="Qwen/Qwen3-8B")


def moments(values: Ints) -> tuple[float, float]:
    return float(values.mean()), float(values.std())


@pytest.mark.parametrize("name", EMBEDDED)
def test_embedded_traces_say_what_they_are(name: str) -> None:
    trace = load(name)
    assert len(trace) == trace.source["rows"] == 20_000
    assert trace.source["kind"] == ("twin" if name in TWINS else "real")
    assert trace.label == (f"{name} (twin)" if name in TWINS else name)
    assert json.loads(json.dumps(trace.source)) == trace.source
    if name in TWINS:
        for key in ("published", "assumed", "law", "contradictions", "source", "seed", "drawn"):
            assert trace.source[key]
    else:
        assert {"package", "file_sha256", "tokenizer", "tokenizer_sha256"} <= set(trace.source)


def test_published_protocol_of_sharegpt_is_the_first_rows_capped() -> None:
    stored, run = load_embedded("sharegpt"), load("sharegpt", 4000)
    assert int(stored.output_tokens.max()) > 500
    np.testing.assert_array_equal(run.prompt_tokens, stored.prompt_tokens[:4000])
    np.testing.assert_array_equal(run.output_tokens, np.minimum(stored.output_tokens[:4000], 500))
    # Published: mean 280 (paper), 292 (reproduction), decode ratio 0.73.
    assert 265 < run.mean_output_tokens < 292
    assert run.mean_output_tokens / (run.mean_output_tokens + run.mean_prompt_tokens) == pytest.approx(0.73, abs=0.02)


def test_longbench_twin_has_its_published_moments() -> None:
    stored = load_embedded("longbench")
    assert (int(stored.prompt_tokens.min()), int(stored.prompt_tokens.max())) == (1000, 4000)
    assert stored.mean_prompt_tokens == pytest.approx(2500, rel=0.01)
    assert set(load("longbench").output_tokens.tolist()) == {20}
    native = load("longbench", forced="0")
    assert native.mean_output_tokens == pytest.approx(11, rel=0.01)
    assert int(native.output_tokens.max()) == 20


def test_wildchat_twin_has_its_published_moments() -> None:
    stored = load_embedded("wildchat")
    mean, sd = moments(stored.output_tokens)
    assert mean == pytest.approx(312, rel=0.01)
    assert sd == pytest.approx(245, rel=0.02)
    assert int(stored.output_tokens.min()) >= 1
    assert int(stored.output_tokens.max()) <= 2000
    assert stored.session is not None
    assert stored.turn is not None
    turns = np.bincount(stored.session)
    assert (int(turns.min()), int(turns.max())) == (6, 12)
    assert float(turns.mean()) == pytest.approx(27_900 / 3_000, rel=0.01)
    np.testing.assert_array_equal(stored.turn, np.concatenate([np.arange(n) for n in turns]))
    run = load("wildchat")
    assert int(run.output_tokens.max()) == 256
    assert 0.5 <= run.mean_output_tokens / (run.mean_output_tokens + run.mean_prompt_tokens) <= 0.7


def test_numinamath_twin_has_its_published_moments() -> None:
    stored = load_embedded("numinamath")
    mean, sd = moments(stored.output_tokens)
    assert mean == pytest.approx(1842, rel=0.01)
    assert sd == pytest.approx(856, rel=0.01)
    assert int(stored.output_tokens.min()) >= 800
    assert int(stored.output_tokens.max()) <= 4000
    assert set(load("numinamath", forced="4000").output_tokens.tolist()) == {4000}


def test_lmsys_twin_has_its_published_moments() -> None:
    stored = load_embedded("lmsys")
    length = stored.prompt_tokens + stored.output_tokens
    assert float(length.mean()) == pytest.approx(126, rel=0.02)
    assert float(np.median(length)) == pytest.approx(90, rel=0.02)
    assert int(length.max()) <= 905
    # The cut at 905 takes from the variance what a sample of 2,000 never shows.
    assert float(length.var()) == pytest.approx(14_938, rel=0.15)


def test_history_puts_earlier_turns_before_each_prompt() -> None:
    ints: Any = np.array
    trace = Trace("t", ints([1, 2, 3, 4]), ints([10, 20, 30, 40]), session=ints([5, 5, 5, 6]), turn=ints([0, 1, 2, 0]))
    assert with_history(trace).prompt_tokens.tolist() == [1, 13, 36, 4]
    plain, told = load("wildchat", 500), load("wildchat", 500, history="true")
    assert (told.prompt_tokens >= plain.prompt_tokens).all()
    with pytest.raises(WorkloadError, match="needs sessions"):
        with_history(Trace("t", ints([1]), ints([1])))


def test_each_seed_takes_the_next_window_and_wraps() -> None:
    whole = load("sharegpt").prompt_tokens
    np.testing.assert_array_equal(load("sharegpt", 4000, 3).prompt_tokens, whole[12_000:16_000])
    np.testing.assert_array_equal(
        load("sharegpt", 3000, 6).prompt_tokens, np.concatenate([whole[18_000:], whole[:1000]])
    )
    window = load("sharegpt", 3000, 7).source["window"]
    assert window == {"start": 1000 + 1854, "rows": 3000, "of": 20_000, "order": "file"}, "the second lap begins later"
    starts = [load("sharegpt", 4000, seed).source["window"]["start"] for seed in range(60)]
    assert starts[:5] == [0, 4000, 8000, 12_000, 16_000]
    assert len(set(starts)) == 60, "no two seeds take the same rows"
    doubled = load("sharegpt", 40_000)
    np.testing.assert_array_equal(doubled.prompt_tokens, np.concatenate([whole, whole]))
    assert doubled.session is None
    assert doubled.source["notes"] == ["40000 requests repeat the trace of 20000 rows 2 times"]


def test_another_models_vocabulary_is_noted() -> None:
    assert "notes" not in load("sharegpt", 10).source
    told = load_workload("sharegpt", {}, requests=10, seed=0, model="meta-llama/Llama-3.1-8B")
    assert told.source["notes"] == ["lengths are counted with Qwen's vocabulary, the model is meta-llama/Llama-3.1-8B"]


def test_windows_keep_sessions_and_other_orders_drop_them() -> None:
    assert load("wildchat", 100).session is not None
    for order in ("shuffled", "paper"):
        mixed = load("wildchat", 100, order=order)
        assert mixed.session is None
        assert "stands alone" in mixed.source["notes"][0]


def test_shuffled_order_permutes_the_whole_trace_by_the_seed() -> None:
    whole = load("sharegpt")
    mixed = load("sharegpt", 20_000, 0, order="shuffled")
    assert sorted(mixed.prompt_tokens.tolist()) == sorted(whole.prompt_tokens.tolist())
    assert load("sharegpt", 100, 0, order="shuffled").digest != load("sharegpt", 100, 1, order="shuffled").digest
    assert load("sharegpt", 100, 1, order="shuffled").digest == load("sharegpt", 100, 1, order="shuffled").digest


def test_paper_order_is_the_published_clients_own_shuffle() -> None:
    # The authors' log of their concurrency-shift run: mean output of the first 1000 and 2000 of 3000 requests.
    drawn = np.random.RandomState(42).randint(192, 321, 3000).astype(np.int64)
    trace = Trace("published", np.full(3000, 512, np.int64), drawn)
    assert (float(drawn[:1000].mean()), float(drawn[:2000].mean())) == (255.931, 255.3445)
    sent = select(trace, 3000, 0, "paper").output_tokens
    assert (float(sent[:1000].mean()), float(sent[:2000].mean())) == (254.703, 256.4575)


@pytest.mark.parametrize("bad", [0, -3])
def test_windows_need_requests_and_a_seed(bad: int) -> None:
    for name in ("sharegpt", "synthetic"):
        with pytest.raises(WorkloadError, match="requests asked for"):
            load(name, bad)
        with pytest.raises(WorkloadError, match="is negative"):
            load(name, 10, -1)


def test_synthetic_lengths() -> None:
    even = load("synthetic", 20_000)
    assert (int(even.prompt_tokens.min()), int(even.prompt_tokens.max())) == (256, 768)
    assert (int(even.output_tokens.min()), int(even.output_tokens.max())) == (128, 384)
    assert even.mean_prompt_tokens == pytest.approx(512, rel=0.01)
    memoryless = load("synthetic", 20_000, law="geometric", mu_o="100")
    mean, sd = moments(memoryless.output_tokens)
    assert mean == pytest.approx(100, rel=0.02)
    assert sd == pytest.approx(np.sqrt(0.99) / 0.01, rel=0.03)
    assert int(memoryless.output_tokens.min()) == 1
    assert set(load("synthetic", 50, law="geometric", mu_o="1").output_tokens.tolist()) == {1}
    fixed = load("synthetic", 50, law="fixed", mu_l="7", mu_o="9")
    assert set(fixed.prompt_tokens.tolist()) == {7}
    assert set(fixed.output_tokens.tolist()) == {9}
    assert int(load("synthetic", 500, mu_l="1", mu_o="1", jitter="1").prompt_tokens.min()) == 1
    assert load("synthetic", 50).digest == load("synthetic", 50).digest != load("synthetic", 50, 1).digest
    assert len(load("synthetic")) == 4000


def test_canonical_names() -> None:
    assert canonical_workload("sharegpt", {}) == "sharegpt"
    assert canonical_workload("sharegpt", {"output_cap": "500", "pairs": "all"}) == "sharegpt"
    assert (
        canonical_workload("sharegpt", {"pairs": "first", "output_cap": "0300"})
        == "sharegpt:output_cap=300,pairs=first"
    )
    assert canonical_workload("sharegpt", {"allow_truncated": "YES"}) == "sharegpt:allow_truncated=true"
    assert canonical_workload("synthetic", {"jitter": ".25"}) == "synthetic:jitter=0.25"
    assert canonical_workload("file", {"path": "a/b.jsonl", "format": "jsonl"}) == "file:a/b.jsonl,format=jsonl"
    name, given = options.split("file:a/b.jsonl,format=jsonl")
    assert (name, given) == ("file", {"path": "a/b.jsonl", "format": "jsonl"})
    assert load("sharegpt", 5, output_cap="10").source["workload"] == "sharegpt:output_cap=10"


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("sharegtp", {}, "unknown workload 'sharegtp' (did you mean sharegpt?): known are sharegpt, longbench,"),
        ("my/own.jsonl", {}, "unknown workload 'my/own.jsonl'; a file is file:my/own.jsonl: known are"),
        ("nothing-like-it", {}, "unknown workload 'nothing-like-it': known are sharegpt,"),
        ("sharegpt", {"outputcap": "3"}, "sharegpt has no option 'outputcap' (did you mean output_cap?)"),
        ("sharegpt", {"output_cap": "many"}, "sharegpt: output_cap=many is not a whole number"),
        ("sharegpt", {"output_cap": "-1"}, "sharegpt: output_cap=-1 is below 0"),
        ("sharegpt", {"min_prompt_tokens": "0"}, "sharegpt: min_prompt_tokens=0 is below 1"),
        ("sharegpt", {"allow_truncated": "maybe"}, "sharegpt: allow_truncated=maybe is neither true nor false"),
        ("sharegpt", {"pairs": "frist"}, "pairs=frist is unknown (did you mean first?): it is one of all, first"),
        ("sharegpt", {"tokenizer": "qwen"}, "tokenizer and allow_truncated go with path=FILE, hf=ID or source=hub"),
        ("synthetic", {"jitter": "nan"}, "synthetic: jitter=nan is not finite"),
        ("synthetic", {"jitter": "1.5"}, "synthetic: jitter=1.5 is above 1"),
        ("synthetic", {"mu_l": "0"}, "synthetic: mu_l=0 is below 1"),
        ("synthetic", {"law": "normal"}, "law=normal is unknown"),
        ("synthetic", {"mu_o": "1" + "0" * 30}, f"mu_o={10**30} is above 1000000000"),
        ("file", {}, "file needs path=…"),
        ("lmsys", {"paht": "x"}, "lmsys has no option 'paht'"),
        ("lmsys", {"path": "/none/x"}, "/none/x: no such file"),
        ("lmsys", {"path": "x", "hf": "y"}, "lmsys: path and hf are both given"),
        ("wildchat", {"min_turns": "2"}, "wildchat: min_turns goes with path=… or hf=…"),
        ("wildchat", {"order": "time"}, "the twin has no timestamps"),
    ],
)
def test_what_a_user_can_mend_is_told_in_one_line(name: str, given: dict[str, str], told: str) -> None:
    with pytest.raises(WorkloadError, match=re.escape(told)) as caught:
        load_workload(name, given, requests=10, seed=0, model="m/m")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [("sharegpt:a=1,a=2", "a is given twice"), ("sharegpt:a=1,b", "'b' is not an option: write key=value")],
)
def test_option_texts(text: str, told: str) -> None:
    assert options.split("x") == ("x", {})
    assert options.split("x: a=1, b = c=d") == ("x", {"a": "1", "b": "c=d"})
    with pytest.raises(WorkloadError, match=told):
        options.split(text)


def test_every_entry_explains_itself() -> None:
    for name, entry in CATALOG.items():
        assert entry.name == name
        assert entry.summary
        assert entry.source
        assert all(option.help for option in entry.options)


GOLDEN = {
    "sharegpt": "b8981562d3ff5185829fbd7d471beb5ad56f3f1044ecc67f5ebb9b079b78d29a",
    "longbench": "d41334024c5c741d07aa9b6b18625c494ca9993d815ba0b391a7a3aab2110f9c",
    "wildchat": "6493067904cd1f723e016f7f7d9732709ba6c7cd8b73696706547a3de587bb3c",
    "numinamath": "eaeb186691a9782330b58caf06b0a9aa45edc9711d75c79f640e5cbe3db56c9c",
    "lmsys": "b567af4cc26a0b883bbbc883a651c5fcca3cce8d7980d43f1f7711c091bf68bb",
    "synthetic": "38382abc3c8733630db0a2956d4882ae96b2876e8a4ee1b02204acdd57a73a1d",
}


@pytest.mark.parametrize("hash_seed", ["0", "424242"])
def test_digests_are_the_same_in_every_process(hash_seed: str) -> None:
    code = (
        "import json; from workloads.catalog import load_workload as load; "
        f"print(json.dumps({{n: load(n, {{}}, requests=1000, seed=3, model='').digest for n in {list(GOLDEN)!r}}}))"
    )
    environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == GOLDEN
