package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// says fails the test unless the output of navarchctl has, for each element of `lines`, a line with all of its words.
func says(t *testing.T, out string, lines ...string) {
	t.Helper()
	for _, want := range lines {
		found := false
		for line := range strings.Lines(out) {
			all := true
			for word := range strings.FieldsSeq(want) {
				all = all && strings.Contains(line, word)
			}
			found = found || all
		}
		if !found {
			t.Errorf("no line with %q in\n%s", want, out)
		}
	}
}

// navarchctl's commands show the state of a live server and of a real Envoy that it serves.
func TestOperatorAsksLiveServer(t *testing.T) {
	parallel(t)
	dir, host := folder(t), loopback.NetFor(t)+".1"
	_, port, err := net.SplitHostPort(loopback.For(t))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "sidecar.yaml", fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: default, namespace: shop}
spec:
  egress: [{port: {number: %s, protocol: HTTP, name: http}, bind: %s, captureMode: NONE, hosts: ["./*"]}]
`, port, host))
	edge := strings.NewReplacer("web", "edge", "port: 80,", "port: "+port+",", "10.96.0.10", "10.96.0.77").Replace(services)
	edge, rest, _ := strings.Cut(edge, "---\n") // the service, not db, and the endpoints
	_, slice, _ := strings.Cut(rest, "---\n")
	write(t, dir, "edge.yaml", edge+"---\n"+slice+"---\n"+strings.ReplaceAll(routes(1)[1:], "web", "edge"))
	d := start(t, "--config-dir", dir, "--data-dir", t.TempDir())
	eventually(t, patience, d.ready)
	admin := envoy(t, d.grpc, host)
	server := []string{"--server", d.http}
	ask := func(args ...string) string { return ctl(t, append(args, server...)...) }
	eventually(t, patience, func() error {
		out, err := exec.Command(binary(t, "navarchctl"), "proxy-status", "--server", d.http, "client-0.shop").CombinedOutput()
		if err != nil || strings.Count(string(out), "SYNCED") != 4 {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})
	cluster := "outbound|" + port + "||edge.shop.svc.cluster.local"
	says(t, ask("proxy-status"), "NAME CLUSTER CDS LDS EDS RDS REVISION REFUSED WITHHELD", "client-0.shop Kubernetes SYNCED")
	says(t, ask("proxy-status", "-o", "yaml"), "proxy: client-0.shop", "cluster_id: Kubernetes")
	saved := filepath.Join(t.TempDir(), "dump.json")
	page, err := get(d.http, "/debug/config_dump?proxyID=client-0.shop")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(saved, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range [][]string{{"client-0.shop", "--server", d.http}, {"--envoy", admin}, {"-f", saved}} {
		showsEdge(t, from, host, port)
	}
	says(t, ask("version", "--short"), "client:", "server:")
	says(t, ask("explain", "--proxy", "client-0.shop", cluster), "cluster "+cluster+" version", "Service shop/edge service", "endpoints 10.1.0.1:8080")
	says(t, ask("explain", "--proxy", "client-0.shop", port), "route "+port, "VirtualService shop/edge spec.http")
	if out, err := exec.Command(binary(t, "navarchctl"), "proxy-status", "nobody.shop", "--server", d.http).CombinedOutput(); err == nil || !strings.Contains(string(out), `"nobody.shop" is not connected`) {
		t.Errorf("a proxy that is not there: %v %s", err, out)
	}
}

// showsEdge checks navarchctl's output about the service edge, whatever its source.
func showsEdge(t *testing.T, from []string, host, port string) {
	t.Helper()
	cluster := "outbound|" + port + "||edge.shop.svc.cluster.local"
	config := func(args ...string) string {
		return ctl(t, append(append([]string{"proxy-config"}, args...), from...)...)
	}
	says(t, config("cluster"), "SERVICE FQDN PORT SUBSET DIRECTION TYPE DESTINATION RULE", "edge.shop.svc.cluster.local "+port+" outbound EDS", "BlackHoleCluster STATIC")
	says(t, config("listeners", "--port", port), "ADDRESS PORT MATCH DESTINATION", host+" "+port+" Route:")
	says(t, config("r"), "NAME VIRTUAL HOST DOMAINS MATCH SERVICE", port+" edge.shop.svc.cluster.local:"+port+" more edge.shop")
	outlier := "-"
	if from[0] == "--envoy" {
		outlier = "OK"
	}
	says(t, config("ep"), "CLUSTER ENDPOINT HEALTH OUTLIER WEIGHT", cluster+" 10.1.0.1:8080 HEALTHY "+outlier, cluster+" 10.1.0.2:8080")
	says(t, config("all"), "SUBSET", "DIRECTION", "DOMAINS", "WEIGHT")
	var all map[string][]map[string]any
	if err := json.Unmarshal([]byte(config("all", "-o", "json")), &all); err != nil || len(all["clusters"]) == 0 || len(all["routes"]) != 1 {
		t.Errorf("proxy-config -o json: %v, %d clusters, %d routes", err, len(all["clusters"]), len(all["routes"]))
	}
	says(t, config("cluster", "-o", "yaml"), "name: "+cluster)
}

// envoy runs a real Envoy at an address of its own against an ADS server and returns its admin address.
func envoy(t *testing.T, ads, ip string) (admin string) {
	t.Helper()
	n := node("shop", "client", ip)
	n.Metadata.Fields["INTERCEPTION_MODE"] = structpb.NewStringValue("NONE")
	n.Cluster = "client.shop" // Envoy requires one
	raw, err := protojson.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	b := envoytest.ADS("DELTA_GRPC", ads)
	b["node"] = json.RawMessage(raw)
	return envoytest.Start(t, b).Admin
}
