package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/xds"
)

// caller opens streams with one certificate, each on a connection of its own.
type caller struct {
	t       *testing.T
	address string
	conf    *tls.Config
}

func (c caller) open(n *corev3.Node) asking {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(credentials.NewTLS(c.conf)))
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	c.t.Cleanup(cancel)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	return asking{stream: stream, node: n, got: map[string][]byte{}}
}

// client returns a node of the service account shop/client.
func client(i int) *corev3.Node {
	n := node("shop", "client", fmt.Sprintf("10.1.8.%d", i))
	n.Id = strings.Replace(n.Id, "client-0", fmt.Sprintf("client-%d", i), 1)
	return n
}

// A stolen certificate of an account is used for more streams than a proxy needs, for hundreds of thousands of names,
// and for invented clusters, networks and metadata. Proxies of the same account keep their streams, receive changes,
// and can reconnect.
// Promise: security-limits.md#streams-connections-and-messages
func TestFaultHostileIdentity(t *testing.T) {
	parallel(t)
	data, dir := t.TempDir(), folder(t)
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, serves(t, d, 1))
	roots := x509.NewCertPool()
	eventually(t, patience, func() error {
		text, err := os.ReadFile(filepath.Join(data, "root-cert.pem"))
		roots.AppendCertsFromPEM(text)
		return err
	})
	enrol := func() caller { // with its own token
		conf := &tls.Config{RootCAs: roots, ServerName: "istiod.istio-system.svc"}
		pair, _, err := signed(bearer(t.Context(), token(t, data, "shop", "client")), t, d.secure, conf)
		if err != nil {
			t.Fatal(err)
		}
		conf.Certificates = []tls.Certificate{pair}
		return caller{t, d.secure, conf}
	}
	var good []asking
	for i := range 5 {
		g := enrol().open(client(i))
		for _, ask := range []struct {
			t    xds.Type
			name []string
		}{{xds.Cluster, nil}, {xds.Route, []string{"80"}}} {
			must(t, g.ask(ask.t, ask.name))
			if _, err := g.receive(ask.t, 1); err != nil {
				t.Fatal(err)
			}
		}
		good = append(good, g)
	}
	scopes := d.mustValue(t, `navarch_views{layer="scope"}`)
	hostile := enrol()
	tooManyStreams(t, d, hostile)
	tooManyNames(t, d, hostile)
	madeUp(t, d, hostile)
	if now := d.mustValue(t, `navarch_views{layer="scope"}`); now != scopes {
		t.Errorf("%v scopes were planned for names that are made up", now-scopes)
	}

	write(t, dir, "routes.yaml", routes(7))
	for i, g := range append(good, enrol().open(client(0))) {
		if i == len(good) {
			must(t, g.ask(xds.Route, []string{"80"}))
		}
		for !strings.Contains(string(g.got[webRoute]), string([]byte{8<<3 | 2, 2, 8, 7})) { // see serves
			if _, err := g.receive(xds.Route, 1); err != nil {
				t.Fatalf("proxy %d: %v", i, err)
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// tooManyStreams checks that of one proxy's streams only the newest 8 stay.
func tooManyStreams(t *testing.T, d *daemon, hostile caller) {
	t.Helper()
	var all []asking
	for range 30 {
		h := hostile.open(client(0)) // with the node of a valid proxy
		must(t, h.ask(xds.Cluster, nil))
		if _, err := h.receive(xds.Cluster, 1); err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	for i, h := range all[:22] {
		if err := drained(h); status.Code(err) != codes.Unavailable && status.Code(err) != codes.ResourceExhausted {
			t.Errorf("stream %d: %v", i, err)
		}
	}
	if n := d.mustValue(t, `navarch_identity_bounded_total{what="streams"}`); n != 22 {
		t.Errorf("%v streams ended", n)
	}
}

// drained reads a stream to its end.
func drained(a asking) error {
	for {
		if _, err := a.stream.Recv(); err != nil {
			return err
		}
	}
}

// tooManyNames subscribes to 400,000 names that do not exist.
func tooManyNames(t *testing.T, d *daemon, hostile caller) {
	t.Helper()
	for i := range 20 {
		h := hostile.open(client(100 + i))
		names := make([]string, 20_000)
		for j := range names {
			names[j] = fmt.Sprintf("outbound|80||made-up-%d-%d.shop.svc.cluster.local", i, j)
		}
		must(t, h.ask(xds.Endpoint, names))
		res, err := h.stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if n := len(res.Resources); n > 4096 {
			t.Errorf("stream %d is answered about %d names", i, n)
		}
	}
	if n := d.mustValue(t, `navarch_identity_bounded_total{what="names"}`); n < 20*15_000 {
		t.Errorf("%v names were left out", n)
	}
}

// madeUp checks that a node with an invented cluster is refused, and a node with too much data, whose field is named.
// Networks and domains have no influence.
func madeUp(t *testing.T, d *daemon, hostile caller) {
	t.Helper()
	west, large := client(0), client(0)
	west.Metadata.Fields["CLUSTER_ID"] = structpb.NewStringValue("west")
	for i := range 600 {
		large.Metadata.Fields[fmt.Sprintf("key-%d", i)] = structpb.NewStringValue("x")
	}
	for _, c := range []struct {
		node *corev3.Node
		code codes.Code
		says string
	}{{west, codes.Unavailable, `cluster "west" is not known here`}, {large, codes.InvalidArgument, "node.metadata: 6"}} {
		h := hostile.open(c.node)
		must(t, h.ask(xds.Cluster, nil))
		if err := drained(h); status.Code(err) != c.code || !strings.Contains(err.Error(), c.says) {
			t.Errorf("want %q, got %v", c.says, err)
		}
	}
	for i := range 10 {
		n := client(200 + i)
		n.Metadata.Fields["NETWORK"] = structpb.NewStringValue(fmt.Sprint("made-up-", i))
		n.Id = strings.Replace(n.Id, "cluster.local", fmt.Sprintf("made-up-%d", i), 1)
		h := hostile.open(n)
		must(t, h.ask(xds.Cluster, nil))
		if _, err := h.receive(xds.Cluster, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, what := range []string{"network", "domain"} {
		if n := d.mustValue(t, `navarch_unknown_scopes_total{what="`+what+`"}`); n != 10 {
			t.Errorf("%v proxies named a %s that is not known", n, what)
		}
	}
}
