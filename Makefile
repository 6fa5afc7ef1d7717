# Two commands do everything: `make repro` and `make test`. Every target creates the environment first.
VENV ?= .venv
PYTHON ?= python3
export PATH := $(abspath $(VENV))/bin:$(PATH)
export DVC_NO_ANALYTICS := 1
export MLFLOW_DISABLE_TELEMETRY := true
unexport PYTHONDONTWRITEBYTECODE  # commands start in half the time where compiled sources are kept

.PHONY: repro flights test test-all faults lint docs ui bench clean
.DEFAULT_GOAL := repro

# Installs $(EXTRAS) by uv, in a fraction of pip's time; by pip where the index lacks uv or where uv fails. uv does not read pip's
# settings, so those of the index are passed on unless uv has its own, and every index is searched, as pip does. Neither
# compiles what it installs: most of it is never imported, and the first import keeps the rest compiled.
PIP = $(VENV)/bin/python -m pip --disable-pip-version-check
INDEX = $(PIP) config list | sed -nE 's/\\n/ /g; s/^[^=]*\.index-url=/UV_DEFAULT_INDEX /; s/^[^=]*\.extra-index-url=/UV_EXTRA_INDEX_URL /; \
	s/^[^=]*\.no-index=/UV_NO_INDEX /; s/^[^=]*\.find-links=/UV_FIND_LINKS /; s/^[^=]*\.cert=/SSL_CERT_FILE /; \
	s/^[^=]*\.proxy=/ALL_PROXY /; s/^([A-Z_]+) (.*)/\1=$${\1:-\2}/p'
define install
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "fedtide needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	@set -a; eval "$$($(INDEX))"; set +a; echo "installing .[$(EXTRAS)] at the versions of constraints.txt"; \
	$(PIP) install -q uv -c constraints.txt 2>/dev/null && \
	$(VENV)/bin/uv pip install -q --python $(VENV)/bin/python --index-strategy unsafe-best-match \
		-e '.[$(EXTRAS)]' -c constraints.txt 2>/dev/null || \
	{ echo "uv cannot install here: pip does, which takes longer"; $(PIP) install -q --no-compile -e '.[$(EXTRAS)]' -c constraints.txt; }
	touch $@
endef

.NOTPARALLEL:  # both stamps are of one folder
$(VENV)/.repro: EXTRAS := all
$(VENV)/.repro: pyproject.toml constraints.txt   ## what the pipeline needs, whatever params.yaml chooses
	$(install)

$(VENV)/.ready: EXTRAS := dev,docs,he
$(VENV)/.ready: pyproject.toml constraints.txt   ## that, and what tests and documentation need
	$(install)
	touch $(VENV)/.repro

repro: $(VENV)/.repro   ## reproduce the pipeline: download, partition, train, report, tune
	@python pipeline/unlock.py
	dvc repro
	@echo
	@echo "report:  report/report.html"
	@echo "runs:    make ui   opens MLflow and prints the link"

FLIGHTS := --params results/flights_logistic/best.yaml --set compare.workers=0 --set 'compare.initializers=[previous]' \
	--set 'compare.algorithms=[fedavg, fedprox, scaffold, fedssg, feddyn, fedwcm, cfl_regularization, cfl_core_set, dynamicfl, pooled, frozen]'

flights: $(VENV)/.repro ## aircraft over the months of 2013, at most ten minutes on two cores
	fedtide compare $(FLIGHTS)
	fedtide report $(FLIGHTS) --out report/flights
	@echo "report:  report/flights/report.html, with population.png"

test: $(VENV)/.ready    ## the quick tests, some minutes on two cores
	python -m pytest -n auto

test-all: test          ## those, and then the tests marked slow
	python -m pytest -n auto -m slow

faults: $(VENV)/.ready  ## the fault campaign: kills of commands, and pairs of them at once; most of an hour, see --help
	python tests/faults/campaign.py

lint: $(VENV)/.ready    ## style and types
	ruff check
	ruff format --check
	mypy

docs: $(VENV)/.ready    ## the documentation site, in docs/_build/html; a warning is an error
	python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "docs:    docs/_build/html/index.html"

ui: $(VENV)/.repro      ## MLflow on the loopback interface
	fedtide ui

bench: $(VENV)/.repro   ## speed, as ratios to a plain loop
	python benchmarks/throughput.py

clean:                  ## everything that can be made again, but not the environment
	rm -rf runs tide worlds outcomes metrics curves report tuning inputs data docs/_build .dvc/cache .dvc/tmp
	[ ! -d mlruns ] || find mlruns -mindepth 1 ! -path mlruns/.gitignore -delete
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
