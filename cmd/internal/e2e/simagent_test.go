package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
)

const ownerURL = "navarch.io/owner"

// simAgent is a simplified proxy with its agent for tests of shards: it holds clusters, keeps its minimum revision,
// reconnects by itself, and moves to its owner if it follows. It checks the resources that it receives.
type simAgent struct {
	namespace, workload string
	pod                 string // of the workload; streams are bounded for each
	follows             bool
	creds               credentials.TransportCredentials
	seeds               func() []string

	mu       sync.Mutex
	at       string // address that it has an answer of; empty: none
	self     bool   // that address is the owner's
	held     map[string]string
	revision int64
	store    string
	received int // resources
	ends     []time.Time
	faults   []string
}

// crowd runs agents until the test ends, in namespaces by turns.
type crowd struct {
	t      *testing.T
	secure bool // agents have certificates of fleetCA, and speak TLS
	agents []*simAgent
	stops  []context.CancelFunc
	done   sync.WaitGroup
}

func gather(t *testing.T) *crowd {
	c := &crowd{t: t}
	t.Cleanup(func() { c.shrink(0) })
	return c
}

// grow adds agents up to a number.
func (c *crowd) grow(n int, follows bool, seeds func() []string) {
	for i := len(c.agents); i < n; i++ {
		a := &simAgent{namespace: fmt.Sprintf("team-%d", i%40), workload: "app", pod: fmt.Sprintf("app-%d", i), follows: follows, seeds: seeds, held: map[string]string{}, creds: insecure.NewCredentials()}
		if c.secure {
			conf, err := fleetCA.proxies(c.t)(sim.Identity{Namespace: a.namespace, Name: a.pod, ServiceAccount: a.workload})
			if err != nil {
				c.t.Fatal(err)
			}
			a.creds = credentials.NewTLS(conf)
		}
		ctx, cancel := context.WithCancel(context.Background())
		c.agents, c.stops = append(c.agents, a), append(c.stops, cancel)
		c.done.Go(func() { a.run(ctx) })
	}
}

// shrink ends the newest agents down to a number.
func (c *crowd) shrink(n int) {
	for i := n; i < len(c.stops); i++ {
		c.stops[i]()
	}
	c.agents, c.stops = c.agents[:min(n, len(c.agents))], c.stops[:min(n, len(c.stops))]
	if n == 0 {
		c.done.Wait()
	}
}

// home returns an error while an agent is not at the replica that owns it, or has no resources yet.
func (c *crowd) home() error {
	away := 0
	for _, a := range c.agents {
		a.mu.Lock()
		if !a.self || len(a.held) == 0 {
			away++
		}
		a.mu.Unlock()
	}
	if away > 0 {
		return fmt.Errorf("%d of %d are not at their owner", away, len(c.agents))
	}
	return nil
}

// connected returns an error while an agent has no answer, or has one from an address that should give no answer.
func (c *crowd) connected(not string) error {
	out := 0
	for _, a := range c.agents {
		a.mu.Lock()
		if a.at == "" || a.at == not {
			out++
		}
		a.mu.Unlock()
	}
	if out > 0 {
		return fmt.Errorf("%d of %d are nowhere, or at %q", out, len(c.agents), not)
	}
	return nil
}

// sum returns the number of received resources, and reports violations.
func (c *crowd) sum() (received int) {
	c.t.Helper()
	for _, a := range c.agents {
		a.mu.Lock()
		received += a.received
		for _, fault := range a.faults {
			c.t.Errorf("%s: %s", a.namespace, fault)
		}
		a.faults = nil
		a.mu.Unlock()
	}
	return received
}

// at counts agents by address.
func (c *crowd) at() map[string]int {
	where := map[string]int{}
	for _, a := range c.agents {
		a.mu.Lock()
		where[a.at]++
		a.mu.Unlock()
	}
	return where
}

func (a *simAgent) run(ctx context.Context) {
	target := ""
	for ctx.Err() == nil {
		if target == "" {
			seeds := a.seeds()
			target = seeds[rand.IntN(len(seeds))]
		}
		next := a.session(ctx, target)
		a.mu.Lock()
		a.at, a.self, a.ends = "", false, append(a.ends, time.Now())
		a.mu.Unlock()
		if target = next; next == "" {
			select {
			case <-time.After(50*time.Millisecond + rand.N(100*time.Millisecond)):
			case <-ctx.Done():
			}
		}
	}
}

func (a *simAgent) node() *corev3.Node {
	n := node(a.namespace, a.workload, "10.1.9.9")
	n.Id = fmt.Sprintf("sidecar~10.1.9.9~%s.%s~%s.svc.cluster.local", a.pod, a.namespace, a.namespace)
	n.Metadata.Fields["NAME"] = structpb.NewStringValue(a.pod)
	return n
}

// session runs one stream to a target. It returns the target to connect to next; empty: any.
func (a *simAgent) session(ctx context.Context, target string) (next string) {
	conn, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(a.creds))
	if err != nil {
		return ""
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a.mu.Lock()
	first := &discoveryv3.DeltaDiscoveryRequest{Node: a.node(), TypeUrl: xds.Cluster.URL(), InitialResourceVersions: maps.Clone(a.held)}
	if a.revision > 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, "navarch-revision", strconv.FormatInt(a.revision, 10), "navarch-store", a.store)
	}
	a.mu.Unlock()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return ""
	}
	ask := []*discoveryv3.DeltaDiscoveryRequest{first, {TypeUrl: xds.Listener.URL()}}
	if a.follows {
		ask[1] = &discoveryv3.DeltaDiscoveryRequest{TypeUrl: ownerURL, ResourceNamesSubscribe: []string{"owner"}}
	}
	for _, r := range ask {
		if stream.Send(r) != nil {
			break // Recv says why
		}
	}
	for {
		res, err := stream.Recv()
		if err != nil {
			return ""
		}
		header, _ := stream.Header()
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: res.TypeUrl, ResponseNonce: res.Nonce}); err != nil {
			continue
		}
		if next := a.take(target, header, res); next != "" {
			return next
		}
	}
}

func (a *simAgent) take(target string, header metadata.MD, res *discoveryv3.DeltaDiscoveryResponse) (next string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.at = target
	revision, err := strconv.ParseInt(res.SystemVersionInfo, 10, 64)
	if err != nil || revision < a.revision {
		a.faults = append(a.faults, fmt.Sprintf("taken back to revision %q from %d by %s", res.SystemVersionInfo, a.revision, target))
	}
	a.revision = max(revision, a.revision)
	if s := header.Get("navarch-store"); len(s) == 1 {
		a.store = s[0]
	}
	switch res.TypeUrl {
	case xds.Cluster.URL():
		a.received += len(res.Resources)
		for _, r := range res.Resources {
			a.held[r.Name] = r.Version
		}
		for _, name := range res.RemovedResources {
			delete(a.held, name)
		}
		if len(a.held) == 0 {
			a.faults = append(a.faults, "an empty answer from "+target)
		}
	case ownerURL:
		body := &structpb.Struct{}
		if len(res.Resources) != 1 || res.Resources[0].Resource.UnmarshalTo(body) != nil {
			a.faults = append(a.faults, fmt.Sprintf("owner: %v", res))
			return ""
		}
		a.self = body.Fields["self"].GetBoolValue()
		if to := body.Fields["address"].GetStringValue(); !a.self && to != "" && to != target {
			return to
		}
	}
	return ""
}

// ringPage is /debug/fleet?owners=1.
type ringPage struct {
	Ring    uint64
	Members []struct {
		Name, Address string
		Shards        int
	}
	Owners []int
}

func (d *daemon) ring() (p ringPage, err error) {
	page, err := get(d.http, "/debug/fleet?owners=1")
	if err == nil {
		err = json.Unmarshal([]byte(page), &p)
	}
	return p, err
}

// owners returns the address of each shard's owner.
func (p ringPage) owners() []string {
	all := make([]string, len(p.Owners))
	for s, i := range p.Owners {
		if i >= 0 {
			all[s] = p.Members[i].Address
		}
	}
	return all
}

// agree returns an error unless replicas use one ring of exactly these replicas; it is on the first one's page.
func agree(replicas ...*daemon) (ringPage, error) {
	var pages []ringPage
	for _, d := range replicas {
		p, err := d.ring()
		if err != nil {
			return p, err
		}
		pages = append(pages, p)
		if p.Ring != pages[0].Ring || !slices.Equal(p.owners(), pages[0].owners()) {
			return p, fmt.Errorf("rings %d and %d", pages[0].Ring, p.Ring)
		}
		if !slices.ContainsFunc(p.owners(), func(address string) bool { return address == d.grpc || address == d.secure }) {
			return p, fmt.Errorf("%s owns nothing", d.grpc)
		}
	}
	if len(pages[0].Members) != len(replicas) {
		return pages[0], fmt.Errorf("%d replicas in the ring, want %d", len(pages[0].Members), len(replicas))
	}
	return pages[0], nil
}

// settled waits for that.
func settled(t *testing.T, replicas ...*daemon) (p ringPage) {
	t.Helper()
	eventually(t, patience, func() (err error) { p, err = agree(replicas...); return err })
	return p
}

var errStillThere = errors.New("the process is still there")
