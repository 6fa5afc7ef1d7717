# Two commands do everything: `make repro` and `make test`. Both create the environment first.
VENV ?= .venv
PYTHON ?= python3
export PATH := $(abspath $(VENV))/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true

.PHONY: repro test lint ui bench clean
.DEFAULT_GOAL := repro

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "fedtide needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	if command -v uv >/dev/null; then uv pip install -q --python $(VENV)/bin/python -e '.[dev,he]' -c constraints.txt; \
	else $(VENV)/bin/python -m pip install -q --disable-pip-version-check -e '.[dev,he]' -c constraints.txt; fi
	touch $@

repro: $(VENV)/.ready   ## play the pipeline: download, partition, train, report, tune
	dvc repro
	@echo
	@echo "report:  report/report.html"
	@echo "runs:    make ui   opens MLflow on http://127.0.0.1:5000"

test: $(VENV)/.ready    ## the test suite
	python -m pytest -n auto

lint: $(VENV)/.ready    ## style and types
	ruff check
	ruff format --check
	mypy

ui: $(VENV)/.ready      ## MLflow on the loopback interface
	fedtide ui

bench: $(VENV)/.ready   ## speed, as ratios to a plain loop
	python benchmarks/throughput.py

clean:                  ## everything that can be made again, but not the environment
	rm -rf runs mlruns worlds outcomes report tuning code data .dvc/cache .dvc/tmp
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
