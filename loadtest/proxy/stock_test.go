package proxy

import (
	"flag"
	"os"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/envoytest"
)

var update = flag.Bool("update", false, "write stock.node.textproto again, as the Envoy of .tools sends it")

// TestStockNodeIsEnvoys compares what a stock proxy of the fleet sends as its node with what a real Envoy sends.
func TestStockNodeIsEnvoys(t *testing.T) {
	s := serve(t, nil)
	envoytest.Start(t, envoytest.ADS("DELTA_GRPC", s.addr))
	var sent *corev3.Node
	eventually(t, "Envoy has sent its node", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.requests) > 0 {
			sent = s.requests[0].Node
		}
		return sent != nil
	})
	tail := &corev3.Node{UserAgentName: sent.UserAgentName, UserAgentVersionType: sent.UserAgentVersionType,
		Extensions: sent.Extensions}
	if *update {
		if err := os.WriteFile("stock.node.textproto", textOf(t, tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	raw, err := stockTail()
	if err != nil {
		t.Fatal(err)
	}
	ours := &corev3.Node{}
	if err := proto.Unmarshal(raw, ours); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(ours, tail) {
		t.Errorf("stock.node.textproto is not what Envoy sends: %d extensions, Envoy has %d; run with -update",
			len(ours.Extensions), len(tail.Extensions))
	}
}

// textOf writes a node with a line for each extension. prototext varies its spaces on purpose; those are made one.
func textOf(t *testing.T, n *corev3.Node) []byte {
	t.Helper()
	var out strings.Builder
	line := func(part *corev3.Node) {
		b, err := prototext.Marshal(part)
		if err != nil {
			t.Fatal(err)
		}
		out.WriteString(strings.ReplaceAll(string(b), "  ", " ") + "\n")
	}
	line(&corev3.Node{UserAgentName: n.UserAgentName, UserAgentVersionType: n.UserAgentVersionType})
	for _, e := range n.Extensions {
		line(&corev3.Node{Extensions: []*corev3.Extension{e}})
	}
	return []byte(out.String())
}

// TestNodes checks the contents of the two kinds of node.
func TestNodes(t *testing.T) {
	id := Identity{Namespace: "shop", Name: "web-1", Workload: "web", ServiceAccount: "w", IP: "10.0.0.1", Zone: "z1",
		Labels: map[string]string{"app": "web"}, Metadata: map[string]string{"MESH_ID": "m"}}
	for kind, atLeast := range map[NodeKind]int{Short: 100, Stock: 60000} {
		b, err := encodeNode(id, &Config{Node: kind, IstioVersion: "1.31.0"})
		if err != nil {
			t.Fatal(err)
		}
		n := &corev3.Node{}
		if err := proto.Unmarshal(b, n); err != nil {
			t.Fatal(err)
		}
		if len(b) < atLeast || len(b) > atLeast+4000 {
			t.Errorf("kind %d: %d bytes", kind, len(b))
		}
		want := "sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local"
		meta := n.Metadata.AsMap()
		if n.Id != want || n.Cluster != "web.shop" || n.Locality.Zone != "z1" || meta["MESH_ID"] != "m" ||
			meta["WORKLOAD_NAME"] != "web" ||
			meta["CLUSTER_ID"] != "Kubernetes" || meta["ISTIO_VERSION"] != "1.31.0" || meta["LABELS"].(map[string]any)["app"] != "web" {
			t.Errorf("%v", n)
		}
	}
}
