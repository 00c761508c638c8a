#!/usr/bin/env bash
# demo_vllm.sh [PLACE [REQUESTS]]: real vLLM on this CPU. First runs tell what the steps of a small random model cost
# here, then v1, EB and EB+, which go by these costs, serve the same requests. All of it lands in PLACE.
set -euo pipefail
bench="$(cd "$(dirname "$0")/.." && pwd)/.venv/bin/bench"
place="${1:-$(dirname "$0")/../runs/demo-vllm}"
mkdir -p "$place"
cd "$place"
load=(--model tiny --engine-args '--load-format dummy --dtype float32 --enforce-eager'
  --workload synthetic:mu_l=200,mu_o=50 --requests "${2:-400}" --concurrency 64
  --slots 32 --token-budget 512 --max-model-len 4096)

"$bench" engine tiny-model tiny
[ -e cpu-tiny.toml ] || {
  "$bench" run --engine vllm --gpu cpu --policy v1,eb:k=8 "${load[@]}" --out first
  "$bench" calibrate first --out cpu-tiny.toml
}
"$bench" run --engine vllm --gpu ./cpu-tiny.toml --policy v1,eb,ebplus "${load[@]}" --out .
