package serve

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// clerk is a planner whose views add Secrets when they are subscribed to. A name that is missing in made has no Secret.
type clerk struct {
	*fakePlanner
	t     *testing.T
	made  map[string]*xds.Resource // equal on all replicas
	mu    sync.Mutex
	calls []string
}

type clerkProxy struct {
	Proxy
	c *clerk
}

func (c *clerk) Join(ctx context.Context, client Client, moved func(fanout.Lane)) (Proxy, error) {
	v, err := c.fakePlanner.Join(ctx, client, moved)
	return clerkProxy{v, c}, err
}

func (v clerkProxy) SubscribeSecrets(_ context.Context, add, drop []string) {
	v.c.mu.Lock()
	defer v.c.mu.Unlock()
	slices.Sort(add)
	slices.Sort(drop)
	v.c.calls = append(v.c.calls, "+"+strings.Join(add, ",")+" -"+strings.Join(drop, ","))
	var puts []*xds.Resource
	for _, name := range add {
		if r := v.c.made[name]; r != nil {
			puts = append(puts, r)
		}
	}
	v.c.fakePlanner.mu.Lock() // without notifying clients: the subscriber reads the set itself
	defer v.c.fakePlanner.mu.Unlock()
	next := *v.c.set
	next.Types[xds.Secret][manifest.Scope] = next.Types[xds.Secret][manifest.Scope].With(puts, drop)
	v.c.set = &next
}

func (c *clerk) expect(want ...string) {
	c.t.Helper()
	eventually(c.t, "the view is told "+strings.Join(want, "; "), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return slices.Equal(c.calls, want)
	})
}

// A view is told the subscribed Secrets before the client is answered, so that the first response contains them and a
// client that reconnects with current Secrets receives nothing. It is also told when the client unsubscribes.
func TestSecretsAreAskedFor(t *testing.T) {
	made := map[string]*xds.Resource{"one": keyPair(t, "one"), "two": keyPair(t, "two")}
	c := &clerk{fakePlanner: newPlanner(cluster("a")), t: t, made: made}
	_, addr := start(t, Config{Planner: c})
	cl := dial(t, addr)
	cl.ask(xds.Secret, "one", "none")
	r := cl.next()
	if len(r.Resources) != 1 || r.Resources[0].Name != "one" || !slices.Equal(r.RemovedResources, []string{"none"}) {
		t.Fatalf("%d resources, removed %q", len(r.Resources), r.RemovedResources)
	}
	cl.ack(r)
	c.expect("+none,one -")
	cl.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Secret.URL(), ResourceNamesSubscribe: []string{"two", "one"}, ResourceNamesUnsubscribe: []string{"none", "never"}})
	if r = cl.next(); len(r.Resources) != 2 || len(r.RemovedResources) != 0 {
		t.Fatalf("%d resources, removed %q", len(r.Resources), r.RemovedResources)
	}
	cl.ack(r)
	c.expect("+none,one -", "+two -", "+ -none")
	versions := map[string]string{}
	for _, one := range r.Resources {
		versions[one.Name] = one.Version
	}

	// This server is another replica.
	_, addr = start(t, Config{Planner: &clerk{fakePlanner: newPlanner(cluster("a")), t: t, made: made}})
	back := dial(t, addr)
	back.send(&discoveryv3.DeltaDiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: xds.Secret.URL(), ResourceNamesSubscribe: []string{"one", "two"}, InitialResourceVersions: versions})
	// Responses with Secrets would arrive before or between these.
	for _, wild := range []xds.Type{xds.Cluster, xds.Listener} {
		back.ask(wild)
		r := back.next()
		if r.TypeUrl != wild.URL() {
			t.Fatalf("what it holds is sent again: %v of %s", r.Resources[0].Name, r.TypeUrl)
		}
		back.ack(r)
	}
}

// On a state-of-the-world stream each request lists all subscribed names.
func TestSecretsAreAskedForOverSotW(t *testing.T) {
	made := map[string]*xds.Resource{"one": keyPair(t, "one"), "two": keyPair(t, "two"), "three": keyPair(t, "three")}
	c := &clerk{fakePlanner: newPlanner(), t: t, made: made}
	_, addr := start(t, Config{Planner: c})
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	nonce := ""
	for _, names := range [][]string{{"one"}, {"one", "two"}, {"two"}, {"three", "two"}} {
		if err := s.Send(&discoveryv3.DiscoveryRequest{Node: &corev3.Node{Id: "test"}, TypeUrl: xds.Secret.URL(), ResourceNames: names, ResponseNonce: nonce}); err != nil {
			t.Fatal(err)
		}
		if len(names) == 1 && nonce != "" {
			continue // nothing new: no response
		}
		r, err := s.Recv()
		if err != nil || len(r.Resources) != 1 {
			t.Fatalf("%v: %v %v", names, r, err)
		}
		nonce = r.Nonce
	}
	c.expect("+one -", "+two -", "+ -one", "+three -")
}
