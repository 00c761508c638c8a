"""Real runs, predicted: LLMServingSim's on an RTX PRO 6000, and ours of vLLM on a CPU. Used by fidelity.py."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.calibrate.constants import calibrate
from harness.calibrate.profile import write_profile
from harness.core.host import Host
from harness.reproduce.measured_rows import read_measured_run, told
from harness.reproduce.prediction import Prediction, predict
from harness.runs.run import runs_of

RESULTS = Path(__file__).parents[1] / "results"
METRICS = ("output tok/s", "TTFT", "TPOT", "latency", "makespan")


def print_real_runs(reference: Path) -> None:
    """The errors of each prediction; `reference` holds the folder of LLMServingSim's run."""
    print("\n## Real runs, error of the mean, %\n")
    print("| run | cost model | fitted |" + "".join(f" {name} |" for name in METRICS))
    print("|---|---|---|" + "---|" * len(METRICS))
    folder = reference / "llmservingsim" / "rtxpro6000-llama-3.1-8b"
    run = told(
        read_measured_run(folder / "vllm-requests.jsonl"),
        gpu="rtxpro6000",
        model="Llama-3.1-8B",
        slots=128,
        token_budget=2048,
    )
    name = "Llama-3.1-8B on an RTX PRO 6000, vLLM 0.19, 300 ShareGPT requests at 10/s (LLMServingSim's)"
    for model in ("kernels", "roofline"):
        _print(name, model, "nothing", predict(run, model, Host()))
    fitted = predict(run, f"kernels:{folder}", Host(), "t0")
    what = f"t0 = {fitted.host.step_s * 1e3:.2f} ms, on this run"
    _print(name, "kernels, the tables measured on that machine", what, fitted)
    with tempfile.TemporaryDirectory() as place:
        profile = Path(place) / "cpu.toml"
        write_profile(calibrate(runs_of([RESULTS / "cpu-tiny"])), profile)
        for path in runs_of([RESULTS / "cpu" / "tiny" / "sharegpt-max_prompt_tokens=1000" / "v1"]):
            found = predict(told(read_measured_run(path), gpu=str(profile)), "linear", Host())
            about = "a tiny model on a CPU, real vLLM, 300 ShareGPT requests"
            _print(about, "linear, calibrated on other runs", "nothing of it", found)


def _print(name: str, model: str, fitted: str, prediction: Prediction) -> None:
    errors = {score.name: 100 * score.error for score in prediction.scores}
    print(f"| {name} | {model} | {fitted} |" + "".join(f" {errors[one]:+.1f} |" for one in METRICS))
