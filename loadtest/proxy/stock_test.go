package proxy

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
)

var update = flag.Bool("update", false, "write stock.node.textproto anew, as the Envoy of .tools sends it")

// envoyBinary is the real proxy whose node is compared.
func envoyBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("NAVARCH_ENVOY"); path != "" {
		return path
	}
	path, err := filepath.Abs("../../.tools/bin/envoy")
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("no Envoy: run `make tools`, or set NAVARCH_ENVOY (%v)", err)
	}
	return path
}

// TestStockNodeIsEnvoys compares what a stock proxy of the fleet sends as its node with what a real Envoy sends.
func TestStockNodeIsEnvoys(t *testing.T) {
	s := serve(t, nil)
	host, port, err := net.SplitHostPort(s.addr)
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`{"node":{"id":"n","cluster":"c"},
"dynamic_resources":{"ads_config":{"api_type":"DELTA_GRPC","transport_api_version":"V3","set_node_on_first_message_only":true,
 "grpc_services":[{"envoy_grpc":{"cluster_name":"xds"}}]},
 "cds_config":{"ads":{},"resource_api_version":"V3"},"lds_config":{"ads":{},"resource_api_version":"V3"}},
"static_resources":{"clusters":[{"name":"xds","connect_timeout":"1s","type":"STATIC","load_assignment":{"cluster_name":"xds",
 "endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":%q,"port_value":%s}}}}]}]},
 "typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{
  "@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
  "explicit_http_config":{"http2_protocol_options":{}}}}}]}}`, host, port)
	file := filepath.Join(t.TempDir(), "envoy.json")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), envoyBinary(t), "-c", file, "--disable-hot-restart", "--concurrency", "1", "-l", "error")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }) // killed: its status says so
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

// TestNodes says what the two kinds of node carry.
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
