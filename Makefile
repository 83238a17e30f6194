# memlab's set-up. Cargo builds; this file finds or fetches libtorch first (.ci/libtorch says how) and hands it to cargo.
#
#   make sweep           build, and run the exercise's first experiment  (EXPERIMENT=FILE for another, ARGS=... for options)
#   make test            the tests that need neither root nor a service
#   make test-all        all tests: also those with a Slurm cluster and a browser, which .ci/run installs
#   make install         both binaries into PREFIX/bin                   (BUNDLE=yes: libtorch too, into PREFIX/lib/memlab)
#   make build           both binaries, optimised                        (PROFILE=dev: quick to build, slow to run)
#   make test-runner     the tests of the runner, for which there need be no libtorch
#   make test-reference  the allocator model against recordings (MEMLAB_REFERENCE) and PyTorch's reader (MEMLAB_MEMORY_VIZ)
#
# The runner alone needs none of this: cargo build --no-default-features

PREFIX ?= /usr/local
EXPERIMENT ?= experiments/alpha_batch.toml
ARGS ?=
BUNDLE ?= no
PROFILE ?= release

BIN := $(or $(CARGO_TARGET_DIR),target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
LIB := $(DESTDIR)$(PREFIX)/lib/memlab
WITH_LIBTORCH := .ci/libtorch

# Tests that need more than the build are in modules named needs_slurm, needs_browser, needs_reference. nextest, where it is
# there, knows them from .config/nextest.toml; cargo's own runner is told here.
NEXTEST := $(shell cargo nextest --version 2>/dev/null)
USER_TESTS := $(if $(NEXTEST),nextest run --locked,test --locked)
USER_FILTER := $(if $(NEXTEST),,-- --skip needs_slurm --skip needs_browser --skip needs_reference)
SERVICE_TESTS := $(if $(NEXTEST),nextest run --locked --profile services,test --locked -- needs_slurm needs_browser)

.PHONY: sweep test test-runner test-reference test-all build install prerequisites
.DEFAULT_GOAL := build
.NOTPARALLEL:

sweep: build
	$(BIN)/memlab sweep $(EXPERIMENT) $(ARGS)

build: prerequisites
	$(WITH_LIBTORCH) cargo build --profile $(PROFILE) --locked

install: build
	install -d $(DESTDIR)$(PREFIX)/bin
	install $(BIN)/memlab $(BIN)/memlab-worker $(DESTDIR)$(PREFIX)/bin
ifeq ($(BUNDLE),yes)
	install -d $(LIB)/torch
	$(WITH_LIBTORCH) sh -c 'cp -R "$$LIBTORCH/lib" $(LIB)/torch && \
	    if [ -d "$$LIBTORCH/../nvidia" ]; then cp -R "$$LIBTORCH/../nvidia" $(LIB); fi'
endif

prerequisites:
	@.ci/need rust c++ python3

test: prerequisites
	$(WITH_LIBTORCH) cargo $(USER_TESTS) $(USER_FILTER)
	$(WITH_LIBTORCH) cargo test --locked --doc

test-runner: prerequisites
	cargo $(USER_TESTS) --no-default-features $(USER_FILTER)

test-reference: prerequisites
	cargo test --locked --no-default-features --test reference

test-all: test
	$(if $(wildcard tests/slurm* tests/browser*),$(WITH_LIBTORCH) cargo $(SERVICE_TESTS))
