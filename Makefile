# memlab's set-up. Cargo builds; this file finds or fetches libtorch first (.ci/libtorch says how) and hands it to cargo.
#
#   make sweep           build, and run the exercise's first experiment  (EXPERIMENT=FILE for another, ARGS=... for options)
#   make test            the tests that need neither root nor a service
#   make test-all        all tests: also those with a Slurm cluster and a browser, which .ci/run installs
#   make install         both binaries into PREFIX/bin                   (BUNDLE=yes: libtorch too, into PREFIX/lib/memlab)
#   make build           both binaries, optimised                        (PROFILE=dev: quick to build, slow to run)
#   make test-reference  the allocator model against recordings that MEMLAB_REFERENCE names
#   make test-runner     the tests of the runner, for which there need be no libtorch
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

# nextest where it is there; cargo's own runner elsewhere.
RUN_TESTS := $(if $(shell cargo nextest --version 2>/dev/null),cargo nextest run,cargo test) --locked

# The tests that start a service are those whose file is named after it.
ALL_TESTS := $(sort $(basename $(notdir $(wildcard tests/*.rs))) $(patsubst tests/%/main.rs,%,$(wildcard tests/*/main.rs)))
SERVICE_TESTS := $(filter slurm% browser%,$(ALL_TESTS))
# Those that need large recordings are in a file of that name.
USER_TESTS := $(filter-out $(SERVICE_TESTS) reference,$(ALL_TESTS))

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
	$(WITH_LIBTORCH) $(RUN_TESTS) --lib --bins $(addprefix --test ,$(USER_TESTS))
	$(WITH_LIBTORCH) cargo test --locked --doc

test-runner: prerequisites
	$(RUN_TESTS) --no-default-features --lib --bins $(addprefix --test ,$(USER_TESTS))

test-reference: prerequisites
	cargo test --locked --no-default-features --test reference

test-all: test
	$(if $(SERVICE_TESTS),$(WITH_LIBTORCH) $(RUN_TESTS) $(addprefix --test ,$(SERVICE_TESTS)))
