package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"navarch.io/navarch/cmd/navarchctl/compare"
	"navarch.io/navarch/deploy/fidelity"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

const exampleOfCompare = "../../deploy/fidelity/example/"

// reference has the resources that istiod sent a proxy.
type reference struct {
	Node json.RawMessage                       `json:"node"`
	Want map[string]map[string]json.RawMessage `json:"want"` // by type and name
}

// dumpOf returns a reference as Envoy's config_dump.
func dumpOf(r reference) any {
	type object = map[string]any
	list := func(kind, field string) (all []object) {
		for name, raw := range r.Want[kind] {
			e := object{field: raw}
			if kind == "listeners" {
				e = object{"name": name, "active_state": e}
			}
			all = append(all, e)
		}
		return all
	}
	const admin = "type.googleapis.com/envoy.admin.v3."
	type section struct {
		Type string `json:"@type"`
		// The lists of the sections, which have different names.
		Bootstrap any `json:"bootstrap,omitempty"`
		Clusters  any `json:"dynamic_active_clusters,omitempty"`
		Endpoints any `json:"dynamic_endpoint_configs,omitempty"`
		Listeners any `json:"dynamic_listeners,omitempty"`
		Routes    any `json:"dynamic_route_configs,omitempty"`
	}
	return object{"configs": []section{{Type: admin + "BootstrapConfigDump", Bootstrap: object{"node": r.Node}},
		{Type: admin + "ClustersConfigDump", Clusters: list("clusters", "cluster")},
		{Type: admin + "EndpointsConfigDump", Endpoints: list("endpoints", "endpoint_config")},
		{Type: admin + "ListenersConfigDump", Listeners: list("listeners", "listener")},
		{Type: admin + "RoutesConfigDump", Routes: list("routes", "route_config")}}}
}

// fidelityCases unpacks the cases of gateways into a folder for each: config/objects.json, dump.json, env.json.
func fidelityCases(t *testing.T) (folders []string) {
	t.Helper()
	packed := exec.CommandContext(t.Context(), "xz", "-dc", "../../deploy/fidelity/testdata/gateways.tar.xz")
	raw, err := packed.Output()
	if err != nil {
		t.Skip("xz: ", err)
	}
	into := t.TempDir()
	for archive := tar.NewReader(bytes.NewReader(raw)); ; {
		head, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return folders
		}
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(into, filepath.Base(filepath.Dir(head.Name)))
		if err := os.MkdirAll(filepath.Join(folder, "config"), 0o700); err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(head.Name)
		switch name {
		case "objects.json":
			name = "config/objects.json"
			folders = append(folders, folder)
		case "reference.json.gz":
			name, content = "dump.json", dumpsOf(t, content)
		case "env.json":
		default:
			continue
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// dumpsOf returns the dumps of all proxies of a case, one after the other.
func dumpsOf(t *testing.T, packed []byte) []byte {
	t.Helper()
	in, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]reference
	if err := json.NewDecoder(in).Decode(&all); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, r := range all {
		if err := json.NewEncoder(&out).Encode(dumpOf(r)); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// runCompare runs the command, and returns its report.
func runCompare(t *testing.T, args ...string) *compare.Report {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs(append([]string{"compare", "-o", "json"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	r := &compare.Report{}
	if json.Unmarshal(out.Bytes(), r) != nil {
		t.Fatalf("%v: %.300s", err, out.String())
	}
	return r
}

// measured is a line of deploy/fidelity/gateways.txt.
type measured struct {
	where  *regexp.Regexp
	places int
	mesh   bool // it holds in any mesh
}

func measuredLines(t *testing.T) (all []measured) {
	t.Helper()
	for line := range strings.Lines(fidelity.Gateways) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) < 4 || strings.Contains(columns[2], " secrets ") || columns[0] == "render" {
			// Secrets are not compared. Unlike render, compare applies revisions and namespaces to a folder.
			continue
		}
		where, _, _ := strings.Cut(columns[2], " => ")
		places, err := strconv.Atoi(columns[1])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, measured{regexp.MustCompile(where), places, len(columns) == 6})
	}
	return all
}

// The cases of gateways are compared as deploy/fidelity/compare.py compares it: each difference is
// argued for, or is one of those that the lists count in these cases alone, in the same number of places.
func TestCompareCases(t *testing.T) {
	lines, found, argued := measuredLines(t), map[int]int{}, 0
	proxies := 0
	for _, folder := range fidelityCases(t) {
		name := filepath.Base(folder)
		var env map[string]string
		if raw, err := os.ReadFile(filepath.Join(folder, "env.json")); err == nil && json.Unmarshal(raw, &env) != nil {
			t.Fatalf("%s/env.json: %s", name, raw)
		}
		for key, value := range env {
			t.Setenv(key, value)
		}
		r := runCompare(t, "--config-dir", filepath.Join(folder, "config"), filepath.Join(folder, "dump.json"))
		for key := range env {
			os.Unsetenv(key)
		}
		if len(r.Unread) > 0 {
			t.Errorf("%s: %+v", name, r.Unread)
		}
		proxies += len(r.Workloads)
		for _, w := range r.Workloads {
			for _, a := range w.Arguments {
				argued += a.Places
			}
			for _, f := range w.Findings {
				place := "gateway/" + name + " " + f.Type + " " + f.Resource + f.Path
				i := slices.IndexFunc(lines, func(l measured) bool { return l.where.MatchString(place) })
				if i < 0 || lines[i].mesh {
					t.Errorf("different: %s %s: %q, %q", w.Proxy, place, f.Istiod, f.Navarch)
				}
				found[i]++
			}
		}
	}
	want := 0
	for i, l := range lines {
		if l.mesh {
			want += l.places
		} else if found[i] != l.places {
			t.Errorf("%d places, not %d: %s", found[i], l.places, l.where)
		}
	}
	if argued != want || proxies != 76 {
		t.Errorf("%d places are argued for in %d proxies, want %d in 76", argued, proxies, want)
	}
}

// mutations of what istiod sent in the example, each with the resource that has to be different then.
var mutations = []struct{ what, old, new, resource string }{
	{"a service port of the mesh that ours does not know", `"outbound|5000||ledger.bank.svc.cluster.local"`, `"outbound|5001||ledger.bank.svc.cluster.local"`,
		"outbound|5000||ledger.bank.svc.cluster.local"},
	{"the identity of a server", `spiffe://cluster.local/ns/bank/sa/vault`, `spiffe://cluster.local/ns/bank/sa/other`, "outbound|443||vault.bank.svc.cluster.local"},
	{"the trust domain of clients", `"spiffe://cluster.local/"`, `"spiffe://other.example/"`, "virtualInbound"},
	{"an endpoint", `"address": "10.2.0.12"`, `"address": "10.2.0.99"`, "outbound|443||api.bank.svc.cluster.local"},
	{"a route to another service", `"cluster": "outbound|8080||cart.front.svc.cluster.local"`, `"cluster": "outbound|80||shop.front.svc.cluster.local"`, "http.8080"},
	{"requests that are not retried", `"retry_on": "connect-failure,`, `"retry_on": "`, "80"},
	{"unknown hosts are refused", `"PassthroughCluster"`, `"BlackHoleCluster"`, "80"},
	{"a certificate of the client is not asked for", `"require_client_certificate": true`, `"require_client_certificate": false`, "virtualInbound"},
	{"a field that this program does not know", `"circuit_breakers"`, `"unheard_of": 1, "circuit_breakers"`, ""},
}

// A proxy that istiod sent something else is different, with the resource, the field, both values and the object that
// made ours.
func TestCompareFindsChanges(t *testing.T) {
	raw, err := os.ReadFile(exampleOfCompare + "dump.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range mutations {
		if !bytes.Contains(raw, []byte(change.old)) {
			t.Errorf("%s: the example has no %s", change.what, change.old)
			continue
		}
		path := filepath.Join(t.TempDir(), "dump.json")
		if err := os.WriteFile(path, bytes.ReplaceAll(raw, []byte(change.old), []byte(change.new)), 0o600); err != nil {
			t.Fatal(err)
		}
		r := runCompare(t, "--config-dir", exampleOfCompare+"config", path)
		named := false
		for _, w := range r.Workloads {
			named = named || slices.ContainsFunc(w.Findings, func(f compare.Finding) bool { return f.Resource == change.resource }) ||
				change.resource == "" && len(w.Notes) > 0
		}
		if r.Summary.Different == 0 || !named {
			t.Errorf("%s: %+v", change.what, r.Summary)
		}
	}
}

// adminForward forwards port 15000 of Pods to a server.
type adminForward struct{ to string }

func (a adminForward) PortForward(_ context.Context, name, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 15000 || name != "shop-v1" {
		return fmt.Errorf("%s does not listen on %d", name, port)
	}
	conn, err := net.Dial("tcp", a.to)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() { _, _ = io.Copy(conn, stream) }()
	_, err = io.Copy(stream, conn)
	return err
}

// exampleAPI is an API server with the objects of the example. Pods in ready, which says of each whether it is, have
// proxies, whose admin interfaces are one server. It notes requests that write.
func exampleAPI(t *testing.T, ready map[string]string, to string, wrote *[]string) string {
	t.Helper()
	raw, err := os.ReadFile(exampleOfCompare + "config/objects.json")
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Items []map[string]any }
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, o := range all.Items {
		meta, _ := o["metadata"].(map[string]any)
		if name := fmt.Sprint(meta["name"]); o["kind"] == "Pod" && ready[name] != "" {
			withProxy(o, meta, ready[name])
		}
	}
	return apiservertest.Kubeconfig(t, func(w http.ResponseWriter, r *http.Request) {
		if name, is := strings.CutSuffix(r.URL.Path, "/portforward"); is {
			if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
				http.Error(w, "no websockets", http.StatusBadRequest)
				return
			}
			portforward.ServePortForward(w, r, adminForward{to}, filepath.Base(name), "", nil, time.Minute, time.Minute,
				portforward.SupportedProtocols)
			return
		}
		if r.Method != http.MethodGet {
			*wrote = append(*wrote, r.Method+" "+r.URL.Path)
		}
		parts := strings.Split(strings.TrimPrefix(r.URL.Path, "/"), "/")
		items := []any{}
		for _, o := range all.Items {
			version := fmt.Sprint(o["apiVersion"])
			plural := pluralOf(strings.ToLower(fmt.Sprint(o["kind"])))
			if strings.Contains(r.URL.Path, "/"+version+"/") && plural == parts[len(parts)-1] {
				items = append(items, o)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"metadata": map[string]any{}, "items": items})
	})
}

// withProxy makes a Pod one of the Deployment shop, with a proxy.
func withProxy(pod, meta map[string]any, ready string) {
	labels, _ := meta["labels"].(map[string]any)
	labels["pod-template-hash"] = "7d"
	meta["ownerReferences"] = []any{map[string]any{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true, "name": "shop-7d"}}
	spec, _ := pod["spec"].(map[string]any)
	spec["initContainers"] = []any{map[string]any{"name": "istio-proxy"}}
	status, _ := pod["status"].(map[string]any)
	status["conditions"] = []any{map[string]any{"type": "Ready", "status": ready}}
}

// pluralOf returns the plural of a kind in paths.
func pluralOf(kind string) string {
	switch {
	case strings.HasSuffix(kind, "y"):
		return strings.TrimSuffix(kind, "y") + "ies"
	case strings.HasSuffix(kind, "s"):
		return kind + "es"
	}
	return kind + "s"
}

// Live, the Pods' dumps and the configuration come from the API server. A Pod that does not answer is named, and the
// exit code is that of a part.
func TestCompareLive(t *testing.T) {
	raw, err := os.ReadFile(exampleOfCompare + "dump.json")
	if err != nil {
		t.Fatal(err)
	}
	_, ofShop, _ := bytes.Cut(raw, []byte("\n"))
	envoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.String() != "/config_dump?include_eds" {
			http.Error(w, r.URL.String(), http.StatusNotFound)
		}
		_, _ = w.Write(ofShop)
	}))
	defer envoy.Close()
	var wrote []string
	ready := map[string]string{"shop-v1": "True", "shop-v2": "True", "cart-v1": "False"}
	kubeconfig := exampleAPI(t, ready, envoy.Listener.Addr().String(), &wrote)
	r := runCompare(t, "--live", "--kubeconfig", kubeconfig)
	if len(r.Unread) != 0 || len(r.Workloads) != 1 || r.Workloads[0].Outcome == compare.Different || r.Summary.Resources.Equal < 50 {
		t.Errorf("%+v %+v", r.Summary, r.Unread)
		for _, w := range r.Workloads {
			t.Errorf("%+v", w.Findings)
		}
	}
	r = runCompare(t, "--live", "--kubeconfig", kubeconfig, "deploy/shop.front", "shop-v2.front")
	if len(r.Unread) != 1 || len(r.Workloads) != 1 || !strings.Contains(r.Unread[0].Reason, "does not listen") {
		t.Errorf("%+v", r.Unread)
	}
	if len(wrote) > 0 {
		t.Errorf("it wrote: %v", wrote)
	}
}
