package plan

import (
	"fmt"
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// bigMesh returns n services in namespaces of ten, each with endpoints and a VirtualService.
func bigMesh(t testing.TB, n int) *mirror.Snapshot {
	var all []model.Record
	for i := range n {
		ns, name := fmt.Sprintf("ns%d", i/10), fmt.Sprintf("s%d", i)
		all = append(all, svc(t, ns+"/"+name, fmt.Sprintf("10.%d.%d.1", i/250, i%250), "http:80:HTTP", "raw:9000:TCP"),
			readyEndpoints(t, ns, name, 4), vsOf(t, ns+"/"+name, fmt.Sprintf("%s.%s.svc.cluster.local", name, ns), fmt.Sprintf("%s.%s.svc.cluster.local", name, ns), ""))
	}
	all = append(all, rec(t, model.KindDestinationRule, "ns0/s3", "host: s3.ns0.svc.cluster.local\nsubsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]"))
	return snapshot(all...)
}

func readyEndpoints(t testing.TB, ns, name string, ready int) model.Record {
	var addresses []string
	for i := range 4 {
		a := fmt.Sprintf("10.200.0.%d v%d", i, 1+i/2)
		if i >= ready {
			a += " !"
		}
		addresses = append(addresses, a)
	}
	return eps(t, ns+"/"+name+"-1", "{name: http, number: 8080}, {name: raw, number: 9000}", addresses...)
}

// work is the number of resources of each type that are built in a step, and of virtual hosts.
type work struct{ clusters, endpoints, listeners, routes, hosts int64 }

func measure(p *pool.Pool, step func()) work {
	now := func() work {
		return work{p.Builds(xds.Cluster), p.Builds(xds.Endpoint), p.Builds(xds.Listener), p.Builds(xds.Route), p.Fragments()}
	}
	before := now()
	step()
	after := now()
	return work{after.clusters - before.clusters, after.endpoints - before.endpoints, after.listeners - before.listeners, after.routes - before.routes, after.hosts - before.hosts}
}

func bigPlanner(t testing.TB, services, scopes int) (*Planner, *pool.Pool, []*Handle) {
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: bigMesh(t, services)})
	var handles []*Handle
	for i := range scopes {
		handles = append(handles, p.Join(node(fmt.Sprintf("ns%d", i), "a")))
	}
	return p, shared, handles
}

// A change of endpoints plans only the endpoints' manifest; all other values stay the same.
func TestFastPathSharesTheRest(t *testing.T) {
	p, _, handles := bigPlanner(t, 40, 2)
	before := handles[0].Set()
	p.PlanEndpoints(p.Snapshot().Apply(2, []model.Record{readyEndpoints(t, "ns0", "s3", 3)}, nil), false)
	after := handles[0].Set()
	for kind := range xds.NumTypes {
		if same := before.Types[kind] == after.Types[kind]; same != (kind != xds.Endpoint) {
			t.Errorf("%ss: the same stack: %v", kind.Noun(), same)
		}
	}
	if d := manifest.Diff(before.Types[xds.Endpoint], after.Types[xds.Endpoint]); len(d) != 4 {
		t.Errorf("%d assignments differ, want 4", len(d))
	}
	if after.Revision != 2 || before.Revision != 1 {
		t.Errorf("revision %d, then %d; want 1 and 2", before.Revision, after.Revision)
	}
}

// While configuration waits, the fast path uses the planned version of each host, and does not raise the revision.
func TestFastPathWithPendingConfiguration(t *testing.T) {
	p, _, handles := bigPlanner(t, 40, 1)
	c := p.Snapshot().Apply(2, []model.Record{svc(t, "ns0/new", "10.250.0.1", "http:80:HTTP"), readyEndpoints(t, "ns0", "new", 4), readyEndpoints(t, "ns0", "s3", 1)}, nil)
	moved, rest := p.PlanEndpoints(c, false)
	if len(moved) != 1 || len(rest) != 1 || rest[0].Key().Kind != model.KindService {
		t.Fatalf("moved %v, left %v", moved, rest)
	}
	set := handles[0].Set()
	if set.Revision != 1 || set.Types[xds.Endpoint].Get("outbound|80||new.ns0.svc.cluster.local") != nil {
		t.Error("the fast path planned a host that is not planned yet")
	}
	if got := addresses(t, set, "outbound|80||s3.ns0.svc.cluster.local"); got != "10.200.0.0:8080" {
		t.Errorf("endpoints: %s", got)
	}
	p.Apply(mirror.Change{New: c.New, Edits: rest})
	if set = handles[0].Set(); set.Revision != 2 || len(p.Check(handles[0])) > 0 {
		t.Error("the configuration path did not complete the plan")
	}
}

func TestExplain(t *testing.T) {
	p, _, handles := bigPlanner(t, 40, 2)
	h := handles[1]
	for kind := range xds.NumTypes {
		for r := range h.Set().Types[kind].All() {
			specs := p.Explain(h, kind, r.Name)
			if len(specs) == 0 {
				t.Errorf("%s %s is not explained", kind.Noun(), r.Name)
				continue
			}
			built, err := specs[0].(pool.ResourceSpec).Build()
			if err != nil || built.Version != r.Version {
				t.Errorf("%s %s: the Spec makes another resource (%v)", kind.Noun(), r.Name, err)
			}
			if kind == xds.Route && len(specs) != 42 {
				t.Errorf("route %s: %d Specs, want its own, 40 virtual hosts and the last", r.Name, len(specs))
			}
		}
	}
	if p.Explain(h, xds.Cluster, "outbound|80||nowhere") != nil {
		t.Error("what is not there is explained")
	}
}

// BenchmarkEdit plans and builds one edit of one service in ten namespaces, without sending. It edits two hundred
// services in turn, because the cost depends on the position of the service's virtual host among the others.
func BenchmarkEdit(b *testing.B) {
	const edited = 200
	for _, services := range []int{500, 1000, 4000} {
		for name, edit := range map[string]func(k, round int) model.Record{
			"endpoint": func(k, round int) model.Record {
				return readyEndpoints(b, fmt.Sprintf("ns%d", k/10), fmt.Sprintf("s%d", k), 2+round%2)
			},
			"virtualservice": func(k, round int) model.Record {
				return vsOf(b, fmt.Sprintf("ns%d/s%d", k/10, k), fmt.Sprintf("s%d.ns%d.svc.cluster.local", k, k/10), fmt.Sprintf("s%d.ns0.svc.cluster.local", 4+round%2), "")
			},
			"rule": func(k, round int) model.Record {
				return rec(b, model.KindDestinationRule, fmt.Sprintf("ns%d/s%d", k/10, k), fmt.Sprintf("host: s%d.ns%d.svc.cluster.local\ntrafficPolicy: {connectionPool: {tcp: {maxConnections: %d}}}", k, k/10, round+1))
			},
			"service": func(k, round int) model.Record {
				return svc(b, fmt.Sprintf("ns%d/s%d", k/10, k), fmt.Sprintf("10.99.%d.1", k), "http:80:HTTP", fmt.Sprintf("raw:%d:TCP", 9000+round%2))
			},
		} {
			b.Run(fmt.Sprintf("%s/services=%d", name, services), func(b *testing.B) {
				p, _, _ := bigPlanner(b, services, 10)
				var changes []mirror.Change
				s := p.Snapshot()
				for i := range b.N {
					c := s.Apply(int64(i+2), []model.Record{edit(i%edited, i/edited)}, nil)
					changes, s = append(changes, c), c.New
				}
				b.ResetTimer()
				for _, c := range changes {
					p.Apply(c)
				}
			})
		}
	}
}
