# make run    the demonstration     make test   every test       make bench  figures against peers
# make check  format, clippy, docs and unit tests of what changed, before a commit (SINCE=COMMIT: since then)
# make deb    the Debian package           make deb-test   installs, upgrades, removes it in a clean Debian
# make lint   format, clippy, docs, licences   make soak   the long forms of tests, then simulation without end
#                                              (SEEDS=A..B: these seeds alone)
#
# Every target installs first what it needs and does not find (scripts/setup).

SHELL := /bin/bash
CARGO := cargo
PYTHON := /usr/bin/python3
FOREBAY := target/release/forebay
export PATH := $(PATH):/usr/sbin:/sbin


.PHONY: deb deb-test instructions help run check test lint licences reference unit conformance guest-test bench bench-quick soak setup build build-bench build-tested build-tests clean
.NOTPARALLEL:

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile
	@echo "More: make build, unit, conformance [ONLY=words], guest-test, bench-quick, setup, reference"

run: setup-build build
	$(FOREBAY) demo $(if $(FOREBAY_TRACE),--trace $(FOREBAY_TRACE))

build:
	$(CARGO) build --release --locked -p forebay

# Benchmarks need the load generator beside it.
build-bench:
	$(CARGO) build --release --locked -p forebay -p forebay-bench

check: setup-build
	@scripts/check $(if $(SINCE),--since $(SINCE))

# Test programs with these words in their names ask no clock that a busy machine would upset. They run beside the
# conformance tests, and count as one of them. The last line is their sum. From nothing, it only takes time to keep what
# compiles a change sooner, and the lines of functions in backtraces.
CLOCKLESS := forebay-core forebay-nbd forebay-sim forebay-timed trace advice
test: export CARGO_INCREMENTAL := $(if $(wildcard target/debug),1,0)
test: export CARGO_PROFILE_DEV_DEBUG := $(if $(wildcard target/debug),line-tables-only,none)
test: setup-test lint build-tests build-tested
	scripts/unit --but $(CLOCKLESS)
	$(CONFORMANCE) --beside "scripts/unit $(CLOCKLESS)"

lint: licences
	@git ls-files '*.rs' '*.py' | xargs wc -l | awk '$$1 > 500 && $$2 != "total" \
	{ print "lint: " $$2 " has " $$1 " lines: split it, 500 are the limit"; bad = 1 } END { exit bad }'
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked --quiet
	@if $(CARGO) deny --version >/dev/null 2>&1; \
	then $(CARGO) deny --offline check licenses bans sources; fi

licences:
	@$(PYTHON) scripts/licences

# Makes docs/reference anew, as the program has it. A unit test compares them.
reference:
	FOREBAY_BLESS=1 $(CARGO) test --locked -p forebay --lib the_reference

unit:
	scripts/unit

build-tests:
	$(CARGO) test --workspace --locked --lib --bins --tests --no-run

# What conformance tests run, and their client for vhost-user. It has the assertions that a release leaves out.
build-tested:
	$(CARGO) build --workspace --locked --bin forebay --bin forebay-bench

CONFORMANCE := FOREBAY_GUEST_KILLS=$${FOREBAY_GUEST_KILLS:-1} $(PYTHON) tests/conformance/run.py
conformance: build-tested
	$(CONFORMANCE) $(ONLY)

# The package, in target/debian.
CARGO_DEB := target/tools/bin/cargo-deb
deb: setup-package build $(CARGO_DEB)
	mkdir -p target/deb
	$(FOREBAY) man > target/deb/forebay.1
	for shell in bash zsh fish; do $(FOREBAY) completion $$shell > target/deb/forebay.$$shell || exit; done
	$(CARGO_DEB) deb -p forebay --no-build --locked --output target/debian/

$(CARGO_DEB):
	$(CARGO) install --locked cargo-deb --version 3.8.0 --no-default-features --root target/tools

deb-test: setup-deb deb
	FOREBAY_DEBIAN=1 $(PYTHON) tests/conformance/run.py --forebay $(FOREBAY) package

guest-test: setup-guest build-tested
	$(PYTHON) tests/conformance/run.py guest

bench: setup-bench build-bench instructions
	$(CARGO) bench --locked -p forebay-core
	$(CARGO) bench --locked -p forebay-trace
	$(PYTHON) bench/run.py $(WHAT)
	$(PYTHON) bench/plot.py

# Instructions per RAM hit, of the engine and by transport, under valgrind: repeats exactly, fails above its limit.
RUNNER := target/tools/bin/gungraun-runner
instructions: setup-bench $(RUNNER)
	cd bench/instructions && GUNGRAUN_RUNNER=$(CURDIR)/$(RUNNER) $(CARGO) bench --locked

$(RUNNER):
	$(CARGO) install --locked gungraun-runner --version 0.20.0 --root target/tools

bench-quick: setup-bench build-bench
	$(PYTHON) bench/run.py goals --rounds 3 --seconds 0.5 --no-save

# An hour in which everything changes and kills come, and fifty restarts under each client.
soak: setup-test build
	@if [ -z "$(SEEDS)$(SHORT)" ]; then \
		FOREBAY_SOAK_SECONDS=3600 $(PYTHON) tests/conformance/run.py --forebay $(FOREBAY) soak --said && \
		FOREBAY_RESTARTS=50 $(PYTHON) tests/conformance/run.py --forebay $(FOREBAY) "notice restarts" --said; fi
	$(CARGO) run --release --locked -p forebay-sim --bin soak -- $(if $(SHORT),--short) $(if $(SEEDS),--seeds $(SEEDS))

setup: setup-test

setup-%:
	@scripts/setup $*

clean:
	$(CARGO) clean
