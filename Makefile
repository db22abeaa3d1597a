# Each target does its own set-up on a fresh Debian machine.
TRACE := bench/data/bytelm-e64-top6-l6.csv
DEMO_FLAGS := --stages 4 --num-micro-batches 10 --sources 1 --destinations 1 \
    --expert-model-parallel-size 8 --hidden-size 512 --moe-ffn-hidden-size 256
BUILD := build/release
QUICK := build/quick
JOBS := $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
SHELL := /bin/bash

.PHONY: help demo quick test bench setup
.ONESHELL:
.SHELLFLAGS := -ec -o pipefail

help:
	@echo "make demo    replay a recorded MoE routing trace through the scheduler"
	echo "make quick   build and run the tests of the daily loop: seconds"
	echo "make test    build everything and run the tests a release stands on"
	echo "make bench   benchmarks of this machine, as tables and as JSON in $(BUILD)"

# A tenth of the files is a line of progress; what the compiler says is shown when it fails.
demo: setup
	@echo "building the command and an example (log in $(BUILD)/build.log)"
	NINJA_STATUS='%p %f of %t files: ' cmake --build $(BUILD) --target pagestash-cli example_05_schedule | tee $(BUILD)/build.log |
	    sed -un 's/^ *\([0-9]*0%\) \(.*files\): .*/  \1  \2/p' | stdbuf -oL uniq -w 6 ||
	    { grep -v '^ *[0-9]*% ' $(BUILD)/build.log; exit 1; }
	echo "replaying $(TRACE)"
	$(BUILD)/bin/pagestash replay --routing $(TRACE) $(DEMO_FLAGS)
	echo "examples/05_schedule.c:"
	$(BUILD)/tests/example_05_schedule

quick:
	@third_party/install.sh
	$(call configure,quick)
	cmake --build $(QUICK) --target pagestash_tests
	tests/run.sh $(QUICK) --label-regex '^quick$$' --parallel $(JOBS)

test: setup
	@cmake --build $(BUILD)
	tests/run.sh $(BUILD) --label-exclude '^(long|python|soak)$$' --parallel $(JOBS)

bench: setup
	@cmake --build $(BUILD) --target pagestash_bench pagestash_schedule_bench pagestash_simulate_bench \
	    pagestash_plan_bench pagestash_arena_bench pagestash-cli
	set -x
	$(BUILD)/bin/pagestash-bench --json=$(BUILD)/bench.json
	bench/goals.py $(BUILD)/bench.json
	$(BUILD)/bin/pagestash-schedule-bench --json=$(BUILD)/schedule-bench.json
	bench/goals.py $(BUILD)/schedule-bench.json
	$(BUILD)/bin/pagestash-plan-bench --json=$(BUILD)/plan-bench.json
	$(BUILD)/bin/pagestash-arena-bench --json=$(BUILD)/arena-bench.json
	$(BUILD)/bin/pagestash-simulate-bench --json=$(BUILD)/simulate-bench.json
	bench/estimate/estimate.py $(BUILD)/bin/pagestash --json=$(BUILD)/estimate-bench.json

setup:
	@third_party/install.sh
	$(call configure,release)

# configure PRESET
define configure
mkdir -p build/$(1)
echo "configuring build/$(1)"
cmake --preset $(1) >build/$(1)/configure.log || { cat build/$(1)/configure.log; exit 1; }
sed -n 's/^-- pagestash/pagestash/p' build/$(1)/configure.log
endef
