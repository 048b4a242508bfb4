# SPDX-License-Identifier: MIT
# A thin front door: Meson builds (meson.build), tools/ has the longer recipes.

PREFIX ?= /usr/local
FUZZ_SECONDS ?= 60
COMMANDS ?= 10000000
TIMES ?= 10000
SEEDS ?= 20000

SECONDS ?= 120

.PHONY: help run build test lint format coverage bench-core bench-peers bench-gate \
	bench-drivers conform contend chaos demo-redis-failover fuzz model mutants sim \
	sim-matrix install setup clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1#/p' Makefile | \
		while IFS='#' read -r target text; do printf '  %-19s %s\n' "$$target" "$$text"; done

run: build ## build, then run a small job under a lock
	@tools/run-demo.sh

build: setup build/build.ninja ## build build/picket and the library
	@ninja -C build product

build/build.ninja:
	meson setup build

test: ## run all tests, plain and sanitized; the last line counts them
	@tools/test.sh

lint: build ## check format, style, layers, and what clang-tidy and shellcheck find
	@tools/lint.sh

format: ## put C files into the project's format
	@tools/setup.sh lint
	@tools/cfiles.sh | xargs -0 clang-format -i

coverage: ## measure what the tests reach in src/core; fails below the floor
	@tools/coverage.sh

bench-core: build ## measure the lock machine alone
	@ninja -C build bench_core
	@build/bench_core

bench-peers: build ## measure a cluster beside Redis and etcd; takes five minutes
	@tools/setup.sh bench
	@bench/compare.py

bench-gate: build ## measure what the gate costs: nginx alone and behind it
	@tools/setup.sh bench-gate
	@bench/gate.py

demo-redis-failover: build ## show what a failover of Redis does to a lock, and of Picket
	@tools/setup.sh test
	@python3 tools/demo-redis-failover.py

bench-drivers: build ## measure our client over each store beside that store's own
	@tools/setup.sh bench
	@bench/drivers.py

chaos: build ## kill and freeze real nodes for SECONDS (120) and check what clients saw
	@PICKET_CHAOS_SECONDS=$(SECONDS) python3 test/e2e/chaos.py chaos

conform: build ## run the conformance suite over every store, as a table
	@tools/setup.sh test
	@ninja -C build test/conform
	@test/e2e/conform_matrix.py

contend: build ## 8 processes on one local lock, TIMES (10000) grants
	@ninja -C build test/contend
	@build/test/contend 8 $(TIMES)

fuzz: ## run each fuzz target for FUZZ_SECONDS (60)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tools/fuzz.sh

model: build ## compare machine and model over COMMANDS random commands (10000000)
	@ninja -C build test/differential
	@build/test/differential --commands $(COMMANDS)

mutants: build ## plant every mistake of test/mutants; TEXT=part-of-a-name for some
	@tools/setup.sh test
	@test/mutants/mutants.py build $(TEXT)

sim: build ## simulate SEEDS (20000) clusters with faults in virtual time
	@ninja -C build test/sim
	@build/test/sim --seeds 1-$(SEEDS)

sim-matrix: build ## what breaks in SEEDS (20000) simulated worlds of each setting
	@ninja -C build test/matrix
	@build/test/matrix --seeds $(SEEDS)

install: setup build/build.ninja ## install under PREFIX (/usr/local) and DESTDIR
	@meson configure build -Dprefix=$(PREFIX)
	@ninja -C build product
	@meson install -C build --no-rebuild

setup: ## install the packages that building needs (Debian)
	@tools/setup.sh build

clean: ## remove everything that was built
	rm -rf build build-asan build-tsan build-coverage build-fuzz
