package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"navarch.io/navarch/cmd/navarchctl/suggest"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// runSuggest runs suggest sidecar, and returns its output and error.
func runSuggest(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs(append([]string{"suggest", "sidecar"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// The Sidecar of the example imports the used hosts, the plan names the others as gone, and applied, it leaves nothing
// more to suggest.
func TestSuggestSidecar(t *testing.T) {
	conf, usage := exampleOfCompare+"config", exampleOfCompare+"usage.json"
	text, err := runSuggest(t, "--config-dir", conf, "--for", "24h", usage)
	if err != nil || !strings.Contains(text, "1 Sidecar for 1 namespace") || !strings.Contains(text, "books/catalog.books.svc.cluster.local") ||
		!strings.Contains(text, "NP201 api.bank and 1 more: the host vanishes") {
		t.Errorf("%v: %s", err, text)
	}
	objects, err := runSuggest(t, "--config-dir", conf, "-o", "yaml", usage)
	if err != nil {
		t.Fatal(err)
	}
	var sidecar struct {
		Metadata struct{ Namespace string }
		Spec     struct{ Egress []struct{ Hosts []string } }
	}
	err = yaml.Unmarshal([]byte(objects), &sidecar)
	if err != nil || sidecar.Metadata.Namespace != "front" || len(sidecar.Spec.Egress[0].Hosts) != 2 {
		t.Errorf("%v: %s", err, objects)
	}
	applied := t.TempDir()
	if err := os.CopyFS(applied, os.DirFS(conf)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(applied+"/sidecar.yaml", []byte(objects), 0o600); err != nil {
		t.Fatal(err)
	}
	raw, err := runSuggest(t, "--config-dir", applied, "-o", "json", usage)
	var r suggest.Report
	if err != nil || json.Unmarshal([]byte(raw), &r) != nil || len(r.Suggestions) != 1 || !strings.Contains(r.Suggestions[0].Skipped, "Sidecar front/default") {
		t.Errorf("%v: %s", err, raw)
	}
	raw, err = runSuggest(t, "--config-dir", conf, "-o", "json", usage)
	if err != nil || json.Unmarshal([]byte(raw), &r) != nil || len(r.Suggestions) != 1 {
		t.Fatalf("%v: %s", err, raw)
	}
	if e := r.Suggestions[0]; e.ClustersThen >= e.ClustersNow || e.BytesThen >= e.BytesNow || e.MemorySaved <= 0 || r.Plan == nil {
		t.Errorf("%+v", e)
	}
}

// Answers that cannot be read are named, and the exit code is that of a part.
func TestSuggestUnread(t *testing.T) {
	broken := t.TempDir() + "/x.json"
	if err := os.WriteFile(broken, []byte(`[]`), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir() + "/y.json" // its namespace is not a name that an object may have
	const info = `{"node": {"id": "sidecar~10.0.0.1~a.X~x"}, "uptime_current_epoch": "90s"} {}`
	if err := os.WriteFile(foreign, []byte(info), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{broken, foreign} {
		_, err := runSuggest(t, "--config-dir", exampleOfCompare+"config", file)
		if exit, is := err.(interface{ ExitCode() int }); !is || exit.ExitCode() != exitPartial {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := runSuggest(t, "--config-dir", exampleOfCompare+"config"); err == nil || !strings.Contains(err.Error(), "which proxies?") {
		t.Errorf("%v", err)
	}
}

// An Envoy that connected to one of its clusters gets a Sidecar for that cluster's host.
func TestSuggestFromEnvoy(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("hello"))
			_ = conn.Close()
		}
	}()
	type object = map[string]any
	_, to, err := net.SplitHostPort(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	address := func(port any) object {
		return object{"socket_address": object{"address": "127.0.0.1", "port_value": port}}
	}
	cluster := func(host string) object {
		name := "outbound|80||" + host
		return object{"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": object{"cluster_name": name,
			"endpoints": []any{object{"lb_endpoints": []any{object{"endpoint": object{"address": address(json.Number(to))}}}}}}}
	}
	port := loopback.PortFor(t)
	used := "catalog.books.svc.cluster.local"
	proxy := object{"name": "envoy.filters.network.tcp_proxy", "typed_config": object{
		"@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "x", "cluster": "outbound|80||" + used}}
	envoy := envoytest.StartVersion(t, envoytest.Binary(t), envoytest.Bootstrap{
		"node": object{"id": "sidecar~10.2.0.2~shop-v1.front~front.svc.cluster.local", "cluster": "shop", "metadata": object{"NAMESPACE": "front"}},
		"static_resources": object{"clusters": []any{cluster(used), cluster("search.books.svc.cluster.local")},
			"listeners": []any{object{"name": "x", "address": address(port), "filter_chains": []any{object{"filters": []any{proxy}}}}}}})
	envoy.Live()
	conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		t.Fatal(err)
	}
	if said, err := io.ReadAll(conn); string(said) != "hello" {
		t.Fatalf("%v: %s", err, said)
	}
	objects, err := runSuggest(t, "--config-dir", exampleOfCompare+"config", "--envoy", envoy.Admin, "-o", "yaml")
	if err != nil || !strings.Contains(objects, "- books/"+used) || strings.Contains(objects, "search.books") {
		t.Errorf("%v: %s", err, objects)
	}
}
