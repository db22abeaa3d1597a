# Each target does its own set-up on a fresh Debian machine.
TRACE := bench/data/bytelm-e64-top6-l6.csv
DEMO_FLAGS := --ep 8 --microbatches 4 --hidden 512 --ffn 256
BUILD := build/release
JOBS := $(shell nproc)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)

.PHONY: help demo test bench setup

help:
	@echo "make demo    replay a recorded MoE routing trace through stash and restore"
	@echo "make test    build everything and run the tests"
	@echo "make bench   benchmarks of this machine, as tables and as JSON in $(BUILD)"

demo: setup
	@cmake --build $(BUILD) --target pagestash-cli >$(BUILD)/build.log || \
	    { cat $(BUILD)/build.log; exit 1; }
	$(BUILD)/bin/pagestash replay --routing $(TRACE) $(DEMO_FLAGS)

test: setup
	cmake --build $(BUILD)
	tests/run.sh $(BUILD) --parallel $(JOBS)

bench: setup
	cmake --build $(BUILD) --target pagestash_bench pagestash_plan_bench pagestash_arena_bench pagestash-cli
	$(BUILD)/bin/pagestash-bench --json $(BUILD)/bench.json
	$(BUILD)/bin/pagestash-plan-bench --json $(BUILD)/plan-bench.json tests/data/minimalloc
	$(BUILD)/bin/pagestash-arena-bench
	bench/estimate/estimate.py $(BUILD)/bin/pagestash --json $(BUILD)/estimate-bench.json

setup:
	@third_party/install.sh
	@mkdir -p $(BUILD)
	@cmake --preset release >$(BUILD)/configure.log || { cat $(BUILD)/configure.log; exit 1; }
	@sed -n 's/^-- pagestash/pagestash/p' $(BUILD)/configure.log
