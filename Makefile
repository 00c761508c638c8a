# make demo · make test · make check — each sets up what it needs first.
PYTHON ?= python3
PIP = .venv/bin/python -m pip --disable-pip-version-check

.PHONY: setup demo test check soak bench clean

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "bench needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet -c constraints.txt -e . --group dev
	@touch $@
