# Everything a developer needs. `make help` lists the targets.
SHELL := /bin/bash
GO    ?= go
BIN   := bin
TOOLS := roced rocectl roceperf rocesim rocedrill

.PHONY: all help needs-go build install package image release otg otg-test otg-package otg-image setup setup-check lint lint-text prose-sample vet releases verbs-test programs programs-table programs-tables quick test check mutants nightly cross flakes pristine fuzz soak siege endure bench bench-loss bench-flor bench-path compare interop generate site web bench-page bench-sim profiles papers demo curves clean

all: build

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

# The preload library needs a C compiler; the programs do without.
CC      ?= cc
CFLAGS  ?= -O2 -g
PRELOAD := $(sort $(wildcard preload/*.c))

# Without cgo: the Go runtime can drop capabilities on all threads only then. Whether there is a
# C compiler is asked when it is needed: setup may have installed it. The same source gives the same bytes
# wherever it lies.
needs-go:
	@tools/scripts/needs-go $(GO)

BUILDFLAGS = -pgo=auto -trimpath -buildvcs=false -ldflags "-X 'roced.io/roced/internal/base/version.source=$(shell tools/scripts/source)'"
build: needs-go ## build the programs and the preload library into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) build $(BUILDFLAGS) -o $(BIN)/ $(addprefix ./cmd/,$(TOOLS))
	@if command -v $(CC) >/dev/null; then $(MAKE) --no-print-directory $(BIN)/libroced.so; \
	else echo 'no C compiler: without libroced.so rocectl exec cannot run programs'; fi
	@if echo '$(HASH)include <infiniband/verbs.h>' | $(CC) -E - >/dev/null 2>&1 && echo 'int main(){}' | $(CC) -x c - -libverbs -o /dev/null 2>/dev/null; \
	then $(MAKE) --no-print-directory $(BIN)/rocedrill-agent $(BIN)/libmrc.so; fi # else libibverbs-dev is missing, or is for another processor
	@if echo '$(HASH)include <rdma/rdma_cma.h>' | $(CC) -E - >/dev/null 2>&1 && echo 'int main(){}' | $(CC) -x c - -lrdmacm -libverbs -o /dev/null 2>/dev/null; \
	then $(MAKE) --no-print-directory $(BIN)/rocedrill-agent-cm; fi # else librdmacm-dev is missing

LINK_PRELOAD = -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -ffile-prefix-map=$(CURDIR)=. \
		-Wl,--version-script=preload/versions.map $(PRELOAD) -ldl -lpthread

$(BIN)/libroced.so: $(PRELOAD) $(wildcard preload/*.h) preload/versions.map
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) $(LINK_PRELOAD) -o $@

# The library of MRC for programs, with the other names under which they link it.
MRC      := $(sort $(wildcard preload/mrc/*.c))
LINK_MRC  = -std=gnu11 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden -ffile-prefix-map=$(CURDIR)=. \
		-Ipreload/mrc -Wl,-soname,libmrc.so -Wl,-z,defs $(MRC) -libverbs -ldl -lpthread
$(BIN)/libmrc.so: $(MRC) $(wildcard preload/mrc/*.h)
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) $(LINK_MRC) -o $@
	ln -sf libmrc.so $(BIN)/lib_mrc.so
	ln -sf libmrc.so $(BIN)/libnv_mrc.so

# The agent of rocedrill needs libibverbs, which the package libibverbs-dev has. The agent with rdma_cm also needs librdmacm-dev.
HASH := \#
AGENT      := $(sort $(filter-out drill/agent/cm.c,$(wildcard drill/agent/*.c)))
LINK_AGENT  = -std=gnu11 -Wall -Wextra -Werror -ffile-prefix-map=$(CURDIR)=. $(AGENT)
$(BIN)/rocedrill-agent: $(AGENT) drill/agent/agent.h
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) $(LINK_AGENT) -libverbs -o $@

$(BIN)/rocedrill-agent-cm: $(AGENT) drill/agent/cm.c drill/agent/agent.h
	@mkdir -p $(BIN)
	$(CC) $(CFLAGS) $(LINK_AGENT) drill/agent/cm.c -lrdmacm -libverbs -o $@

export DESTDIR PREFIX SYSCONFDIR UNITDIR ZSHDIR
install: build ## install under DESTDIR: PREFIX (/usr/local), SYSCONFDIR (/etc), UNITDIR, ZSHDIR
	@tools/scripts/install $(BIN)

ARCHS ?= amd64 arm64
package: ## Debian packages and tarballs of rocedrill for ARCHS in out/package
	@tools/scripts/setup.sh package
	@$(MAKE) --no-print-directory build
	@tools/scripts/package $(BIN) out/package $(ARCHS)

image: build ## a container image, out/image/roced.oci.tar, by buildah
	@tools/scripts/image $(BIN) out/image

release: package image ## tarballs, packages, image, bills of materials, notes and checksums in out/release
	@tools/scripts/release out/release $(ARCHS)

otg: needs-go ## build roceotg, a module of its own, into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=0 $(GO) -C otg build -mod=readonly -trimpath -buildvcs=false -ldflags "-X 'roced.io/roced/internal/base/version.source=$(shell tools/scripts/source)'" \
		-o $(abspath $(BIN))/ ./cmd/roceotg

otg-test: needs-go ## lint and tests of roceotg, with gosnappi's client between namespaces
	$(GO) -C otg vet -mod=readonly ./...
	staticcheck=$$($(GO) tool -n staticcheck) && cd otg && "$$staticcheck" ./...
	tools/scripts/deadcode otg
	$(GO) -C otg test -mod=readonly -timeout 20m ./...

otg-package: ## Debian packages of roceotg for ARCHS in out/otg
	@tools/scripts/otg package out/otg $(ARCHS)

otg-image: ## a container image of roceotg, out/otg/roceotg.oci.tar, by buildah
	@tools/scripts/otg image out/otg

setup: ## install what make test needs (Debian, Ubuntu; as root)
	@tools/scripts/setup.sh test

setup-check: setup ## install what make check and the benchmarks need, too
	@tools/scripts/setup.sh check

lint: lint-text vet ## formatting, vet, staticcheck, import rules, prose, messages, commit subjects
	$(GO) tool staticcheck ./...
	$(GO) test ./internal/test/arch
	tools/scripts/deadcode

lint-text: ## the part of lint that compiles nothing
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo 'gofmt needed'; exit 1; }
	tools/scripts/prose
	tools/scripts/messages
	tools/scripts/subjects

SEED ?= 1
prose-sample: ## print 40 random comments, sentences of documents, errors and help texts each, chosen by SEED
	@$(GO) run ./tools/prose/sample -seed $(SEED)

vet:
	$(GO) vet ./...

# tools/parts has the commands of each part and their limits. PARTS selects some.
PARTS ?=
quick: ## tests of the core and of the tree's rules, without set-up
	@tools/scripts/parts quick $(PARTS)

test: ## all set-up, lint, and the tests that a change can break often
	@tools/scripts/parts test $(PARTS)

check: ## the tests that take too long for make test; with make test it runs all
	@tools/scripts/parts check $(PARTS)

mutants: ## remove each mechanism of docs/results/mechanisms-*.md: the test that it names must fail
	$(GO) run ./tools/mutants

nightly: setup-check build ## what takes too long for make check
	$(MAKE) mutants
	$(GO) test ./internal/lab/containers -count=1 -timeout 30m -args -all
	$(GO) test ./internal/test/install -count=1 -timeout 30m -args -all
	$(GO) test ./qp -run TestEdges -count=1 -timeout 60m -args -qp.long
	$(MAKE) soak
	$(MAKE) siege
	$(MAKE) endure
	$(MAKE) fuzz
	$(GO) run ./internal/lab/interop -bin $(BIN)
	$(GO) run ./drill/rxe -bin $(BIN)
	tools/scripts/pristine 12 $(GO) test ./internal/test/ci -run 'Workflow|Failure|GitLab' -count=1 -timeout 30m -v -args -pristine
	$(MAKE) flakes N=3 SHORT=
	$(MAKE) cross
	$(MAKE) pristine
	$(MAKE) releases

# What depends on the order of bytes or the size of words: the layouts, and the core.
PURE = ./bth/... ./plugin/... ./internal/base/bitpool ./internal/base/sched ./reorder ./retrans ./path ./ccalgo ./qp/profile ./internal/base/abi/...
# musl's compiler finds the kernel's headers where the other ones are.
MUSL = musl-gcc -idirafter /usr/include -idirafter /usr/include/$(shell uname -m)-linux-gnu
# Rows whose results are the same on all processors.
SAME = mp-5 melo-3 --fast --quiet --json --out $$(mktemp -d)
cross: ## other processors, by QEMU, and C libraries
	@tools/scripts/setup.sh cross
	CGO_ENABLED=0 GOARCH=s390x $(GO) test -exec qemu-s390x-static ./internal/base/abi/rxe ./internal/daemon/rxering
	CGO_ENABLED=0 GOARCH=386 $(GO) vet ./...
	CGO_ENABLED=0 GOARCH=386 $(GO) test -short $(PURE) # the processor knows it
	CGO_ENABLED=0 GOARCH=arm64 $(GO) vet ./...
	# QEMU's recvmsg() does not say that descriptors have been cut off.
	CGO_ENABLED=0 GOARCH=arm64 $(GO) test -short -exec qemu-aarch64-static -skip TestBadRequests $(PURE)
	tools/scripts/fused
	$(GO) run ./cmd/rocesim papers $(SAME) > out/cross/papers.amd64
	qemu-aarch64-static out/cross/rocesim papers $(SAME) > out/cross/papers.arm64
	cmp out/cross/papers.amd64 out/cross/papers.arm64
	aarch64-linux-gnu-gcc $(CFLAGS) $(LINK_PRELOAD) -o out/cross/libroced-arm64.so
	i686-linux-gnu-gcc $(CFLAGS) -Wno-psabi $(LINK_PRELOAD) -o out/cross/libroced-386.so
	$(MUSL) $(CFLAGS) $(LINK_PRELOAD) -o out/cross/libroced-musl.so

N ?= 20
SHORT ?= -short
flakes: setup ## run every test of make test N times beside a load on all processors, list what falls; SHORT=: of make check too
	@SHORT=$(SHORT) tools/scripts/flakes $(N)

pristine: ## demo and all tests of HEAD on Debian 12 and 13 as they are when freshly installed (as root, on Debian)
	tools/scripts/pristine 12 sh -ec 'make demo; make test; make check'
	tools/scripts/pristine 13 sh -ec 'make demo; make test; make check'
	tools/scripts/pristine 12 tools/scripts/try-package
	tools/scripts/pristine 13 tools/scripts/try-package

releases: ## stock programs and the preload library on Debian 11 and sid, freshly installed (as root, on Debian)
	for r in 11 sid; do \
	tools/scripts/pristine $$r sh -ec 'make programs; $(GO) test ./preload/test -count=1 -timeout 20m' || exit; done

verbs-test: setup-check build ## run stock RDMA programs between two namespaces
	$(GO) test ./internal/lab/programs ./preload/test -count=1 -timeout 20m

programs: setup-check build ## the same with many more programs, as far as they can be installed
	@tools/scripts/setup-programs.sh
	$(GO) test ./internal/lab/programs -count=1 -timeout 30m -args -all

programs-table: setup-check build ## the same, and write this release's column of docs/results/verbs-programs.md
	@tools/scripts/setup-programs.sh
	$(GO) test ./internal/lab/programs -count=1 -timeout 30m -args -all -update

programs-tables: ## the same on Debian 11, 12, 13 and sid, freshly installed (as root, on Debian)
	for r in 11 12 13 sid; do \
	mkdir -p out/pristine/$$r && cp docs/results/verbs-programs.md out/pristine/$$r/ && \
	tools/scripts/pristine $$r sh -ec 'cp out/verbs-programs.md docs/results/; make programs-table; cp docs/results/verbs-programs.md out/' && \
	cp out/pristine/$$r/verbs-programs.md docs/results/ || exit; done

FUZZTIME ?= 60s
fuzz: ## run every fuzz target for FUZZTIME
	@tools/scripts/fuzz.sh $(FUZZTIME)

SEEDS ?= 20000
FIRST ?= 1
soak: ## deterministic fault simulation over SEEDS seeds, from FIRST on
	@set -o pipefail; $(GO) test ./rocev2/soak -run TestSoak -count=1 -timeout 0 -v -args -seeds=$(SEEDS) -first=$(FIRST) 2>&1 | \
		grep -vE '^(=== | *--- PASS)'

DURATION ?= 10m
siege: build ## hostile programs against a daemon for DURATION, as root; docs/design/siege.md
	$(GO) test ./internal/lab/siege -run TestSiege -count=1 -timeout 0 -v -args -siege=$(DURATION)

endure: setup-check build ## reliable connections on all ports beside a heavy load for DURATION (30m), as root also as an ordinary user
	$(GO) test ./internal/lab/programs -run TestEndure -parallel 4 -count=1 -timeout 0 -v -args -endure=$(DURATION)
endure: DURATION = 30m

bench: setup-check build ## measure against other software, write docs/results/benchmarks.md
	$(GO) run ./internal/lab/bench nic --bin $(BIN) --out docs/results/benchmarks.md

BEFORE ?=
bench-path: setup-check build ## the data path against its goals, beside iperf3, UCX and a bare chain; BEFORE may have an older build
	$(GO) run ./internal/lab/bench nic --only path --bin $(BIN) --before "$(BEFORE)"

compare: build ## measure this build beside another one, whose programs are in BEFORE
	$(GO) run ./internal/lab/bench compare --before "$(BEFORE)" --bin $(BIN)

bench-page: build ## what it costs when somebody looks at the live page
	$(GO) run ./internal/lab/bench page --bin $(BIN)

interop: setup-check build ## test against Linux's Soft-RoCE in a virtual machine with Debian 12's kernel, and 13's; write docs/results/interop*.md, drill.md
	$(GO) run ./internal/lab/interop -bin $(BIN) -out docs/results/interop.md
	$(GO) run ./internal/lab/interop -bin $(BIN) -release trixie -out docs/results/interop-trixie.md
	$(GO) run ./drill/rxe -bin $(BIN) -out docs/results/drill.md


site: ## render docs/ to out/site, with search (needs npm); dead links and missing pictures fail
	@tools/scripts/site

generate: ## compile the BPF programs (needs clang and libbpf-dev); the result is committed
	$(GO) generate ./bpf/...

web: ## put the live page together of web/ (docs/guides/page.md); the result is committed
	$(GO) run ./internal/daemon/web/webbundle

bench-loss: build ## goodput of every transport under loss and disorder, write docs/results/bench-loss.md
	$(GO) run ./internal/lab/bench loss --bin $(BIN) --out docs/results/bench-loss.md

bench-flor: build ## calls by Flor beside WRITEs and plain RC, with losses, write docs/results/bench-flor.md
	$(GO) run ./internal/lab/bench flor --bin $(BIN) --out docs/results/bench-flor.md

bench-sim: build ## speed of the simulator, beside htsim if HTSIM is the folder of its run.sh; write docs/results/bench-sim.md
	$(GO) run ./internal/lab/bench sim --bin $(BIN) --out docs/results/bench-sim.md

papers: build ## the papers' results, a night; goes on after an interrupt; write docs/results/papers.md
	$(BIN)/rocesim papers --precise --docs docs/results

# The compiler inlines by them where programs spend their time. They need not be of the latest source.
profiles: ## measure anew what roced and rocesim are optimized by, cmd/*/default.pgo; on a quiet machine
	@mkdir -p out
	$(GO) test ./internal/lab/perf -run xxx -bench Daemon -benchtime 1x -cpuprofile out/daemon.prof -o out/perf.test
	$(GO) tool pprof -proto -output cmd/roced/default.pgo out/daemon.prof
	$(GO) test ./internal/sim -run xxx -bench ConWeave -benchtime 5x -cpuprofile out/conweave.prof -o out/sim.test
	$(GO) test ./internal/sim/nic -run xxx -bench Permutation -benchtime 5x -cpuprofile out/permutation.prof -o out/nic.test
	$(GO) tool pprof -proto -output cmd/rocesim/default.pgo out/conweave.prof out/permutation.prof

LINK ?= auto
# Without profiles, since with them each program compiles all packages anew.
demo: TOOLS = roced rocectl roceperf
demo: BUILDFLAGS = -pgo=off -buildvcs=false
demo: build ## two NICs in two namespaces move and verify memory; LINK=udp: on UDP sockets of this one, as any user
	CGO_ENABLED=0 $(GO) run -pgo=off -buildvcs=false ./internal/lab/demo -bin $(BIN) -out out/demo -link $(LINK)

curves: ## draw the reactions of congestion control, and a trace, into docs/curves
	$(GO) run ./internal/sim/curves
	$(GO) run ./cmd/rocectl trace draw internal/observe/trace/testdata/mp-rdma.jsonl --svg out/trace
	cp out/trace/trace-sequence.svg docs/curves/
	$(GO) run ./cmd/rocesim run configs/sim/websearch.yaml -q --svg out/sim
	cp out/sim/slowdown.svg docs/curves/sim-slowdown.svg

clean: ## remove what was built
	rm -rf $(BIN) out
