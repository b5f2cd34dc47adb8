package validate

import (
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
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

// victims are objects of other tenants: Service back/reviews with an address, a Pod, and ServiceEntries of namespace
// pay; back and front are one tenant. Namespace evil has a Pod, an older ServiceEntry than pay's, and younger ones.
// Service dev/flutter and ServiceEntry pay/young are younger than the objects of TestWaysIn.
const victims = `
{apiVersion: v1, kind: Namespace, metadata: {name: back, labels: {navarch.io/tenant: web}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: front, labels: {navarch.io/tenant: web}}}
---
{apiVersion: v1, kind: Service, metadata: {name: reviews, namespace: back, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {clusterIP: 10.96.0.10, ports: [{name: tcp, port: 5432}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: own, namespace: evil, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {clusterIP: 10.96.0.66, ports: [{name: tcp, port: 5432}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: back}, spec: {serviceAccountName: a}, status: {phase: Running, podIP: 10.244.0.9}}
---
{apiVersion: v1, kind: Pod, metadata: {name: q, namespace: evil}, spec: {serviceAccountName: a}, status: {phase: Running, podIP: 10.96.0.77}}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: api, namespace: pay, creationTimestamp: "2020-01-01T00:00:00Z"}
spec: {hosts: [api.example.com, old.example.org, "*.example.io"], ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: young, namespace: pay, creationTimestamp: "2026-06-01T00:00:00Z"}
spec: {hosts: [young.example.org], ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: first, namespace: evil, creationTimestamp: "2019-01-01T00:00:00Z"}
spec: {hosts: [old.example.org, old.example.io], ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: later, namespace: evil, creationTimestamp: "2024-01-01T00:00:00Z"}
spec: {hosts: [own.example.com, own.example.io], ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: hidden, namespace: evil, creationTimestamp: "2024-01-01T00:00:00Z"}
spec: {exportTo: ["."], hosts: [api.example.com], ports: [{number: 443, name: tls, protocol: TLS}]}
---
apiVersion: v1
kind: Service
metadata: {name: flutter, namespace: dev, creationTimestamp: "2026-06-01T00:00:00Z"}
spec: {clusterIP: None, ports: [{name: http, port: 80}]}
`

// tenantRules are the settings of the table.
var tenantRules = normal.Isolation{Ranges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")},
	Given: map[string]string{"*.pay.example.net": "pay", "evil.pay.example.net": "evil", "web.example.net": "navarch.io/tenant=web"}}

// wayIn is an entry of testdata/ways_in.yaml.
type wayIn struct {
	Name, Kind string
	Spec       json.RawMessage
	Says       string
}

func waysIn(t *testing.T) (all []wayIn) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "ways_in.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(raw, &all); err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	return all
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
	return object.Event{Op: object.Put, ID: id, Object: &object.Object{ID: id, Version: gvk.Version,
		Created: of.CreationTimestamp.Time, Labels: of.Labels, JSON: raw}}
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
	return New(normal.New(normal.Options{Isolation: settings}), func() *meshv1.MeshConfig { return nil },
		func() *mirror.Snapshot { return known }, tenants,
		func(model.Record, *mirror.Snapshot) (refused, warned []error) { return nil, nil })
}

// With isolation off, each way to divert traffic is open, as with istiod, and webhook and leader warn of it. With
// isolation on, the webhook refuses it, and the leader ignores and reports it. Objects that divert no traffic pass
// both.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestWaysIn(t *testing.T) {
	for _, on := range []bool{false, true} {
		settings := tenantRules
		settings.On = on
		webhook := isolating(t, settings)
		for _, c := range waysIn(t) {
			text := "apiVersion: networking.istio.io/v1\nkind: " + c.Kind +
				"\nmetadata: {name: x, namespace: evil, creationTimestamp: \"2026-01-01T00:00:00Z\"}\nspec: " + string(c.Spec)
			one := parseYAML(t, text)
			answer := webhook.Admit(t.Context(), Path, creation(t, one.Object.JSON))
			warned := slices.ContainsFunc(answer.Warnings, func(text string) bool { return c.Says != "" && strings.Contains(text, c.Says) })
			if wants := c.Says != "" && on; answer.Allowed == wants || wants && !strings.Contains(answer.Result.Message,
				c.Says) || !on && c.Says != "" && !warned {
				t.Errorf("isolation %v, %s: admitted %v, %v, warnings %q", on, c.Name, answer.Allowed, answer.Result, answer.Warnings)
			}
			for place, events := range map[string][]object.Event{"after": append(eventsOf(t, victims), one),
				"before": append([]object.Event{one}, eventsOf(t, victims)...)} {
				records, problems := ingest.Records(events, normal.Options{Isolation: settings})
				there := slices.ContainsFunc(records, func(r model.Record) bool {
					return r.Meta().Key.Namespace == "evil" && r.Meta().Key.Name == "x" && r.Meta().Key.Kind.String() == c.Kind
				})
				if c.Kind == "WorkloadEntry" {
					there = slices.ContainsFunc(records, func(r model.Record) bool {
						return r.Meta().Key == model.Key{Kind: model.KindWorkload, Namespace: "evil", Name: model.WorkloadEntryPrefix + "x"}
					})
				}
				named := slices.ContainsFunc(problems, func(p object.Problem) bool {
					return p.ID == one.ID && c.Says != "" && strings.Contains(p.Message, c.Says) && (p.Severity == problem.Error) == on
				})
				if there == (on && c.Says != "") || named != (c.Says != "") {
					t.Errorf("isolation %v, %s, %s the others: there %v, named %v: %v", on, c.Name, place, there, named, problems)
				}
			}
		}
	}
}

// Namespaces of the same tenant, and those of the operators, are permitted. Labels define the tenants; while labels are
// not known, no object is refused because of them.
// Promise: security-tenants.md#take-traffic-or-weaken-policies
func TestWhoMay(t *testing.T) {
	settings := normal.Isolation{On: true}
	w := isolating(t, settings)
	route := func(namespace string) bool {
		text := "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: x, namespace: " + namespace +
			"}\nspec: {hosts: [reviews.back.svc.cluster.local], http: [{route: [{destination: {host: own}}]}]}"
		one := parseYAML(t, text)
		admitted := w.Admit(t.Context(), Path, creation(t, one.Object.JSON)).Allowed
		if w.tenants == nil {
			return admitted
		}
		records, _ := ingest.Records(append(eventsOf(t, victims), one), normal.Options{Isolation: settings})
		if there := slices.ContainsFunc(records,
			func(r model.Record) bool { return r.Meta().Key.Kind == model.KindVirtualService }); there != admitted {
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
