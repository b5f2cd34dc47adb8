package validate

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// victims is what others have: Service back/reviews with an address, a Pod, and a ServiceEntry of namespace pay; back and front are one tenant.
const victims = `
{apiVersion: v1, kind: Namespace, metadata: {name: back, labels: {navarch.io/tenant: web}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: front, labels: {navarch.io/tenant: web}}}
---
{apiVersion: v1, kind: Service, metadata: {name: reviews, namespace: back}, spec: {clusterIP: 10.96.0.10, ports: [{name: tcp, port: 5432}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: own, namespace: evil}, spec: {clusterIP: 10.96.0.66, ports: [{name: tcp, port: 5432}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: back}, spec: {serviceAccountName: a}, status: {phase: Running, podIP: 10.244.0.9}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: pay, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: [api.example.com], ports: [{number: 443, name: tls, protocol: TLS}]}
`

// tenantRules are the settings of the table.
var tenantRules = normal.Isolation{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	Given: map[string]string{"*.pay.example.net": "pay", "evil.pay.example.net": "evil", "web.example.net": "navarch.io/tenant=web"}}

// waysIn has each way by which configuration of namespace evil could take traffic of others, with a part of what is said of it; empty: it takes
// nothing, and is taken with isolation too.
var waysIn = []struct{ name, kind, spec, says string }{
	{"another Service's address, TCP", "ServiceEntry", `{hosts: [x.evil.example], addresses: [10.96.0.10], resolution: STATIC, endpoints: [{address: 192.0.2.1}], ports: [{number: 5432, name: tcp, protocol: TCP}]}`,
		"10.96.0.10 is the address of Service back/reviews"},
	{"the same, mapped into IPv6", "ServiceEntry", `{hosts: [x.evil.example], addresses: ["::ffff:10.96.0.10"], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "10.96.0.10 is the address of Service back/reviews"},
	{"another Service's address, HTTP", "ServiceEntry", `{hosts: [x.evil.example], addresses: [10.96.0.10], ports: [{number: 80, name: http, protocol: HTTP}]}`, "10.96.0.10 is the address of"},
	{"a network with it", "ServiceEntry", `{hosts: [x.evil.example], addresses: [10.0.0.0/8], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "10.0.0.0/8 has addresses of the clusters'"},
	{"a Pod's network", "ServiceEntry", `{hosts: [x.evil.example], addresses: [10.244.0.0/24], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "10.244.0.0/24 has addresses of the clusters'"},
	{"a Pod's address", "ServiceEntry", `{hosts: [x.evil.example], addresses: [10.244.0.9], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "10.244.0.9 is a Pod's address"},
	{"an address of a range", "ServiceEntry", `{hosts: [x.evil.example], addresses: ["fd00:96::7"], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "fd00:96::7 is of the clusters' ranges"},
	{"a part of a range", "ServiceEntry", `{hosts: [x.evil.example], addresses: ["fd00:96::70/124"], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "fd00:96::70/124 has addresses"},
	{"all addresses", "ServiceEntry", `{hosts: [x.evil.example], addresses: [0.0.0.0/0], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "0.0.0.0/0 stands for all addresses"},
	{"no address", "ServiceEntry", `{hosts: [x.evil.example], addresses: ["0.0.0.0"], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "0.0.0.0 stands for all addresses"},
	{"the address of its own Service", "ServiceEntry", `{hosts: [x.evil.example], addresses: [10.96.0.66], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, ""},
	{"an address outside", "ServiceEntry", `{hosts: [x.evil.example], addresses: [192.0.2.5, 198.51.100.0/24], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, ""},
	{"the default chain of a port", "ServiceEntry", `{hosts: [x.evil.example], resolution: DNS, ports: [{number: 5432, name: tcp, protocol: TCP}]}`, "connections"},
	{"the same by detection", "ServiceEntry", `{hosts: [x.evil.example], resolution: DNS, ports: [{number: 5432, name: any}]}`, "connections"},
	{"the same by MongoDB", "ServiceEntry", `{hosts: [x.evil.example], resolution: DNS, ports: [{number: 5432, name: mongo, protocol: MONGO}]}`, "take all connections to port 5432"},
	{"ports told apart by names", "ServiceEntry", `{hosts: [x.evil.example], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}, {number: 80, name: http, protocol: HTTP}]}`, ""},
	{"a short name of another's Service", "ServiceEntry", `{hosts: [reviews.back], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, `"reviews.back" is a short name of Service back/reviews`},
	{"the same in capitals, with a dot", "ServiceEntry", `{hosts: [Reviews.Back.], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, `"reviews.back" is a short name of Service back/reviews`},
	{"the same with a Pod's name", "ServiceEntry", `{hosts: [p-0.reviews.back], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, "is a short name of Service back/reviews"},
	{"all Pods of it", "ServiceEntry", `{hosts: ["*.reviews.back"], ports: [{number: 80, name: http, protocol: HTTP}]}`, "is a short name of Service back/reviews"},
	{"a name of one label", "ServiceEntry", `{hosts: [reviews], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, `"reviews" is a short name`},
	{"a name that ends in svc", "ServiceEntry", `{hosts: [reviews.back.svc], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, `"reviews.back.svc" is a short name`},
	{"two labels that are nobody's Service", "ServiceEntry", `{hosts: [example.dev], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, ""},
	{"a top-level domain", "ServiceEntry", `{hosts: ["*.com"], ports: [{number: 443, name: tls, protocol: TLS}]}`, `"*.com" covers all names`},
	{"a namespace", "ServiceEntry", `{hosts: ["*.back"], ports: [{number: 80, name: http, protocol: HTTP}]}`, `"*.back" covers all names`},
	{"another's host in the cluster", "ServiceEntry", `{hosts: [reviews.back.svc.cluster.local], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, "is below the cluster's domain, and namespace back's"},
	{"all of a namespace in the cluster", "ServiceEntry", `{hosts: ["*.back.svc.cluster.local"], ports: [{number: 80, name: http, protocol: HTTP}]}`, "is below the cluster's domain, and namespace back's"},
	{"all of the cluster", "ServiceEntry", `{hosts: ["*.svc.cluster.local"], ports: [{number: 80, name: http, protocol: HTTP}]}`, "stands for hosts below the cluster's domain"},
	{"more than the cluster", "ServiceEntry", `{hosts: ["*.local"], ports: [{number: 80, name: http, protocol: HTTP}]}`, "stands for hosts below the cluster's domain"},
	{"a name beside the cluster's", "ServiceEntry", `{hosts: [x.cluster.local], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, "stands for hosts below the cluster's domain"},
	{"its own host in the cluster", "ServiceEntry", `{hosts: [db.evil.svc.cluster.local], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, ""},
	{"a host of the list", "ServiceEntry", `{hosts: [eu.pay.example.net], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, `gives "*.pay.example.net" to tenant pay`},
	{"a wildcard above one of the list", "ServiceEntry", `{hosts: ["*.example.net"], ports: [{number: 80, name: http, protocol: HTTP}]}`, `gives "*.pay.example.net" to tenant pay`},
	{"one that the list gives to it", "ServiceEntry", `{hosts: [evil.pay.example.net], resolution: DNS, ports: [{number: 80, name: http, protocol: HTTP}]}`, ""},
	{"whatever it likes, for itself", "ServiceEntry", `{exportTo: ["."], hosts: [reviews.back, "*.com"], addresses: [10.96.0.10], ports: [{number: 5432, name: tcp, protocol: TCP}]}`, ""},
	{"the same for one other namespace", "ServiceEntry", `{exportTo: [".", pay], hosts: [reviews.back], ports: [{number: 80, name: http, protocol: HTTP}]}`, "is a short name of Service back/reviews"},
	{"another's host", "VirtualService", `{hosts: [reviews.back.svc.cluster.local], http: [{route: [{destination: {host: own}}]}]}`, "is below the cluster's domain, and namespace back's"},
	{"another's short name", "VirtualService", `{hosts: [reviews.back], http: [{route: [{destination: {host: own}}]}]}`, "is a short name of Service back/reviews"},
	{"another's address for a host", "VirtualService", `{hosts: [10.96.0.10], http: [{route: [{destination: {host: own}}]}]}`, "is the address of Service back/reviews"},
	{"another's ServiceEntry", "VirtualService", `{hosts: [api.example.com], tls: [{match: [{sniHosts: [api.example.com]}], route: [{destination: {host: own}}]}]}`, `"api.example.com" is a host of ServiceEntry pay/api`},
	{"a wildcard above another's ServiceEntry", "VirtualService", `{hosts: ["*.example.com"], http: [{route: [{destination: {host: own}}]}]}`, "is a host of ServiceEntry pay/api"},
	{"another's, for a gateway too", "VirtualService", `{gateways: [mesh, gw], hosts: [reviews.back.svc.cluster.local], http: [{route: [{destination: {host: own}}]}]}`, "namespace back's"},
	{"everything, for gateways alone", "VirtualService", `{gateways: [gw], hosts: ["*"], http: [{route: [{destination: {host: own}}]}]}`, ""},
	{"its own host", "VirtualService", `{hosts: [own], http: [{route: [{destination: {host: own}}]}]}`, ""},
	{"a host of nobody's", "VirtualService", `{hosts: [www.example.org], http: [{route: [{destination: {host: own}}]}]}`, ""},
	{"another's host, for itself", "VirtualService", `{exportTo: ["."], hosts: [reviews.back.svc.cluster.local], http: [{route: [{destination: {host: own}}]}]}`, ""},
	{"a rule for another's host", "DestinationRule", `{host: reviews.back.svc.cluster.local, trafficPolicy: {tls: {mode: DISABLE}}}`, ""}, // its own proxies' alone, as with istiod
	{"all that it calls", "Sidecar", `{egress: [{hosts: ["*/*"]}]}`, ""},
	{"another's address for a workload", "WorkloadEntry", `{address: 10.96.0.10, labels: {app: x}}`, ""}, // its own services send there, and nobody else's
}

func parseYAML(t *testing.T, text string) object.Event {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var of metav1.PartialObjectMetadata
	if err := json.Unmarshal(raw, &of); err != nil {
		t.Fatal(err)
	}
	gvk := of.GroupVersionKind()
	id := object.ID{Group: gvk.Group, Kind: gvk.Kind, Namespace: of.Namespace, Name: of.Name}
	return object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: gvk.Version, Created: of.CreationTimestamp.Time, Labels: of.Labels, JSON: raw}}
}

func eventsOf(t *testing.T, text string) (all []object.Event) {
	for _, one := range strings.Split(text, "---\n") {
		all = append(all, parseYAML(t, one))
	}
	return all
}

// isolating is the webhook of a replica that has the victims, and knows the labels of namespaces.
func isolating(t *testing.T, settings normal.Isolation) *Webhook {
	records, _ := ingest.Records(eventsOf(t, victims), normal.Options{Isolation: settings})
	known := mirror.Empty().Apply(1, records, nil).New
	tenants := func(namespace string) (string, bool) {
		label := map[string]string{"back": "web", "front": "web"}[namespace]
		return isolation.TenantOf(namespace, label), true
	}
	return New(normal.New(normal.Options{Isolation: settings}), func() *meshv1.MeshConfig { return nil }, func() *mirror.Snapshot { return known }, tenants,
		func(model.Record, *mirror.Snapshot) (refused, warned []error) { return nil, nil })
}

// With isolation off each way in is open, as with istiod, and the webhook and the leader warn of it; with isolation on the webhook refuses it, and
// the leader leaves it out and names it. Whatever takes nothing passes both.
func TestWaysIn(t *testing.T) {
	for _, on := range []bool{false, true} {
		settings := tenantRules
		settings.On = on
		webhook := isolating(t, settings)
		for _, c := range waysIn {
			text := "apiVersion: networking.istio.io/v1\nkind: " + c.kind + "\nmetadata: {name: x, namespace: evil, creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: " + c.spec
			one := parseYAML(t, text)
			answer := webhook.Admit(t.Context(), Path, creation(t, one.Object.JSON))
			warned := slices.ContainsFunc(answer.Warnings, func(text string) bool { return c.says != "" && strings.Contains(text, c.says) })
			if wants := c.says != "" && on; answer.Allowed == wants || wants && !strings.Contains(answer.Result.Message, c.says) || !on && c.says != "" && !warned {
				t.Errorf("isolation %v, %s: admitted %v, %v, warnings %q", on, c.name, answer.Allowed, answer.Result, answer.Warnings)
			}
			for place, events := range map[string][]object.Event{"after": append(eventsOf(t, victims), one), "before": append([]object.Event{one}, eventsOf(t, victims)...)} {
				records, problems := ingest.Records(events, normal.Options{Isolation: settings})
				there := slices.ContainsFunc(records, func(r model.Record) bool {
					return r.Meta().Key.Namespace == "evil" && r.Meta().Key.Kind.String() == c.kind
				})
				if c.kind == "WorkloadEntry" {
					there = slices.ContainsFunc(records, func(r model.Record) bool {
						return r.Meta().Key.Kind == model.KindWorkload && r.Meta().Key.Namespace == "evil"
					})
				}
				named := slices.ContainsFunc(problems, func(p object.Problem) bool {
					return p.ID == one.ID && c.says != "" && strings.Contains(p.Message, c.says) && (p.Severity == problem.Error) == on
				})
				if there == (on && c.says != "") || named != (c.says != "") {
					t.Errorf("isolation %v, %s, %s the others: there %v, named %v: %v", on, c.name, place, there, named, problems)
				}
			}
		}
	}
}

// A namespace of the same tenant, and those of the operators, may; who is of which tenant is what labels say, and where these are not known
// nothing is refused for them.
func TestWhoMay(t *testing.T) {
	settings := normal.Isolation{On: true}
	w := isolating(t, settings)
	route := func(namespace string) bool {
		text := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x, namespace: " + namespace + "}\nspec: {hosts: [reviews.back.svc.cluster.local], http: [{route: [{destination: {host: own}}]}]}"
		one := parseYAML(t, text)
		admitted := w.Admit(t.Context(), Path, creation(t, one.Object.JSON)).Allowed
		if w.tenants == nil {
			return admitted
		}
		records, _ := ingest.Records(append(eventsOf(t, victims), one), normal.Options{Isolation: settings})
		if there := slices.ContainsFunc(records, func(r model.Record) bool { return r.Meta().Key.Kind == model.KindVirtualService }); there != admitted {
			t.Errorf("%s: admitted %v, there %v", namespace, admitted, there)
		}
		return admitted
	}
	for namespace, may := range map[string]bool{"front": true, "back": true, "istio-system": true, "evil": false, "pay": false} {
		if route(namespace) != may {
			t.Errorf("%s: want %v", namespace, may)
		}
	}
	if w.tenants = nil; !route("evil") {
		t.Error("it was refused, though the two may be of one tenant")
	}
}
