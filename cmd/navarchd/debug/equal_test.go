//go:build !race

package debug

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/judge"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/source/files"
)

// twoMeshes returns a mesh with the objects and proxies of the tenant shop, and the same mesh with another tenant's.
func twoMeshes(t *testing.T) (objects [2]string, proxies [2][]view.Node) {
	t.Helper()
	var texts []string
	for _, name := range []string{"../../../push/describe/testdata/mesh.yaml", "testdata/others.yaml"} {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(raw))
	}
	node := func(name, namespace, address, app, version string) view.Node {
		return view.Node{ID: "sidecar~" + address + "~" + name + "." + namespace, Name: name, Namespace: namespace,
			Addresses: []string{address}, Labels: map[string]string{"app": app, "version": version}, Domain: view.DefaultDomain,
			Caps: xds.StockCaps | xds.CapIdentity}
	}
	own := []view.Node{node("web-1", "shop", "10.1.1.1", "web", ""), node("api-1", "shop", "10.1.2.1", "api", "v1"),
		node("api-2", "shop", "10.1.2.2", "api", "v2")}
	theirs := append(slices.Clone(own), node("secret-1", "rival", "10.1.3.1", "api", "v1"),
		node("secret-2", "rival", "10.1.3.2", "other", ""))
	return [2]string{texts[0], texts[0] + "\n---\n" + texts[1]}, [2][]view.Node{own, theirs}
}

// edits are a tenant's changes. Many of them name or resemble an object that only another tenant sees.
var edits = map[string]string{
	"route":             `VirtualService api {hosts: [api], http: [{timeout: 9s, route: [{destination: {host: api}}]}]}`,
	"delegate":          `VirtualService api {hosts: [api], http: [{match: [{uri: {prefix: /hidden}}], delegate: {name: hidden, namespace: rival}}]}`,
	"gateway":           `VirtualService front {hosts: [rival.example], gateways: [rival/edge], http: [{route: [{destination: {host: web}}]}]}`,
	"to a hidden host":  `VirtualService new {hosts: [web], http: [{route: [{destination: {host: secret.rival.svc.cluster.local}}]}]}`,
	"of a hidden host":  `VirtualService new {hosts: [secret.rival.svc.cluster.local], http: [{route: [{destination: {host: web}}]}]}`,
	"rule":              `DestinationRule new {host: secret.rival.svc.cluster.local, trafficPolicy: {tls: {mode: DISABLE}}}`,
	"own rule":          `DestinationRule api {host: api, trafficPolicy: {tls: {mode: SIMPLE}}}`,
	"entry":             `ServiceEntry e {hosts: [hidden.example.com], addresses: [10.99.0.9], ports: [{number: 443, name: tls, protocol: TCP}], resolution: DNS}`,
	"entry of its host": `ServiceEntry e {hosts: [secret.rival.svc.cluster.local], addresses: [10.96.0.20], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}`,
	"sidecar":           `Sidecar web {workloadSelector: {labels: {app: web}}, egress: [{hosts: ["rival/*", "*/secret.rival.svc.cluster.local"]}]}`,
	"front":             `Gateway edge {selector: {app: api}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["rival.example"]}]}`,
	"machine":           `WorkloadEntry machine {address: 10.1.3.1, labels: {app: api}, serviceAccount: api}`,
	"strict":            `PeerAuthentication default {mtls: {mode: STRICT}}`,
	"policy":            `AuthorizationPolicy p {action: DENY, rules: [{from: [{source: {namespaces: [rival]}}]}]}`,
	"jwt":               `RequestAuthentication jwt {jwtRules: [{issuer: "https://rival.example", jwksUri: "https://rival.example/keys"}]}`,
	"telemetry":         `Telemetry t {tracing: [{randomSamplingPercentage: 9}]}`,
	"filter": `EnvoyFilter f {configPatches: [{applyTo: CLUSTER, match: {context: SIDECAR_OUTBOUND, cluster: {service: secret.rival.svc.cluster.local}}, ` +
		`patch: {operation: MERGE, value: {alt_stat_name: x}}}]}`,
	"delete: route":  `VirtualService api {}`,
	"delete: rule":   `DestinationRule api {}`,
	"delete: mtls":   `PeerAuthentication api {}`,
	"delete: policy": `AuthorizationPolicy allow-web {}`,
	"delete: hidden": `VirtualService hidden {}`,
}

var groups = map[string]string{"PeerAuthentication": "security", "AuthorizationPolicy": "security", "RequestAuthentication": "security",
	"Telemetry": "telemetry"}

// Two meshes that differ in objects and proxies of other tenants alone give a tenant equal plans of its changes, byte
// for byte. Several kinds of answers are among them: changes that affect its proxies, refused ones, risks, problems.
// Promise: plan.md#what-is-asked-of-a-running-mesh
func TestTenantsPlansAreEqual(t *testing.T) {
	objects, proxies := twoMeshes(t)
	alone, beside := replicaWith(t, 0, objects[0], proxies[0]...), replicaWith(t, 0, objects[1], proxies[1]...)
	for _, p := range []*Pages{alone, beside} {
		p.Previewer.Proposals = validate.New(normal.New(normal.Options{}), nil, nil, nil, judge.Record)
	}
	if _, text, r := postPlan(beside, authz.Caller{}, "", strings.NewReader(route("rival"))); r == nil || r.Proxies != 5 {
		t.Fatalf("others' proxies and objects are not in the mesh: %s", text)
	}
	affected, refused, risky, problems := 0, 0, 0, 0
	for name, edit := range edits {
		kind, rest, _ := strings.Cut(edit, " ")
		object, spec, _ := strings.Cut(rest, " ")
		group, query := groups[kind], ""
		if group == "" {
			group = "networking"
		}
		version := map[bool]string{true: "v1alpha3", false: "v1"}[kind == "EnvoyFilter"]
		body := fmt.Sprintf("{apiVersion: %s.istio.io/%s, kind: %s, metadata: {name: %s, namespace: shop}, spec: %s}",
			group, version, kind, object, spec)
		if strings.HasPrefix(name, "delete") {
			query = "delete=true"
		}
		ask := func(p *Pages) string {
			status, text, r := postPlan(p, tenantOf("shop"), query, strings.NewReader(body))
			if status != http.StatusOK {
				t.Errorf("%s: %d %s", name, status, text)
				return text
			}
			affected, problems = affected+min(1, len(r.Affected)), problems+min(1, len(r.Problems.New))
			risky += min(1, len(r.Risks))
			if r.Refused() {
				refused++
			}
			return text
		}
		if want, got := ask(alone), ask(beside); got != want {
			t.Errorf("%s: beside others\n%s\nalone\n%s", name, got, want)
		} else if strings.Contains(got, "secret-") || strings.Contains(got, "10.1.3.") && !strings.Contains(edit, "10.1.3.") {
			t.Errorf("%s: others are seen:\n%s", name, got)
		}
	}
	if affected < 20 || refused < 2 || risky < 10 || problems < 4 {
		t.Errorf("%d of %d answers affect a proxy, %d are refused, %d have risks, %d problems",
			affected, 2*len(edits), refused, risky, problems)
	}
}

// Two meshes that differ in objects and proxies of other tenants alone give a tenant's proxies equal configuration, and
// equal explanations of each resource. These are all that navarchctl why, authz, test and explain read.
// Promise: why.md#follow-a-request
func TestTenantsConfigurationsAreEqual(t *testing.T) {
	objects, proxies := twoMeshes(t)
	var texts [2][]string
	for i := range objects {
		events, _ := files.Parse("x", []byte(objects[i]))
		records, _ := ingest.Records(events, normal.Options{})
		snapshot, _ := resolve.Snapshot(mirror.Empty().Apply(7, records, nil).New)
		planner := plan.New(plan.Settings{Snapshot: snapshot})
		handles := map[string]*plan.Handle{}
		for _, n := range proxies[i] {
			handles[n.Name] = planner.Join(n)
		}
		for _, n := range proxies[0] {
			h := handles[n.Name]
			for kind := range xds.NumTypes {
				for _, r := range h.Set().Types[kind].Sorted() {
					specs := func(of xds.Type, name string) []any { return planner.Explain(h, of, name) }
					why, err := json.Marshal(inspect.Explain(h.Set(), r.Name, specs))
					if err != nil {
						t.Fatal(err)
					}
					texts[i] = append(texts[i], fmt.Sprintf("%s %v %s %s\n%s", n.Name, kind, r.Name, r.Version, why))
				}
			}
		}
	}
	if len(texts[0]) < 50 || len(texts[0]) != len(texts[1]) {
		t.Fatalf("%d resources alone, %d beside others", len(texts[0]), len(texts[1]))
	}
	for i, want := range texts[0] {
		if got := texts[1][i]; got != want || strings.Contains(got, "rival") {
			t.Errorf("beside others\n%s\nalone\n%s", got, want)
		}
	}
}
