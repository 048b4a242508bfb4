# SPDX-License-Identifier: MIT
# A thin front door: Meson builds (meson.build), tools/ has the longer recipes.

PREFIX ?= /usr/local
COMMANDS ?= 10000000
TIMES ?= 10000
SEEDS ?= 20000

# Of the longer campaigns (docs/testing.md); MINUTES ends any of them, and the same
# command goes on from there.
MINUTES ?= 0
FUZZ_SECONDS ?= 60
SECONDS ?= 60
STORMS ?= 2
PARTS ?= 6
EVIDENCE = tools/evidence.py --minutes $(MINUTES) $(OPTIONS)

.NOTPARALLEL: # packages come before what is built with them
.PHONY: help run build test setup lint format coverage bench-core bench-disk bench-large \
	bench-peers bench-gate bench-hostile bench-drivers conform contend chaos \
	demo-redis-failover flake-hunt fuzz model mutants sim sim-matrix soak \
	upgrade-storm install clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1#/p' Makefile | \
		while IFS='#' read -r target text; do printf '  %-19s %s\n' "$$target" "$$text"; done

run: setup build ## build, then run a small job under a lock
	@tools/run-demo.sh

test: ## run all tests, plain and sanitized; the last line counts them
	@tools/test.sh

setup: ## install the packages that building needs (Debian)
	@tools/setup.sh build

# The packages of another purpose: setup-test, setup-bench ...
setup-%:
	@tools/setup.sh $*

build: build/build.ninja ## build build/picket and the library; installs nothing
	@ninja -C build product

build/build.ninja:
	@command -v meson >/dev/null || { \
		echo 'picket: meson is missing: run "make setup" first' >&2; exit 1; }
	meson setup build

lint: setup-lint build ## check format, layers, shell, and clang-tidy at full depth
	@tools/lint.sh

format: setup-lint ## put C files into the project's format
	@tools/cfiles.sh | xargs -0 clang-format -i

coverage: ## measure what the tests reach in src/core; fails below the floor
	@tools/coverage.sh

bench-core: setup build ## measure the lock machine alone
	@ninja -C build bench_core
	@build/bench_core

bench-large: setup-test build ## stalls of a cluster with 10^6 locks; half an hour
	@bench/large.py

bench-disk: setup build ## measure durable writes to the disk below build/
	@ninja -C build bench_disk
	@mkdir -p build/bench-disk && build/bench_disk build/bench-disk

bench-peers: setup-bench build ## measure a cluster beside Redis and etcd; five minutes
	@bench/compare.py

bench-hostile: setup-test build ## an honest client beside hostile ones; ten minutes
	@bench/hostile.py

bench-gate: setup-bench-gate build ## measure what the gate costs: nginx with and without
	@bench/gate.py

bench-drivers: setup-bench build ## measure our client over each store beside its own
	@bench/drivers.py

demo-redis-failover: setup-test build ## show what a failover of Redis does to a lock
	@python3 tools/demo-redis-failover.py

conform: setup-test build ## run the conformance suite over every store, as a table
	@ninja -C build test/conform
	@test/e2e/conform_matrix.py

contend: setup build ## 8 processes on one local lock, TIMES (10000) grants
	@ninja -C build test/contend
	@build/test/contend 8 $(TIMES)

model: setup build ## compare machine and model over COMMANDS random commands (10000000)
	@ninja -C build test/differential
	@build/test/differential --commands $(COMMANDS)

mutants: setup-test build ## plant every mistake of test/mutants; TEXT=part-of-a-name
	@test/mutants/mutants.py build $(TEXT)

flake-hunt: setup-test ## every test 30 times, the suite 3 times, under load; takes hours
	@tools/test.sh --build-only
	@$(EVIDENCE) flake-hunt

sim: setup build ## simulate SEEDS (20000) clusters with faults in virtual time
	@ninja -C build test/sim
	@$(EVIDENCE) sim --seeds $(SEEDS)

chaos: setup-test build ## kill and freeze real nodes in STORMS (2) of SECONDS (60)
	@$(EVIDENCE) chaos --storms $(STORMS) --seconds $(SECONDS)

upgrade-storm: setup-test build ## upgrade and downgrade clusters in STORMS of SECONDS
	@ninja -C build test/picket-next
	@$(EVIDENCE) upgrade-storm --storms $(STORMS) --seconds $(SECONDS)

soak: setup-test build ## a cluster under load in PARTS (6) of ten minutes must not grow
	@$(EVIDENCE) soak --parts $(PARTS)

fuzz: setup-fuzz ## run each fuzz target for FUZZ_SECONDS (60)
	@tools/fuzz.sh
	@$(EVIDENCE) fuzz --seconds $(FUZZ_SECONDS)

sim-matrix: setup build ## what breaks in SEEDS (20000) simulated worlds of each setting
	@ninja -C build test/matrix
	@build/test/matrix --seeds $(SEEDS)

install: build ## install under PREFIX (/usr/local) and DESTDIR
	@meson configure build -Dprefix=$(PREFIX)
	@ninja -C build product
	@meson install -C build --no-rebuild

clean: ## remove everything that was built; reports stay
	rm -rf build build-asan build-tsan build-coverage build-fuzz \
		build-parts build-parts-clang
