package validate

import (
	"strings"
	"testing"
	"time"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/isolation"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
)

// others are a private and a public ServiceEntry of a tenant.
const others = `
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: hidden, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {exportTo: ["."], hosts: [private.example.com], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: open, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {hosts: [public.example.com], resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}}
`

// A tenant's proposal names no private object of other tenants. Without isolation the answer does not depend on them;
// with isolation they are refused without their names. Exported objects are named, and callers who see everything read
// all names.
// Promise: plan.md#what-is-asked-of-a-running-mesh
func TestProposalsOfTenantsAreDiscreet(t *testing.T) {
	records, _ := ingest.Records(eventsOf(t, others), normal.Options{})
	known := mirror.Empty().Apply(7, records, nil).New
	for _, c := range []struct {
		host             string
		on, alone        bool
		want, wantNoName string
	}{
		{"private.example.com", false, true, "", "example"},
		{"*.example.com", false, true, "victim/open", "victim/hidden"},
		{"public.example.com", false, true, "victim/open", "victim/hidden"},
		{"private.example.com", true, true, "a ServiceEntry of another tenant", "victim"},
		{"public.example.com", true, true, "victim/open", "victim/hidden"},
		{"private.example.com", false, false, "victim/hidden", "another tenant"},
		{"private.example.com", true, false, "victim/hidden", "another tenant"},
	} {
		settings := tenantRules
		settings.On = c.on
		w := New(normal.New(normal.Options{Isolation: settings}), func() *meshv1.MeshConfig { return nil },
			func() *mirror.Snapshot { return known }, func(of string) (string, bool) { return isolation.TenantOf(of, ""), true },
			func(model.Record, *mirror.Snapshot) (refused, warned []error) { return nil, nil })
		one := parseYAML(t, `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: evil}, `+
			`spec: {hosts: ["`+c.host+`"], http: [{route: [{destination: {host: web}}]}]}}`)
		_, proposed := w.Propose(t.Context(), known, Proposal{Objects: []*object.Object{one.Object}, Alone: c.alone})
		text := ""
		for _, p := range proposed[0].Problems {
			text += p.Message + "\n"
		}
		if !strings.Contains(text, c.want) || strings.Contains(text, c.wantNoName) || c.want == "" && text != "" {
			t.Errorf("isolation %v, alone %v, %s: %q, want %q and no %q", c.on, c.alone, c.host, text, c.want, c.wantNoName)
		}
	}
}

// The webhook names objects of other namespaces only if they are exported to the namespace of the object, whether
// isolation refuses the object or warns, and in warnings about objects that win over it.
// Promise: security-tenants.md#what-a-tenant-reads-of-others
func TestReviewsAreDiscreet(t *testing.T) {
	const more = `
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: hidden, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {exportTo: [third], hosts: [first.example.com], http: [{route: [{destination: {host: web}}]}]}}
---
{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: open, namespace: victim, creationTimestamp: "2020-01-01T00:00:00Z"}, spec: {hosts: [second.example.com], http: [{route: [{destination: {host: web}}]}]}}
`
	records, _ := ingest.Records(eventsOf(t, others+more), normal.Options{})
	known := mirror.Empty().Apply(7, records, nil).New
	for _, c := range []struct {
		host             string
		on               bool
		want, wantNoName string
	}{
		{"private.example.com", false, "a ServiceEntry of another tenant", "victim"},
		{"private.example.com", true, "a ServiceEntry of another tenant", "victim"},
		{"public.example.com", true, "victim/open", "victim/hidden"},
		{"first.example.com", false, "is claimed by an object of another namespace too", "victim"},
		{"second.example.com", false, "is claimed by VirtualService victim/open too", "victim/hidden"},
	} {
		settings := tenantRules
		settings.On = c.on
		w := New(normal.New(normal.Options{Isolation: settings}), func() *meshv1.MeshConfig { return nil },
			func() *mirror.Snapshot { return known }, func(of string) (string, bool) { return isolation.TenantOf(of, ""), true },
			func(model.Record, *mirror.Snapshot) (refused, warned []error) { return nil, nil })
		one := parseYAML(t, `{apiVersion: networking.istio.io/v1, kind: VirtualService, metadata: {name: v, namespace: evil}, `+
			`spec: {hosts: ["`+c.host+`"], http: [{route: [{destination: {host: web}}]}]}}`)
		one.Object.Created = time.Now() // as the webhook does
		var found Found
		w.normalised(t.Context(), one.Object, &found)
		text := strings.Join(found.Warnings, "\n")
		for _, e := range found.Errors {
			text += "\n" + e.text()
		}
		if !strings.Contains(text, c.want) || strings.Contains(text, c.wantNoName) {
			t.Errorf("isolation %v, %s: %q, want %q and no %q", c.on, c.host, text, c.want, c.wantNoName)
		}
	}
}
