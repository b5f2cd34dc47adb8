package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/loadtest/attack"
	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/push/xds"
)

// Limits, in bytes, of the growth of the live heap: during one kind of attack; for the subscriptions that a replica
// stores for all proxies (push/delta: 32 MiB by its count, 41 MB of heap); and after the attacks.
const roomForAttack, roomForNames, roomAfterwards = 64 << 20, 48 << 20, 16 << 20

// heapWatch compares the live heap of a process with its initial size. It measures at full size, on an idle machine.
type heapWatch struct {
	d      *daemon
	before int
}

func watchHeap(t testing.TB, d *daemon) *heapWatch {
	t.Helper()
	w := &heapWatch{d: d}
	if faultScale > 1 {
		w.before = d.live(t)
	}
	return w
}

// grown fails where the heap has grown by more than this.
func (w *heapWatch) grown(t testing.TB, most int, when string) {
	t.Helper()
	if faultScale == 1 {
		return
	}
	now := w.d.live(t)
	t.Logf("size: %s: the live heap grew by %.1f MB", when, float64(now-w.before)/1e6)
	if now > w.before+most {
		t.Errorf("%s: the live heap grew from %d to %d bytes, at most %d more are allowed", when, w.before, now, most)
	}
}

// Fault 18: requests that no Envoy sends, of each kind, on separate streams over mTLS, with excessive headers, streams,
// names and metadata. At most that stream ends, and no other. Nothing panics. The process uses little memory for it
// meanwhile, and none afterwards.
// Promise: security-limits.md#streams-connections-and-messages
func TestFaultMalformedRequests(t *testing.T) {
	parallel(t)
	n, proxies, liars := sized(t, 30, 300, "services"), sized(t, 30, 2000, "proxies"), sized(t, 3, 100, "that send each malformed request")
	d, dir := alone(t, n)
	f := fleet(t, proxies, sim.Config{}, d)
	reaches(t, f, 2, func() { write(t, dir, "town.yaml", town(0, n, 2)) })
	heap := watchHeap(t, d)
	for kind := sim.NotProtobuf; kind <= sim.SecondCDS; kind++ {
		pods := citizens(liars)
		for i := range pods { // of each kind others: how often one Pod may join is bounded, and those of the kind before have used that up
			pods[i].Name = fmt.Sprintf("liar-%d-%d", kind, i)
		}
		bad := dialling(t, pods, sim.Config{Behaviour: func(int, sim.Identity) sim.Behaviour {
			return sim.Behaviour{Malformed: kind, DuplicateSubscriptions: true}
		}}, d)
		eventually(t, patience, func() error {
			if came := bad.Stats().Join.Count(); came < uint64(liars) {
				return fmt.Errorf("malformed request %d: %d of %d proxies were served once, and have sent it", kind, came, liars)
			}
			return nil
		})
		heap.grown(t, roomForAttack, fmt.Sprintf("while proxies send malformed request %d", kind))
		for found, v := range bad.Stats().Found {
			t.Errorf("malformed request %d: %d times %s: %v", kind, v.Count, found, v.Examples)
		}
		bad.Close()
	}
	hugeNodes(t, d)
	wrongNonces(t, d)
	for _, name := range []string{"headers", "nodes", "metadata"} {
		attacked(t, d, name, func() { heap.grown(t, roomForAttack, "during the attack "+name) })
	}
	heap.grown(t, roomAfterwards, "after these")
	attacked(t, d, "names", func() { heap.grown(t, roomForAttack+roomForNames, "during the attack names") })
	reaches(t, f, 3, func() { write(t, dir, "town.yaml", town(0, n, 3)) })
	heap.grown(t, roomAfterwards+roomForNames, "after all")
	if log := d.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "goroutine ") {
		t.Error("something panicked")
	}
	unharmed(t, f)
	undisturbed(t, f)
}

// liarIdentity returns the identity of a client that sends malformed requests with a certificate of the proxies'
// account.
func liarIdentity() sim.Identity {
	return sim.Identity{Namespace: "town", Name: "liar", ServiceAccount: "client"}
}

// attacked runs one of the attacks of loadtest/attack until tries of it were answered, refused or cut off, and
// continues while meanwhile runs.
func attacked(t *testing.T, d *daemon, name string, meanwhile func()) {
	t.Helper()
	fleetCA.authority(t)
	leaf, err := fleetCA.leaf(liarIdentity())
	if err != nil {
		t.Fatal(err)
	}
	connections, names, hold := attack.MinConnections, 5_000, 200*time.Millisecond
	if faultScale > 1 {
		connections, names, hold = attack.MaxConnections, 200_000, 5*time.Second
	}
	ctx, cancel := context.WithCancel(t.Context())
	var tally attack.Tally
	done := make(chan error, 1)
	go func() {
		done <- attack.Run(ctx, attack.Config{Addr: d.secure, Certificate: &leaf, Token: "none", Identity: "town/client", Victim: "town/other/other-0",
			Only: []string{name}, Connections: connections, Names: names, Hold: hold}, &tally)
	}()
	eventually(t, patience, func() error {
		for _, c := range tally.Counts() {
			over := uint64(0)
			for _, n := range c.Came {
				over += n
			}
			if over >= 3 {
				return nil
			}
		}
		return fmt.Errorf("attack %s: too few tries are over: %v", name, tally.Counts())
	})
	meanwhile()
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, c := range tally.Counts() {
		t.Logf("attack %s: %v", name, c)
	}
}

// hugeNodes sends nodes of more than a message may have, and of less.
func hugeNodes(t *testing.T, d *daemon) {
	t.Helper()
	of := func(bytes int) []byte {
		n := node("town", "client", "10.1.9.9")
		n.Metadata.Fields["JUNK"] = structpb.NewStringValue(strings.Repeat("x", bytes))
		return request(t, n, xds.Cluster.URL())
	}
	conf, err := fleetCA.proxies(t)(liarIdentity())
	if err != nil {
		t.Fatal(err)
	}
	huge, large := of(5<<20), of(3<<20) // the limit is 4 MiB
	for range 10 {
		if _, err := sayAs(t, credentials.NewTLS(conf), d.secure, deltaMethod, huge); grpcstatus.Code(err) != codes.ResourceExhausted {
			t.Errorf("a node of 5 MB: %v", err)
		}
		if _, err := sayAs(t, credentials.NewTLS(conf), d.secure, deltaMethod, large); err != nil {
			t.Errorf("a node of 3 MB: %v", err)
		}
	}
}

// wrongNonces acknowledges one response twice, refuses it after that, acknowledges an invented one, and is then served
// normally.
func wrongNonces(t *testing.T, d *daemon) {
	t.Helper()
	conf, err := fleetCA.proxies(t)(liarIdentity())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("passthrough:///"+d.secure, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	answer := func(want xds.Type) *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		r, err := stream.Recv()
		if err != nil || r.TypeUrl != want.URL() {
			t.Fatalf("got %.200v, %v; want %v", r, err, want)
		}
		return r
	}
	ask(&discoveryv3.DeltaDiscoveryRequest{Node: node("town", "client", "10.1.9.7"), TypeUrl: xds.Cluster.URL()})
	first := answer(xds.Cluster)
	refusal := &status.Status{Code: 13, Message: "Error adding/updating cluster(s) " + first.Resources[0].Name + ": too late"}
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{ResponseNonce: first.Nonce}, {ResponseNonce: first.Nonce}, {ResponseNonce: first.Nonce, ErrorDetail: refusal}, {ResponseNonce: "never"},
		{ResponseNonce: strings.Repeat("n", 1<<20)}, {ResponseNonce: "", ErrorDetail: refusal},
	} {
		r.TypeUrl = xds.Cluster.URL()
		ask(r)
	}
	ask(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: xds.Listener.URL()})
	answer(xds.Listener)
}
