package serve

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

const questionURL = "istio.io/debug"

// echo answers a query with its names, padded.
func echo(padding int) Answer {
	return Answer{TypeURL: questionURL, Resources: func(_ context.Context, c Client, names []string) ([]*discoveryv3.Resource, error) {
		if len(names) != 1 || names[0] == "secret" {
			return nil, status.Error(codes.PermissionDenied, "not for you")
		}
		body := append([]byte(names[0]), bytes.Repeat([]byte("x"), padding)...)
		return []*discoveryv3.Resource{{Name: names[0], Resource: &anypb.Any{TypeUrl: questionURL, Value: body}}}, nil
	}}
}

// A tool sends queries like istioctl: one request, no acknowledgement. It has no view, does not wait for admission, and
// is not listed. A query without the right ends its stream with the reason.
func TestToolsAreAnswered(t *testing.T) {
	p := newPlanner()
	p.refuse = status.Error(codes.ResourceExhausted, "no proxy is let in")
	s, addr := start(t, Config{Planner: p, Answers: []Answer{echo(0)}, Identifier: `{"Component":"istiod"}`})
	node := &corev3.Node{Id: "debug~0.0.0.0~istioctl~cluster.local"}
	sotw := dialSotW(t, addr)
	for _, page := range []string{"syncz", "syncz", "config_dump"} {
		if err := sotw.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: questionURL, ResourceNames: []string{page}}); err != nil {
			t.Fatal(err)
		}
		res, err := sotw.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Resources) != 1 || string(res.Resources[0].Value) != page || res.TypeUrl != questionURL || res.VersionInfo == "" ||
			res.ControlPlane.GetIdentifier() != `{"Component":"istiod"}` {
			t.Errorf("%v", res)
		}
		// An acknowledgement is not a query.
		if err := sotw.Send(&discoveryv3.DiscoveryRequest{TypeUrl: questionURL, ResourceNames: []string{page}, ResponseNonce: res.Nonce, VersionInfo: res.VersionInfo}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.Inspect()); n != 0 || len(p.joined) != 0 {
		t.Errorf("%d streams, %d joined", n, len(p.joined))
	}
	for _, asked := range []struct {
		names []string
		want  codes.Code
	}{
		{[]string{"secret"}, codes.PermissionDenied}, {[]string{strings.Repeat("n", maxQueryName+1)}, codes.InvalidArgument},
		// Sixteen names reach the answer's function, and seventeen do not.
		{strings.Fields(strings.Repeat("x ", 16)), codes.PermissionDenied}, {strings.Fields(strings.Repeat("x ", 17)), codes.InvalidArgument},
	} {
		c := dial(t, addr)
		c.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: questionURL, ResourceNamesSubscribe: asked.names})
		if got := c.end(); got.Code() != asked.want {
			t.Errorf("%.20s: %v", asked.names, got)
		}
	}
}

// A request is a query unless its nonce is one of its own stream, or it refuses an answer: istioctl puts the printed
// time into response_nonce of every request, also of the first.
func TestNonceOfAQuestion(t *testing.T) {
	_, addr := start(t, Config{Planner: newPlanner(), Answers: []Answer{echo(0)}})
	node := &corev3.Node{Id: "debug~0.0.0.0~istioctl~cluster.local"}
	ctl, other := dialSotW(t, addr), dialSotW(t, addr)
	incremental := dial(t, addr)
	// ask sends a request on all three streams; an acknowledgement refers to the newest answer of each.
	last := map[any]string{ctl: "", other: "", incremental: ""}
	ask := func(name string, nonce func(last string) string, failed bool) {
		t.Helper()
		var detail *rpcstatus.Status
		if failed {
			detail = failure("not understood")
		}
		for _, s := range []sotwClient{ctl, other} {
			if err := s.Send(&discoveryv3.DiscoveryRequest{Node: node, TypeUrl: questionURL, ResourceNames: []string{name}, ResponseNonce: nonce(last[s]), ErrorDetail: detail}); err != nil {
				t.Fatal(err)
			}
		}
		incremental.send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: questionURL, ResourceNamesSubscribe: []string{name}, ResponseNonce: nonce(last[incremental]), ErrorDetail: detail})
	}
	// answered fails if the next answer of a stream is not for this query. An extra answer means that an earlier request
	// was taken for a query.
	answered := func(name string) {
		t.Helper()
		for _, s := range []sotwClient{ctl, other} {
			res, err := s.Recv()
			if err != nil || len(res.Resources) != 1 || string(res.Resources[0].Value) != name {
				t.Fatalf("%s: %v %v", name, err, res)
			}
			last[s] = res.Nonce
		}
		res := incremental.next()
		if len(res.Resources) != 1 || string(res.Resources[0].Resource.Value) != name {
			t.Fatalf("%s, delta: %v", name, res)
		}
		last[incremental] = res.Nonce
	}
	printed := func(string) string { return time.Now().String() }
	own := func(last string) string { return last }
	ask("the first", printed, false)
	answered("the first")
	ask("an acknowledgement", own, false)
	ask("the same again", printed, false)
	answered("the same again")
	ask("a refusal", own, true)
	ask("a refusal of an answer that nobody knows", printed, true)
	ask("the same again", printed, false)
	answered("the same again")
	ask("an acknowledgement", own, false)
	ask("an acknowledgement, twice", own, false)
	foreign := last[other]
	for _, s := range []any{ctl, other, incremental} {
		if s != any(other) && last[s] == foreign {
			t.Fatalf("two streams have the nonce %q", foreign)
		}
	}
	last[ctl], last[other], last[incremental] = last[other], last[ctl], last[ctl]
	ask("by the nonce of another stream", own, false)
	answered("by the nonce of another stream")
	ask("none", func(string) string { return "" }, false)
	answered("none")
	for _, forged := range []string{"-1", "-", last[ctl][:len(last[ctl])-1] + "99", strings.Repeat("9", 30)} {
		ask(forged, func(string) string { return forged }, false)
		answered(forged)
	}
}

type sotwClient = grpc.BidiStreamingClient[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]

// A proxy's agent sends queries on Envoy's stream: an answer of any size is sent between the pushes, and a refused
// query has an empty answer and does not end the stream.
func TestProxiesAskBesides(t *testing.T) {
	const padding = 1 << 20
	stat := func(name string) *xds.Resource {
		return cluster("a", func(c *clusterv3.Cluster) { c.AltStatName = name })
	}
	p := newPlanner(stat("0"))
	_, addr := start(t, Config{Planner: p, Answers: []Answer{echo(padding)}})
	c := dial(t, addr)
	c.ask(xds.Cluster)
	c.ack(c.next())
	for i, name := range []string{"syncz", "secret", "syncz"} {
		c.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: questionURL, ResourceNamesSubscribe: []string{name}})
		answer := c.next()
		if answer.TypeUrl != questionURL || (len(answer.Resources) == 1) != (name != "secret") {
			t.Fatalf("%s: %d resources of %s", name, len(answer.Resources), answer.TypeUrl)
		}
		if name != "secret" && len(answer.Resources[0].Resource.Value) != len(name)+padding {
			t.Errorf("%d bytes", len(answer.Resources[0].Resource.Value))
		}
		p.put(stat(name + "-" + strings.Repeat("x", i)))
		push := c.next()
		if push.TypeUrl != xds.Cluster.URL() || len(push.Resources) != 1 {
			t.Fatalf("%d resources of %s after an answer", len(push.Resources), push.TypeUrl)
		}
		c.ack(push)
	}
}

// A client with many queries that does not read delays no other client: the only worker sends to others meanwhile.
func TestAnswersHoldUpNobody(t *testing.T) {
	p := newPlanner(cluster("a"))
	_, addr := start(t, Config{Planner: p, Workers: 1, Answers: []Answer{echo(8 << 20)}})
	stuck, other := dial(t, addr), dial(t, addr)
	for _, c := range []*client{stuck, other} {
		c.ask(xds.Cluster)
		c.ack(c.next())
	}
	stuck.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: questionURL, ResourceNamesSubscribe: []string{"config_dump"}})
	// The same query again: when it is answered, the turn of the first answer is over.
	other.send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: questionURL, ResourceNamesSubscribe: []string{"syncz"}})
	if answer := other.next(); answer.TypeUrl != questionURL {
		t.Fatal(answer.TypeUrl)
	}
	for _, edition := range []string{"b", "c", "d"} { // the blocked one has had its turn by the second
		p.put(cluster("a", func(c *clusterv3.Cluster) { c.AltStatName = edition }))
		push := other.next()
		if push.TypeUrl != xds.Cluster.URL() {
			t.Fatal(push.TypeUrl)
		}
		other.ack(push)
	}
}
