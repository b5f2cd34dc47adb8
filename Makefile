# Navarch: `make help` says what there is. Linux, Go and (for the tools) python3 with pip; nothing else is expected.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
export GOFLAGS ?= -buildvcs=false

TOOLS := .tools/bin
export NAVARCH_ENVOY ?= $(CURDIR)/$(TOOLS)/envoy
PKG ?= ./...
FUZZTIME ?= 20s
BENCH ?= .

# Without grpcnotrace and with libc, navarch-agent, of which there is one for each pod, has a quarter more memory: the
# trace pages of gRPC bring html/template, which keeps the linker from leaving out unused methods.
build: ## build the programs into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build -tags grpcnotrace -o bin/ ./cmd/...

tools: ## put the pinned tools into .tools/ (Envoy, protoc, protoc-gen-go, staticcheck)
	@deploy/tools/install.sh envoy protoc protoc-gen-go staticcheck

envoy:
	@deploy/tools/install.sh envoy

generate: ## generate store/model/record.pb.go from record.proto
	@deploy/tools/install.sh protoc protoc-gen-go
	PATH="$(CURDIR)/$(TOOLS):$$PATH" .tools/protoc/bin/protoc -I . -I .tools/protoc/include \
		--go_out=. --go_opt=module=navarch.io/navarch store/model/record.proto

check: ## formatting, vet, staticcheck, import arrows, generated code (under three minutes)
	@deploy/tools/install.sh staticcheck
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); [ -z "$$bad" ] || { echo "not gofmt-clean:"; echo "$$bad"; exit 1; }
	go vet ./...
	@# ST1005 off: our errors begin with the kind of an object, or with Envoy.
	$(TOOLS)/staticcheck -checks inherit,-ST1005 ./...
	go test ./cmd/internal/arrows
	@cp store/model/record.pb.go .tools/record.pb.go.before
	@$(MAKE) --no-print-directory generate
	@cmp -s store/model/record.pb.go .tools/record.pb.go.before || { echo "store/model/record.pb.go was not generated from record.proto: it is now"; exit 1; }

test: envoy intercept-tools ## all tests with the race detector; PKG=./store/... for some
	go test -race -timeout 30m -json $(PKG) | go run ./deploy/tools/totals

# The tests of real redirection need root, iptables and ip; elsewhere they are skipped, which the totals say.
intercept-tools:
	@if command -v iptables >/dev/null && command -v ip >/dev/null; then :; \
	elif [ "$$(id -u)" != 0 ]; then echo "not root, no iptables: the tests of real redirection will be skipped"; \
	elif command -v apt-get >/dev/null; then \
		echo "installing iptables and iproute2 for the tests of real redirection"; \
		{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq iptables iproute2; } >/dev/null || \
		echo "could not install them: the tests of real redirection will be skipped"; \
	else echo "no iptables and no apt-get: the tests of real redirection will be skipped"; fi

bench: ## the benchmarks, as a table; BENCH=regexp for some
	go test -run '^$$' -bench '$(BENCH)' -benchmem -timeout 30m $(PKG) | go run ./deploy/tools/benchtable

fuzz: ## every fuzz target for FUZZTIME (20s) each
	@grep -rhoP --include='*_test.go' '^func \KFuzz\w+' $$(go list -f '{{.Dir}}' $(PKG)) /dev/null | sort -u | grep -q . || { echo "no fuzz target"; exit 1; }
	@for dir in $$(go list -f '{{.Dir}}' $(PKG)); do \
		for f in $$(grep -hoP '^func \KFuzz\w+' "$$dir"/*_test.go 2>/dev/null || true); do \
			echo "== $$f in $${dir#$(CURDIR)/}"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$dir"; \
		done; \
	done

load: $(if $(filter faults,$(S)),load-faults,load-suite) ## the standard load suite (five minutes; S=suite or scenarios), report in out/load; S=faults: faults at full size

load-suite: build
	bin/navarch-load run $(or $(S),standard) --navarchd bin/navarchd --out out/load

# The tests that ARCHITECTURE.md lists under "Faults", those of cmd/internal/e2e; NAVARCH_FAULT_SCALE=10 for a smaller size.
FAULTS := ^TestFault|^TestStoppedLeaderWritesNothing$$|^TestEmptyStoreIsNotServed$$|^TestStartWhileEtcdIsAway$$|^TestGarbage$$
load-faults: envoy
	@mkdir -p out/load
	NAVARCH_FAULT_SCALE=$${NAVARCH_FAULT_SCALE:-100} go test ./cmd/internal/e2e -run '$(FAULTS)' -count=1 -timeout 60m -json | \
		go run ./deploy/tools/totals -sizes | tee out/load/faults.log

demo: build envoy ## a small mesh on this machine, step by step; HOLD=1 keeps it up
	go run ./deploy/demo/run

demo-intercept: build envoy intercept-tools ## the same with network namespaces and real redirection (root)
	go run ./deploy/demo/run -intercept

clean: ## remove what was built (not the tools)
	rm -rf bin out

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build tools envoy generate check test intercept-tools bench fuzz load load-suite load-faults demo demo-intercept clean help
