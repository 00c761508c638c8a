# make demo · make demo-vllm · make test · make check · make soak — each sets up what it needs first.
PYTHON ?= python3
RUN = .venv/bin
PIP = $(RUN)/python -m pip --disable-pip-version-check
# Where it is set, each start compiles all of bench again, and each start of vLLM all of vLLM: 17 s.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup browser engine demo demo-vllm test test-vllm test-unit test-cli test-properties test-browser check static unit
.PHONY: soak bench mutants lock audit clean

setup: .venv/ready

.venv/ready: pyproject.toml requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "bench needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet --no-compile --no-deps --require-hashes -r requirements.txt
	$(PIP) install --quiet --no-compile --no-deps --no-build-isolation -e .
	@touch $@

# What only developers need comes when they need it, so that a first `make demo` is short: most files of the packages
# are never imported, so none is compiled before it is.
.venv/dev: .venv/ready constraints.txt
	sed -n '/^pip==/,/[^\\]$$/p' constraints.txt | $(PIP) install --quiet --upgrade --require-hashes -r /dev/stdin
	$(PINNED) --group dev
	@touch $@

# Of what is named, the versions and hashes of both lists and nothing else.
PINNED = $(PIP) install --quiet --no-compile --require-hashes -c requirements.txt -c constraints.txt

# Both lists anew, for every system and Python: what bench itself needs, and what its extras, tests and tools need besides.
LOCK = uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header
lock:
	printf 'hatchling\neditables\n' | $(LOCK) pyproject.toml - -o requirements.txt
	echo pip | $(LOCK) pyproject.toml - --all-extras --group dev --group mutants -c requirements.txt \
	    $$(sed -n 's/^\([a-z0-9._-]*\)==.*/--no-emit-package \1/p' requirements.txt) -o constraints.txt

# Known weaknesses of what is pinned. Where no advisory database is in reach, this says so and fails.
audit:
	pip-audit --strict --disable-pip --no-deps -r requirements.txt -r constraints.txt

# The main job: real ShareGPT lengths under two policies on a virtual L40S, five repeats, which is better, and a site.
demo: setup
	$(RUN)/bench run --gpu l40s --policy v1,ebplus --workload sharegpt --concurrency 512
	$(RUN)/bench site build --results runs --out site/public

# A Python with vLLM for the CPU, in bench's cache (some gigabytes); BENCH_ENGINE_PYTHON names another.
engine: setup
	@[ -n "$$BENCH_ENGINE_PYTHON" ] || $(RUN)/bench engine install cpu

WITH_ENGINE = BENCH_ENGINE_PYTHON="$${BENCH_ENGINE_PYTHON:-$$($(RUN)/bench engine list --python cpu)}"

# Real vLLM on this CPU, a small random model, a server for each policy.
demo-vllm: engine
	$(WITH_ENGINE) scripts/demo_vllm.sh

check: static unit

static: .venv/dev
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports --no-cache
	$(RUN)/python scripts/house.py

unit: .venv/dev
	$(RUN)/pytest -n auto --maxprocesses=8 --dist=worksteal tests/unit tests/properties

# A Chromium and a font from the system's packages, for the tests of the site.
browser:
	@{ command -v chromium-headless-shell || command -v chromium; } >/dev/null && fc-list 2>/dev/null | grep -q DejaVu || \
	  { [ "$$(id -u)" = 0 ] || command -v sudo >/dev/null || \
	    { echo "the site's tests need a browser: as root, apt-get install $(BROWSER)" >&2; exit 2; }; \
	    SUDO=$$([ "$$(id -u)" = 0 ] || echo sudo); \
	    $$SUDO apt-get -qq update && $$SUDO apt-get -qq install -y --no-install-recommends $(BROWSER); }

BROWSER = chromium-headless-shell fonts-dejavu-core fontconfig

# The longest parts start first, and each core takes the next as it ends one: two of them at once on two cores, all on
# many. What fails stops no other part. What starts vLLM and what opens a Chromium goes one at a time.
PARTS = test-vllm test-unit test-cli test-properties test-browser static

test: .venv/dev
	+@$(MAKE) --no-print-directory --jobs=$$(n=$$(nproc); echo $$((n > 2 ? 6 : 2))) --keep-going --output-sync=line $(PARTS)

# The engine is installed in this part, so that the part has its place from the start.
test-vllm: .venv/dev
	+@$(MAKE) --no-print-directory engine
	$(WITH_ENGINE) $(RUN)/pytest tests/engine tests/conformance

test-unit: .venv/dev
	$(RUN)/pytest $(SPREAD) tests/unit

test-cli: .venv/dev
	$(RUN)/pytest $(SPREAD) tests/cli

test-properties: .venv/dev
	$(RUN)/pytest $(SPREAD) tests/properties

test-browser: browser .venv/dev
	$(RUN)/pytest tests/browser

# Processes for one part, where there are more cores than parts at once.
SPREAD = $$(n=$$(nproc); [ $$n -le 2 ] || echo -n $$((n > 9 ? 4 : 2)) --dist=worksteal)

# Longer than a test may take: more random cases. Run by hand; say what it found.
soak: engine .venv/dev
	HYPOTHESIS_PROFILE=soak $(RUN)/pytest tests/properties tests/unit --timeout=3600
	$(WITH_ENGINE) BENCH_CONFORMANCE_TRACES=2000 $(RUN)/pytest -s tests/conformance
	$(WITH_ENGINE) BENCH_ENGINE_REQUESTS=2000 $(RUN)/pytest tests/engine/test_demo.py tests/engine/test_runs.py
	BENCH_GRID_KILLS=100 $(RUN)/pytest tests/cli/test_grid.py -k kill --timeout=3600
	$(PINNED) ray
	$(RUN)/pytest tests/cluster
	# Fifteen parsers, together a million inputs; BENCH_FUZZ_SEED gives other ones.
	BENCH_FUZZ_INPUTS=67000 $(RUN)/pytest tests/properties/test_fuzz.py --timeout=36000
	BENCH_FAILED_WRITES=1000 $(RUN)/pytest tests/properties/test_failed_writes.py --timeout=3600
	$(RUN)/python scripts/regret_grid.py build/regret.toml
	$(RUN)/python scripts/regret_grid.py build/held-out.toml --held-out
	for grid in regret held-out; do $(RUN)/bench regret build/$$grid.toml --out build/$$grid --across token_budget \
	    --hindsight v1,v0,eb:theta=0.03,eb:theta=0.1,eb:theta=0.3,eb,ebplus; done
	PYTHONPATH=. $(RUN)/python scripts/calibration.py --pairs 300 --out docs/calibration.md

# Performance, printed; nothing is asserted.
bench: .venv/dev
	$(RUN)/python tests/bench/simulate.py
	$(RUN)/python tests/bench/tokenize_sharegpt.py
	$(RUN)/python tests/bench/planning.py
	$(RUN)/python tests/bench/fairness.py
	$(RUN)/python tests/bench/startup.py
	$(RUN)/python tests/bench/grid.py
	$(RUN)/python tests/bench/site.py --browser
	[ -z "$(BENCH_ENGINE_PYTHON)" ] || PYTHONPATH=. $(BENCH_ENGINE_PYTHON) tests/bench/plugin.py

# Which mutants of the code the tests notice; MODULE=measure/estimate for some, COUNT a module, another SEED.
mutants: .venv/dev
	$(PINNED) --group mutants
	$(RUN)/python scripts/mutants.py "$(MODULE)" --count $(or $(COUNT),8) --seed $(or $(SEED),1)

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
