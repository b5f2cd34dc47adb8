package e2e

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

var warmingEnvoys = flag.String("warming-envoys", "", "paths of Envoys, with commas between: all of TestWarming, with limits of time")

// inTime is the longest time from the edit of a policy to the active listener, whatever warms.
const inTime = 2 * time.Second

const warmingService = `
apiVersion: v1
kind: Service
metadata: {name: other, namespace: SPACE}
spec: {clusterIP: 10.96.0.99, selector: {app: other}, ports: [{name: http, port: 9999, targetPort: 9999}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: other-1, namespace: SPACE, labels: {kubernetes.io/service-name: other}}
addressType: IPv4
ports: [{name: http, port: 9999}]
endpoints: [{addresses: [NET.3], conditions: {ready: true}}]
---
`

const warmingEntry = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: other, namespace: SPACE}
spec:
  hosts: [other.SPACE.svc.cluster.local]
  ports: [{name: http, number: 9999, protocol: HTTP}]
  resolution: DNS
  endpoints: [{address: partner.example}]
---
`

// warmingRule returns the cluster's rule. Each edition has its own timeout, in seconds.
func warmingRule(tls string) string {
	return `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: other, namespace: SPACE}
spec:
  host: other.SPACE.svc.cluster.local
  workloadSelector: {matchLabels: {app: web}}
  trafficPolicy: {connectionPool: {tcp: {connectTimeout: EDITIONs}}` + tls + `}
---
`
}

func warmingPatch(value string) string {
	return `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: other, namespace: SPACE}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND, cluster: {service: other.SPACE.svc.cluster.local, portNumber: 9999}}
    patch: {operation: MERGE, value: ` + value + `}
`
}

// unresolved returns a host whose DNS server, NET.4, answers nothing. Envoy tries the given number of times, for two
// seconds or more each time.
func unresolved(tries int) string {
	return warmingEntry + warmingRule("") + warmingPatch(fmt.Sprintf(`{typed_dns_resolver_config: {
      name: envoy.network.dns_resolver.cares, typed_config: {
      "@type": type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig, query_tries: %d,
      resolvers: [{socket_address: {address: NET.4, port_value: 53053}}]}}}`, tries))
}

// warmingKinds are clusters that warm for a while, and some that do not, for comparison: objects of namespace SPACE
// with addresses of the net NET, in an EDITION; and which of Envoy's statistics shows that the cluster has arrived.
var warmingKinds = map[string]struct{ objects, seen string }{
	"EDS":        {warmingService + warmingRule(""), isThere},
	"STRICT_DNS": {unresolved(2), isWarming},
	"for ever":   {unresolved(60), isWarming},
	"health": {warmingService + warmingRule("") + warmingPatch(
		`{health_checks: [{timeout: 6s, interval: 6s, unhealthy_threshold: 1, healthy_threshold: 1, http_health_check: {path: /}}]}`), isWarming},
	"secret": {warmingService + warmingRule(", tls: {mode: SIMPLE, credentialName: absent}"), isThere},
	"file":   {warmingService + warmingRule(", tls: {mode: SIMPLE, caCertificates: /nowhere/ca.pem}"), "cluster_manager.cds.update_rejected"},
}

const (
	isWarming = "cluster_manager.warming_clusters"
	isThere   = "cluster.outbound|9999||other.SPACE.svc.cluster.local;.membership_total"
)

// refusedPatch adds a cluster that Envoy refuses.
const refusedPatch = `
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {name: refused, namespace: SPACE}
spec:
  configPatches:
  - applyTo: CLUSTER
    match: {context: SIDECAR_OUTBOUND}
    patch: {operation: ADD, value: {name: refused-SPACE, type: STATIC, connect_timeout: 1s, lb_policy: CLUSTER_PROVIDED}}
`

// warmingActions are the actions during the warming of the cluster.
var warmingActions = map[string]func(*testing.T, *warmed){
	"add":    func(*testing.T, *warmed) {},
	"change": func(t *testing.T, w *warmed) { w.cause(t, 2) },
	"remove": func(t *testing.T, w *warmed) { w.remove(t) },
	"NACK":   func(t *testing.T, w *warmed) { w.write(t, "refused.yaml", refusedPatch) },
	"reconnect": func(t *testing.T, w *warmed) {
		w.link.drop()
		eventually(t, patience, w.stat("cluster.xds.upstream_cx_total", 2))
	},
}

// While a cluster warms at a proxy, policies, routes and new services reach it, and no request to other services fails.
// -warming-envoys tests every kind of cluster, with time limits. Without it one kind is tested, which warms until it is
// removed: everything that arrives before has not waited for it.
func TestWarming(t *testing.T) {
	parallel(t)
	m := newWarmingMesh(t)
	var rows []string
	var mu sync.Mutex
	t.Run("cells", func(t *testing.T) {
		for _, c := range warmingCells(t) {
			t.Run(strings.Join([]string{filepath.Base(c.binary), c.kind, c.action, c.api}, "/"), func(t *testing.T) {
				t.Parallel()
				figures := c.run(t, m.sidecar(t, c.binary, c.api, c.kind))
				mu.Lock()
				defer mu.Unlock()
				rows = append(rows, fmt.Sprintf("%-10s %-10s %-9s %-10s %s", filepath.Base(c.binary), c.kind, c.action, c.api, figures))
			})
		}
	})
	slices.Sort(rows)
	t.Logf("%-42s %8s %8s %8s %8s %8s\n%s", "", "policy", "service", "over", "requests", "failed", strings.Join(rows, "\n"))
}

// warmingCell is a cell of the table: an Envoy, what warms, what happens meanwhile, and the protocol.
type warmingCell struct{ binary, kind, action, api string }

func warmingCells(t *testing.T) (all []warmingCell) {
	binaries, kinds := []string{envoytest.Binary(t)}, []string{"for ever"}
	if *warmingEnvoys != "" {
		binaries, kinds = strings.Split(*warmingEnvoys, ","), slices.Collect(maps.Keys(warmingKinds))
	}
	for _, binary := range binaries {
		for _, kind := range kinds {
			for action := range warmingActions {
				all = append(all, warmingCell{binary, kind, action, "DELTA_GRPC"}, warmingCell{binary, kind, action, "GRPC"})
			}
		}
	}
	return all
}

// resumeTime is the control plane's longest wait for the cluster request of a reconnected Envoy; one that warms sends
// none.
const resumeTime = 5 * time.Second

// run returns the seconds until a policy is active, until requests go to a service that is new, and until nothing warms
// after the cause has gone; and how many requests there were, and failed. Of an Envoy that has connected again only
// those to the new service may, until it was sent clusters unasked.
func (c warmingCell) run(t *testing.T, w *warmed) string {
	w.cause(t, 1)
	eventually(t, patience, w.stat(warmingKinds[w.kind].seen, 1))
	warmingActions[c.action](t, w)
	policy := w.timed(t, func() { w.deny(t, 1) }, w.denies(1))
	w.flow.fine(t)
	service := w.timed(t, func() { w.fresh(t, 2) }, w.routed(2))
	_, toService := w.flow.count()
	over := w.timed(t, func() { w.remove(t) }, w.stat(isWarming, 0))
	if c.action == "NACK" {
		eventually(t, patience, w.refusal("refused-"+w.namespace))
	}
	w.fresh(t, 3)
	eventually(t, patience, w.routed(3))
	requests, faults := w.flow.count()
	serviceMost := inTime
	if c.action == "reconnect" {
		serviceMost += resumeTime
	} else {
		toService = nil
	}
	if len(faults) > len(toService) {
		t.Errorf("%d of %d requests failed, %d of them to the new service: %q ...", len(faults), requests, len(toService), faults[len(faults)-1])
	}
	if *warmingEnvoys != "" && (policy > inTime || service > serviceMost || over > inTime) {
		t.Errorf("the policy took %v, the service %v, the end %v", policy, service, over)
	}
	return fmt.Sprintf("%8.2f %8.2f %8.2f %8d %8d", policy.Seconds(), service.Seconds(), over.Seconds(), requests, len(faults))
}

// A cluster warms without end, while each edit adds a service and a policy, which become active.
func TestWarmingForEver(t *testing.T) {
	parallel(t)
	w := newWarmingMesh(t).sidecar(t, envoytest.Binary(t), "DELTA_GRPC", "for ever")
	w.cause(t, 1)
	eventually(t, patience, w.stat(isWarming, 1))
	for n := 1; n <= 20; n++ {
		took := w.timed(t, func() { w.deny(t, n); w.fresh(t, n+1) }, func() error { return errors.Join(w.denies(n)(), w.routed(n+1)()) })
		if *warmingEnvoys != "" && took > inTime {
			t.Errorf("edit %d took %v", n, took)
		}
	}
	if err := w.stat(isWarming, 1)(); err != nil {
		t.Error(err)
	}
	w.flow.fine(t)
}

// A new sidecar whose configuration contains a name whose DNS server does not answer is ready once Envoy has queried
// twice, after about six seconds.
func TestColdStartBesideUnresolvedName(t *testing.T) {
	parallel(t)
	m := newWarmingMesh(t)
	w := &warmed{mesh: m, kind: "STRICT_DNS", namespace: "shop", at: loopback.NetFor(t)}
	silent := w.silent(t)
	// How often Envoy tries is the product's own: the filter names the server alone, and has it rest afterwards.
	w.write(t, "cause.yaml", strings.NewReplacer("EDITION", "1", "query_tries: 2,", "", "value: {typed",
		"value: {dns_failure_refresh_rate: {base_interval: 36000s, max_interval: 36000s}, typed").Replace(unresolved(2)))
	eventually(t, patience, func() error {
		got, err := everything(t.Context(), m.daemon.grpc, node("shop", "web", w.at+".9"))
		if err == nil && got["type.googleapis.com/envoy.config.cluster.v3.Cluster outbound|9999||other.shop.svc.cluster.local"] == nil {
			err = errors.New("no such cluster yet")
		}
		return err
	})
	began := time.Now()
	_, page := startAgent(t, m.daemon, m.data, "web", w.at+".9")
	eventually(t, patience, func() error {
		p, err := page()
		if err == nil && !p.Ready {
			err = errors.New(p.NotReady)
		}
		return err
	})
	took := time.Since(began)
	if n := silent.Load(); n != 2 || *warmingEnvoys != "" && took > 10*time.Second {
		t.Errorf("ready after %v, and %d questions to the DNS server", took, n)
	}
}
