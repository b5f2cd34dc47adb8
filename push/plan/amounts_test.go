//go:build !race

package plan

import (
	"fmt"
	"testing"

	"navarch.io/navarch/store/model"
)

// TestAmountsOfWork: each step builds the number of resources that the issue promises, whatever the number of services
// and of scopes.
func TestAmountsOfWork(t *testing.T) {
	for _, services := range []int{60, 160} {
		p, shared, handles := bigPlanner(t, services, 4)
		edit := func(r ...model.Record) (moved int) {
			return len(p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, r, nil)))
		}
		fast := func(r model.Record) (moved int) {
			m, rest := p.PlanEndpoints(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{r}, nil), false)
			if len(rest) > 0 {
				t.Error("a change of endpoints waits for the configuration path")
			}
			return len(m)
		}
		host := "s3.ns0.svc.cluster.local"
		for _, c := range []struct {
			name string
			step func() int
			want work
			move int
		}{
			// Each of the two ports has an assignment without a subset and one for v2; those for v1 do not select the endpoint.
			{"an endpoint endpoints", func() int { return fast(readyEndpoints(t, "ns0", "s3", 3)) }, work{endpoints: 4}, 4},
			{"an endpoint endpoints, by way of the configuration path", func() int { return edit(readyEndpoints(t, "ns0", "s3", 2)) }, work{endpoints: 4}, 4},
			// The host's own namespace resolves short names, so that its virtual hosts differ from those of all other
			// namespaces; all four route configurations change.
			{"a VirtualService is edited", func() int { return edit(vsOf(t, "ns0/s3", host, "s4.ns0.svc.cluster.local", "")) }, work{hosts: 2, routes: 4}, 4},
			{"it is edited again", func() int { return edit(vsOf(t, "ns0/s3", host, "s6.ns0.svc.cluster.local", "")) }, work{hosts: 2, routes: 4}, 4},
			{"nothing is edited", func() int { return edit(vsOf(t, "ns0/s3", host, "s6.ns0.svc.cluster.local", "")) }, work{}, 0},
			{"a rule without effect here", func() int {
				return edit(rec(t, model.KindDestinationRule, "ns99/x", "host: "+host+"\nexportTo: ['.']\nsubsets: [{name: z}]"))
			}, work{}, 0},
			{"fifty VirtualServices at once", func() int {
				var all []model.Record
				for i := range 50 {
					h := fmt.Sprintf("s%d.ns%d.svc.cluster.local", i, i/10)
					all = append(all, vsOf(t, fmt.Sprintf("ns%d/s%d", i/10, i), h, "s5.ns0.svc.cluster.local", ""))
				}
				return edit(all...)
			}, work{hosts: 88, routes: 4}, 4}, // s5 does not change; the fifth namespace has no scope
		} {
			moved := 0
			if got := measure(shared, func() { moved = c.step() }); got != c.want || moved != c.move {
				t.Errorf("%d services: %s: built %+v and moved %d, want %+v and %d", services, c.name, got, moved, c.want, c.move)
			}
		}
		for _, h := range handles {
			if bad := p.Check(h); len(bad) > 0 {
				t.Errorf("%d services: %v", services, bad)
			}
		}
	}
}

// An edit of one field of the mesh configuration rebuilds only the resources whose builders read the field.
func TestMeshFieldIsBuiltByItsReaders(t *testing.T) {
	p, shared, _ := bigPlanner(t, 60, 2)
	edit := func(fields string) work {
		return measure(shared, func() {
			p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{rec(t, model.KindMesh, "/mesh", fields)}, nil))
		})
	}
	edit("{}")
	for _, c := range []struct {
		fields                                string
		clusters, endpoints, listeners, hosts bool
	}{
		{"ingressClass: mine", false, false, false, false},
		{"connectTimeout: 3s", true, false, false, false},
		{"connectTimeout: 3s\naccessLogFile: /dev/stdout", false, false, true, false},
		{"connectTimeout: 3s\naccessLogFile: /dev/stdout\ndefaultHttpRetryPolicy: {attempts: 7}", false, false, false, true},
	} {
		got := edit(c.fields)
		if (got.clusters > 0) != c.clusters || (got.endpoints > 0) != c.endpoints || (got.listeners > 0) != c.listeners || (got.hosts > 0) != c.hosts || (got.routes > 0) != c.hosts {
			t.Errorf("%q: built %+v", c.fields, got)
		}
	}
}

// A host of many endpoints is planned in pieces, so that the loop does other work between them.
func TestLargeHostIsPlannedInPieces(t *testing.T) {
	p, _, _ := bigPlanner(t, 60, 1)
	const endpoints = 20_000
	spec := &model.EndpointsSpec{Hosts: []string{"s3.ns0.svc.cluster.local"},
		Ports: []*model.EndpointPort{{Name: "http", Number: 8080}}}
	for i := range endpoints {
		address := fmt.Sprintf("10.9.%d.%d", i/250, i%250)
		spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: address, Health: model.Health_HEALTH_READY})
	}
	r, err := model.New(model.Key{Kind: model.KindEndpoints, Namespace: "ns0", Name: "s3-big"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	pieces := 0
	p.Begin(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{r}, nil))
	for p.Step(func() bool { pieces++; return true }) {
	}
	p.End()
	if least := endpoints / 1000; pieces < least {
		t.Errorf("%d endpoints are planned in %d pieces, want at least %d", endpoints, pieces, least)
	}
}
