package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/cmd/navarchd/api/ask"
	"navarch.io/navarch/cmd/navarchd/debug"
	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/cmd/navarchd/judge"
	loadmesh "navarch.io/navarch/loadtest/mesh"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/preview"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/shard/ring"
	"navarch.io/navarch/store/admit/validate"
	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/source/files"
)

// The fleet of BenchmarkFleetPreview, which is that of the scenario commands-20000.
const (
	fleetReplicas = 3
	fleetProxies  = 20000
)

// others asks the other replicas of a fleet in this process. Questions and replies are encoded as between processes.
type others []*api.API

// Ask implements api.Replicas.
func (o others) Ask(ctx context.Context, q ask.Question, _ time.Duration) []ask.Heard {
	heard := make([]ask.Heard, len(o))
	var asking sync.WaitGroup
	for i, other := range o {
		asking.Go(func() {
			h := &heard[i]
			h.Replica = other.Self
			raw, err := json.Marshal(other.Asked(ctx, q))
			h.Err = errors.Join(err, json.Unmarshal(raw, &h.Reply))
		})
	}
	asking.Wait()
	return heard
}

// worldB returns the mesh of the scenario, its snapshot, and the options for its objects.
func worldB(b *testing.B) (*loadmesh.Mesh, *mirror.Snapshot, normal.Options) {
	b.Helper()
	settings, err := loadmesh.Load("world-b")
	if err != nil {
		b.Fatal(err)
	}
	w, err := loadmesh.New(settings)
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	if err := w.Write(dir); err != nil {
		b.Fatal(err)
	}
	events, problems, err := files.Read(dir, loadmesh.Cluster, nil)
	if err != nil || len(problems) > 0 {
		b.Fatal(err, problems)
	}
	options := normal.Options{Domain: "cluster.local", Cluster: loadmesh.Cluster}
	records, _ := ingest.Records(events, options)
	return w, mirror.Empty().Apply(1, records, nil).New, options
}

// fleetOf returns the APIs of replicas with proxies of a mesh. As in a ring, a namespace has one replica, and the
// largest namespaces are split by workload. The first API asks the others.
func fleetOf(w *loadmesh.Mesh, snapshot *mirror.Snapshot, options normal.Options) []*api.API {
	resolver := resolve.New(nil)
	resolved := resolver.Step(mirror.Diff(mirror.Empty(), snapshot)).New
	planners := make([]*plan.Planner, fleetReplicas)
	for i := range planners {
		planners[i] = plan.New(plan.Settings{Snapshot: resolved, Cluster: loadmesh.Cluster})
	}
	for _, p := range w.Workloads(fleetProxies) {
		key := p.Namespace
		if slices.Contains(w.Namespaces()[:3], key) {
			key += "/" + p.Name
		}
		planners[ring.ShardOf(key)%fleetReplicas].Join(view.Node{
			ID:   "sidecar~" + p.IP + "~" + p.Pod + "." + p.Namespace + "~" + p.Namespace + "." + view.DefaultDomain,
			Name: p.Pod, Namespace: p.Namespace, Domain: view.DefaultDomain, Addresses: []string{p.IP}, Labels: p.Labels,
			Workload: p.Name, Service: p.Name + "." + p.Namespace, Account: p.ServiceAccount, Locality: loadmesh.Region + "/" + p.Zone,
			Verified: view.Identity{Namespace: p.Namespace, Account: p.ServiceAccount}, Caps: xds.StockCaps})
	}
	rules := &authz.Authorizer{Open: true, Tenant: func(string) string { return "" }}
	tenants := func(string) (string, bool) { return "", true }
	var all []*api.API
	for i, planner := range planners {
		planner.Problems() // a replica knows them, because it reports them
		pages := debug.New(debug.Pages{Rules: rules, Previewer: &debug.Previewer{
			Base: func(context.Context) (*plan.Base, error) {
				return &plan.Base{Planner: planner.Fork(), Resolver: resolver.Fork()}, nil
			},
			Proposals: validate.New(normal.New(options), nil, nil, tenants, judge.Record)}})
		all = append(all, api.New(api.Config{Self: strconv.Itoa(i), Rules: rules, Pages: pages}))
	}
	all[0].Replicas = others(all[1:])
	return all
}

// mostSeen returns the index of the service whose namespace most namespaces see.
func mostSeen(w *loadmesh.Mesh) (best int) {
	most := -1
	for k := range 200 {
		_, namespace := w.Host(k)
		seers := len(w.Seers(namespace))
		if w.Seers(namespace) == nil {
			return k
		}
		if seers > most {
			best, most = k, seers
		}
	}
	return best
}

// BenchmarkFleetPreview measures requests for /api/v1/plan to one of three replicas, with the mesh and the proxies of
// the scenario commands-20000: from the YAML to the merged JSON. All replicas share this process's processors, so
// cpu-ms/op is the sum of the replicas. Targets with three replicas beside them: 0.5 s for a VirtualService, 5 s for
// STRICT in the root namespace.
func BenchmarkFleetPreview(b *testing.B) {
	w, snapshot, options := worldB(b)
	fleet := fleetOf(w, snapshot, options)
	for name, body := range map[string][]byte{
		"virtualservice": bytes.Join(loadmesh.NewChurn(w, "").VirtualServices(mostSeen(w)).Contents(), []byte("---\n")),
		"strict": []byte("apiVersion: security.istio.io/v1\nkind: PeerAuthentication\n" +
			"metadata: {name: planned, namespace: istio-system}\nspec: {mtls: {mode: STRICT}}\n"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			runtime.GC()
			began := obs.ProcessorTime()
			for range b.N {
				r := httptest.NewRequest(http.MethodPost, "http://localhost"+fleetapi.Root+"plan", bytes.NewReader(body))
				answer := httptest.NewRecorder()
				fleet[0].Handler().ServeHTTP(answer, r)
				var a fleetapi.Answer[*preview.Report]
				if err := json.Unmarshal(answer.Body.Bytes(), &a); err != nil || len(a.Items) != 1 || len(a.Partial) > 0 ||
					a.Items[0].Proxies != fleetProxies || a.Items[0].Refused() {
					b.Fatalf("%d %.300s: %v", answer.Code, answer.Body, err)
				}
			}
			b.ReportMetric(float64((obs.ProcessorTime()-began).Milliseconds())/float64(b.N), "cpu-ms/op")
		})
	}
}
