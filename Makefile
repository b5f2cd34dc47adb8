# Navarch: `make help` says what there is. Linux, Go and (for the tools) python3 with pip; nothing else is expected.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
# Programs, tests and checks are compiled in one way, so that no package is compiled twice: without libc, and without grpcnotrace navarch-agent, of
# which there is one for each pod, has a quarter more memory: the trace pages of gRPC bring html/template, which keeps the linker from leaving out
# unused methods. The race detector needs cgo. A -tags of a command replaces that of GOFLAGS. Without the tables for debuggers compiling takes a tenth less
# processor time; traces of stacks and profiles do not need them. For delve: make build GOFLAGS=-buildvcs=false.
export GOFLAGS ?= -buildvcs=false -tags=grpcnotrace -gcflags=all=-dwarf=false
export CGO_ENABLED ?= 0

TOOLS := .tools/bin
export NAVARCH_ENVOY ?= $(CURDIR)/$(TOOLS)/envoy
PKG ?= ./...
FUZZTIME ?= 20s
BENCH ?= .

TAGS = grpcnotrace
build: ## build the programs into bin/, and the application of the demo (bin/app)
	@mkdir -p bin
	CGO_ENABLED=0 go build -tags $(TAGS) -o bin/ ./cmd/... ./deploy/demo/app
	CGO_ENABLED=0 go build -o bin/navarch-cni ./deploy/cni

tools: ## put the pinned tools into .tools/ (Envoy, protoc, protoc-gen-go, staticcheck)
	@deploy/tools/install.sh envoy protoc protoc-gen-go staticcheck

kube-tools: ## build kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy, kubectl, CoreDNS, Helm and etcdctl into .tools/bin/ (at first some seven minutes)
	@deploy/tools/install.sh kube helm helm3 etcdctl promql

chart: ## package the Helm charts of the control plane, with Istio's CustomResourceDefinitions, and of gateways, into out/; VERSION=... is the tag of its images (as with `make image`)
	@deploy/tools/install.sh helm
	@rm -rf out/chart && mkdir -p out/chart && cp -r deploy/chart out/chart/navarch && cp -r deploy/gatewaychart out/chart/gateway && mkdir -p out/chart/navarch/files/crds
	@find out/chart -name '*.go' -delete # ./... is not to find them
	@cp "$$(go list -m -f '{{.Dir}}' istio.io/api)/kubernetes/customresourcedefinitions.gen.yaml" out/chart/navarch/files/crds/istio.yaml
	@rm -f out/navarch-*.tgz out/gateway-*.tgz && $(TOOLS)/helm package out/chart/navarch out/chart/gateway --app-version '$(VERSION)' --destination out

envoy: ## put the pinned Envoy alone into .tools/bin/
	@deploy/tools/install.sh envoy

etcd: # the stock one, which the chart's members run where there is no registry
	@CGO_ENABLED=0 go build -o bin/etcd go.etcd.io/etcd/server/v3

generate: ## generate store/model/record.pb.go from record.proto
	@deploy/tools/install.sh protoc protoc-gen-go
	PATH="$(CURDIR)/$(TOOLS):$$PATH" .tools/protoc/bin/protoc -I . -I .tools/protoc/include \
		--go_out=. --go_opt=module=navarch.io/navarch store/model/record.proto

check: ## formatting, vet, staticcheck, errorlint, exhaustive switches, import arrows, generated code
	@deploy/tools/install.sh staticcheck lint
	@bad=$$(git ls-files -co --exclude-standard '*.go' | xargs gofmt -l); [ -z "$$bad" ] || { echo "not gofmt-clean:"; echo "$$bad"; exit 1; }
	go vet ./...
	go vet -tags kube,grpcnotrace $$(git grep -l --untracked '^//go:build kube$$' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's#^#./#')
	go vet -tags upgrade,grpcnotrace ./cmd/internal/e2e
	go test -tags experiment,grpcnotrace -run '^TestControlLoopsThatAreOff$$' -vet=off ./cmd/navarchd
	CGO_ENABLED=1 go vet -race $(BOTH:%=./%)
	go vet -vettool=$(CURDIR)/$(TOOLS)/lint ./...
	@# ST1005 off: our errors begin with the kind of an object, or with Envoy.
	$(TOOLS)/staticcheck -checks inherit,-ST1005 ./...
	go test -count=1 ./cmd/internal/arrows
	@cp store/model/record.pb.go .tools/record.pb.go.before
	@$(MAKE) --no-print-directory generate
	@cmp -s store/model/record.pb.go .tools/record.pb.go.before || { echo "store/model/record.pb.go was not generated from record.proto: it is now"; exit 1; }

# Packages in which no goroutines meet, only those of loops whose own packages have tests with the race detector, or only
# those that drive programs (cmd/internal/e2e builds navarchd with the detector for some of its tests): it would find nothing
# there, and take four times as long.
UNRACED := ca/istioca ca/seal cmd/internal/arrows cmd/internal/bench cmd/internal/e2e cmd/internal/fleetapi cmd/internal/partial cmd/internal/report cmd/internal/report/cut cmd/internal/scene cmd/internal/sources \
	cmd/internal/wire cmd/navarch-load cmd/navarchctl cmd/navarchctl/accesslog cmd/navarchctl/analyze cmd/navarchctl/compare cmd/navarchctl/suggest cmd/navarchctl/dump cmd/navarchctl/migrate cmd/navarchctl/remains cmd/navarchctl/show \
	cmd/navarchctl/tags cmd/navarchd/callers cmd/navarchd/controlz cmd/navarchd/debug/authz cmd/navarchd/delivered cmd/navarchd/judge cmd/navarchd/memory deploy/chart deploy/cni \
	deploy/demo/quickstart deploy/demo/run deploy/demo/show deploy/demo/site deploy/demo/traffic/count deploy/gatewaychart deploy/redirect \
	deploy/testcluster/balancer deploy/testcluster/image deploy/testcluster/lifecycle deploy/testcluster/podenv deploy/testcluster/probe \
	deploy/testcluster/volume deploy/tools/benchtable deploy/tools/totals loadtest/edge loadtest/gauge loadtest/mesh loadtest/report loadtest/report/page push/access \
	push/agentapi push/build/authz push/build/cluster push/build/endpoint push/build/extauthz push/build/extension push/build/jwt \
	push/build/listener push/build/patch push/build/route push/build/vhost push/delta push/describe push/extension push/gateways push/inspect push/manifest push/meaning \
	push/plan/front/sidecar push/plan/host push/plan/input push/plan/layer push/plan/routes push/plan/telemetry push/preview push/resolve push/traffic push/view \
	push/virtualservice push/walk shard/ring store/admit/configure store/admit/inject store/admit/schema store/admit/validate store/analysis \
	store/apiserver store/machines store/model store/normal store/normal/fields store/origin store/problem store/protowalk \
	store/proxyconfig store/remote store/smallset store/source/guard
# Packages with tests of both sorts: files in which no goroutines meet have the build tag !race, and of these packages their tests alone are run
# without the race detector.
BOTH := ca/keyring cmd/navarchd/debug loadtest/proxy push/plan shard/place shard/relay store/apiserver/listwatch store/ingest store/kv store/source/files

# Both kinds are run at once, since many tests wait; what those without the race detector say comes when both are done.
# Packages without tests are not named: go test would compile them with the race detector. `make check` vets, and runs TestPlacesOfANewKind, which
# compiles most packages. GOGC: a fifth of the processor time would
# be the garbage collector's, with the race detector a third. GORACE: without it each of the seventy binaries with the race detector waits a second
# before it ends, for goroutines that outlive its tests.
test: envoy intercept-tools ## all tests, with the race detector where goroutines are; PKG=./store/... for some
	@of() { go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $(PKG) | sed 's#^navarch.io/navarch#.#' | grep "$$@" || true; }; \
	unraced=$$(printf '^./%s$$\n' $(UNRACED)); both=$$(printf '^./%s$$\n' $(BOTH)); \
	raced=$$(of -vE "$$unraced"); plain=$$(of -E "$$unraced"); both=$$(of -E "$$both"); \
	theirs="^($$(grep -l '^//go:build !race$$' $(BOTH:%=%/*_test.go) | xargs grep -hoP '^func \K(Test|Fuzz)\w+' | paste -sd'|'))\$$"; \
	without=$$(mktemp); trap 'rm -f "$$without"' EXIT; \
	export GOGC=400; \
	{ failed=0; \
	{ plainly=0; [ -z "$$plain" ] || go test -vet=off -timeout 30m -json -skip '^TestPlacesOfANewKind$$' $$plain || plainly=1; \
	[ -z "$$both" ] || go test -vet=off -timeout 30m -json -run "$$theirs" $$both || plainly=1; \
	[ "$(PKG)" != ./... ] || (cd deploy/tools/image && go test -json ./...) || plainly=1; exit $$plainly; } >"$$without" & \
	[ -z "$$raced" ] || CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 go test -race -vet=off -timeout 30m -json $$raced || failed=1; \
	wait $$! || failed=1; cat "$$without"; \
	exit $$failed; } | go run ./deploy/tools/totals

# Their names begin with TestKube, so that the other tests of their packages are not run again. -p: one after another they leave a part of two cores idle.
# The longest begin first, so that none of them is left alone at the end: go test goes by the order in which packages are named.
# The test of rights looks at what all of them have asked an API server for. go list compiles them all first: beside compilers an API server that starts may answer nothing for half a minute.
test-kube: kube-tools envoy ## the tests against a real Kubernetes control plane (build tag kube); PKG=./store/... for some
	@with=$$(git grep -l --untracked '^//go:build kube$$' -- '*_test.go' | xargs -n 1 dirname | sort -u | sed 's#^#./#'); \
	some=$$(comm -12 <(echo "$$with") <(go list -tags kube,grpcnotrace -f '{{.Dir}}' $(PKG) | sed 's#^$(CURDIR)#.#' | sort)); \
	longest='^\./(deploy/chart|cmd/internal/e2e|store/source/kube)$$'; some=$$(grep -E "$$longest" <<<"$$some" || true; grep -vE "$$longest" <<<"$$some" || true); \
	go list -tags kube,grpcnotrace -test -export $$some >/dev/null; \
	rm -rf out/rights; \
	{ failed=0; \
	GOGC=400 go test -tags kube,grpcnotrace -run '^TestKube' -p 3 -count=1 -vet=off -timeout 25m -json $$some || failed=1; \
	[ "$(PKG)" != ./... ] || go test -tags rights,grpcnotrace -count=1 -vet=off -json ./deploy/testcluster/rights || failed=1; \
	exit $$failed; } | go run ./deploy/tools/totals

# Builds the version in deploy/upgrade-from from the history of the repository, once, into out/programs: two minutes of processor time, the test itself 45 s.
test-upgrade: envoy ## the test of an upgrade from the version before, and of the way back (build tag upgrade)
	go test -tags upgrade,grpcnotrace -run '^TestUpgrade' -count=1 -vet=off -timeout 20m -json ./cmd/internal/e2e | go run ./deploy/tools/totals

# What TestWarming does in `make test` with one kind of cluster, it does here with every kind and with each minor version of Envoy, and times are judged.
test-warming: ## policies, routes and services while clusters warm: a table with Envoy 1.37 to 1.40 and every kind of cluster (three minutes)
	@deploy/tools/install.sh envoy envoy-versions
	go test ./cmd/internal/e2e -run '^TestWarming|^TestColdStart' -warming-envoys "$$(ls $(CURDIR)/$(TOOLS)/envoy-1.?? | paste -sd,)" \
		-parallel 4 -count=1 -vet=off -timeout 30m -v | grep -v '^=== '

# The tests of real redirection need root and ip, kube-proxy of the cluster of processes iptables; elsewhere they are skipped, which the totals say.
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

UNDER ?= .
packages: ## each package and the first sentence of its page; UNDER=push/plan for those of a folder
	@go list -f '{{if .GoFiles}}{{.ImportPath}}: {{.Doc}}{{end}}' ./$(UNDER)/... | sed 's#^navarch.io/navarch/##'

HISTORIES ?= 24
histories: envoy ## the planner against plans from nothing in HISTORIES (24) random histories, four times as many as in `make test`, its facts, 2,000 previews, and 10,000 random walks against Envoy: after changes of the plan, push/preview, push/walk or push/meaning
	go test ./push/plan -run '^TestPlanMatchesFresh$$|^TestPreviewsPredict$$|^TestClonedScopeEqualsPlanned$$|^TestEnvoyTakesRandomMeshes$$|^TestEnvoyTakesCollidingGateways$$|^TestWalksMatchEnvoy$$|^TestFactsAreComplete$$' -count=1 -vet=off -timeout 30m -histories $(HISTORIES)

fuzz: ## every fuzz target for FUZZTIME (20s) each
	@grep -rhoP --include='*_test.go' '^func \KFuzz\w+' $$(go list -f '{{.Dir}}' $(PKG)) /dev/null | sort -u | grep -q . || { echo "no fuzz target"; exit 1; }
	@for dir in $$(go list -f '{{.Dir}}' $(PKG)); do \
		for f in $$(grep -hoP '^func \KFuzz\w+' "$$dir"/*_test.go 2>/dev/null || true); do \
			echo "== $$f in $${dir#$(CURDIR)/}"; go test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) "$$dir"; \
		done; \
	done

load: $(if $(filter faults,$(S)),load-faults) $(if $(filter faults gateway-traffic,$(S)),,load-suite) $(if $(filter gateways gateway-traffic,$(S)),load-gateway-traffic) ## the standard load suite (five minutes; S=suite or scenarios), report in out/load; S=faults: faults at full size; S=hostile, preauth, account: attacks, and a missed target fails; S=kube: a real API server; S=gateways: a gateway of thousands of routes, a real Envoy, and S=gateway-traffic, the gateway under traffic while all of its configuration changes; these too

load-suite: build $(if $(filter kube%,$(S)),kube-tools) $(if $(filter gateway%,$(S)),envoy)
	bin/navarch-load run $(or $(S),standard) --navarchd bin/navarchd --envoy $(NAVARCH_ENVOY) --out out/load $(if $(filter gateway% hostile preauth account kube%,$(S)),--strict)

# What a control loop on machine load is worth, on the figure of the fault that it was made for (package comments of shard/place, push/fanout,
# cmd/navarchd/memory): RUNS runs without it and with it, in turns, and the medians of both.
RUNS ?= 3
experiment: TAGS = grpcnotrace,experiment
experiment: build ## what a control loop is worth: LOOP=moves, window or collector (RUNS=3 with and without, in turns); LOOP=joins or drain: a test
	@with_and_without() { for off in $(LOOP) ""; do echo "== NAVARCH_EXPERIMENT_OFF=$$off"; \
	NAVARCH_FAULT_SCALE=100 NAVARCH_EXPERIMENT_OFF=$$off go test ./cmd/internal/e2e -run "^$$1\$$" -count=1 -timeout 20m || [ -n "$$off" ]; done; exit; }; \
	case "$(LOOP)" in moves) s=scale;; window) s=neighbour;; collector) s=memory;; \
	joins) with_and_without TestFaultMoreJoinThanMemoryTakes;; drain) with_and_without TestFleetEvensOut;; \
	*) echo "LOOP must be joins, moves, drain, window or collector"; exit 2;; esac; \
	for i in $$(seq $(RUNS)); do \
		NAVARCH_EXPERIMENT_OFF=$(LOOP) bin/navarch-load run $$s --navarchd bin/navarchd --label without-$(LOOP) --out out/experiment/$(LOOP)/without-$$i; \
		bin/navarch-load run $$s --navarchd bin/navarchd --label with-$(LOOP) --out out/experiment/$(LOOP)/with-$$i; \
	done; \
	bin/navarch-load compare out/experiment/$(LOOP)/without-*/result.json $$(printf -- ' --with %s' out/experiment/$(LOOP)/with-*/result.json)

# The tests that PROMISES.md lists under "Faults", those of cmd/internal/e2e; NAVARCH_FAULT_SCALE=10 for a smaller size.
FAULTS := ^TestFault|^TestStoppedLeaderWritesNothing$$|^TestEmptyStoreIsNotServed$$|^TestStartWhileEtcdIsAway$$|^TestDeletedRecordsComeBack$$|^TestGarbage$$
load-faults: envoy
	@mkdir -p out/load
	@# TestFaultAllReplicasKilled needs 30,453 open files; root may raise the limit.
	ulimit -n 65536 2>/dev/null || true; \
	NAVARCH_FAULT_SCALE=$${NAVARCH_FAULT_SCALE:-100} go test ./cmd/internal/e2e -run '$(FAULTS)' -count=1 -timeout 60m -json | \
		go run ./deploy/tools/totals -sizes | tee out/load/faults.log

# What TestGatewayUnderTraffic does in `make test` for 20 s.
load-gateway-traffic: envoy
	@mkdir -p out/load
	go test ./cmd/internal/e2e -run '^TestGatewayUnderTraffic$$' -gateway-traffic $${NAVARCH_GATEWAY_TRAFFIC:-10m} -count=1 -vet=off -timeout 30m -v | \
		grep -v '^=== ' | tee out/load/gateway-traffic.log

demo: build envoy ## a small mesh on this machine, step by step; HOLD=1 keeps it up
	go run ./deploy/demo/run

demo-intercept: build envoy intercept-tools ## the same with network namespaces and real redirection (root)
	go run ./deploy/demo/run -intercept

demo-kube: build etcd kube-tools chart envoy intercept-tools ## the charts, a gateway and a shop with sidecars, in a Kubernetes cluster of processes, from installing to uninstalling, step by step (root; nine minutes); HOLD=1 keeps it up
	CGO_ENABLED=0 go build -tags grpcnotrace -o bin/ ./deploy/demo/traffic
	CGO_ENABLED=0 go build -tags grpcnotrace -ldflags '-X navarch.io/navarch/store/obs.Version=next' -o bin/navarchd-next ./cmd/navarchd
	@go build -o bin/demo-kube ./deploy/demo/kube && exec bin/demo-kube

cluster: build etcd kube-tools chart envoy intercept-tools ## a Kubernetes cluster of processes on this machine, in which the chart can be installed (deploy/testcluster/README.md), until Ctrl-C
	@go build -o bin/testcluster ./deploy/testcluster && exec bin/testcluster $(ARGS)

# Of programs of one commit every machine makes the same bytes: no paths, no build id, no C, the plainest processor of each architecture, and the
# time of the commit as that of all files. Envoy brings the C library of the machine with it; FOREIGN_LIBC is a folder with that of a machine of the other
# architecture, for which navarch-agent is made then, too (deploy/docs/images.md).
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
image: ## container images of navarchd, navarch-agent (with Envoy) and the CNI plugin, as one OCI layout in out/image; VERSION=... is their tag
	@deploy/tools/install.sh envoy $(if $(FOREIGN_LIBC),envoy-foreign) cyclonedx-gomod image
	@rm -rf out/image out/image-programs
	@for arch in amd64 arm64; do \
		mkdir -p out/image-programs/$$arch; echo "building for linux/$$arch"; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 go build -trimpath -tags grpcnotrace -ldflags '-s -w -buildid= -X navarch.io/navarch/store/obs.Version=$(VERSION)' \
			-o out/image-programs/$$arch/ ./cmd/navarchd ./cmd/navarchctl ./cmd/navarch-agent; \
		CGO_ENABLED=0 GOOS=linux GOARCH=$$arch GOAMD64=v1 GOARM64=v8.0 go build -trimpath -ldflags '-s -w -buildid=' -o out/image-programs/$$arch/navarch-cni ./deploy/cni; \
		for program in navarchd navarchctl navarch-agent navarch-cni; do \
			$(TOOLS)/cyclonedx-gomod bin -json -std -noserial -notimestamp -version '$(VERSION)' -output out/image-programs/$$arch/$$program.cdx.json out/image-programs/$$arch/$$program; \
		done; \
	done
	@$(TOOLS)/image -programs out/image-programs -envoy $(TOOLS)/envoy $(if $(FOREIGN_LIBC),-envoy "$$(ls $(TOOLS)/envoy-a??64)=$(FOREIGN_LIBC)") -version '$(VERSION)' -revision "$$(git rev-parse HEAD 2>/dev/null || echo unknown)" \
		-created $(SOURCE_DATE_EPOCH) -out out/image
	@echo "out/image: navarch/navarchd, navarch/navarch-agent and navarch/navarch-cni, all :$(VERSION)"

clean: ## remove bin/ and out/, which hold what was built and what runs left (not the tools)
	rm -rf bin out

help: ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build packages tools kube-tools chart envoy etcd generate check test test-kube test-upgrade test-warming intercept-tools bench histories fuzz load load-suite load-faults experiment demo demo-intercept demo-kube cluster image clean help
