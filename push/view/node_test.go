package view

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

func parse(t testing.TB, json string) (Node, error) {
	t.Helper()
	n := &corev3.Node{}
	if err := protojson.Unmarshal([]byte(json), n); err != nil {
		t.Fatal(err)
	}
	raw, err := proto.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(raw, "")
}

const good = `{"id": "sidecar~10.1.0.7~web-1.shop~shop.svc.cluster.local", "cluster": "web.shop", "metadata": {
	"NAMESPACE": "shop", "LABELS": {"app": "web", "version": "v1"}, "INSTANCE_IPS": "10.1.0.7, fd00::7, ", "CLUSTER_ID": "Kubernetes", "NETWORK": "n1",
	"ISTIO_VERSION": "1.31.0", "INTERCEPTION_MODE": "TPROXY", "SERVICE_ACCOUNT": "web", "WORKLOAD_NAME": "web", "PROXY_CONFIG": {"concurrency": 2}},
	"extensions": [{"name": "envoy.filters.http.cors"}, {"name": "istio.stats"}, {"name": "nobody.knows"}]}`

func TestParse(t *testing.T) {
	n, err := parse(t, good)
	if err != nil {
		t.Fatal(err)
	}
	if n.Name != "web-1" || n.Namespace != "shop" || n.Domain != "svc.cluster.local" || n.Cluster != "Kubernetes" || n.Network != "n1" ||
		n.Version != "1.31.0" || n.Mode != TProxy || n.Account != "web" || n.Workload != "web" || n.Labels["version"] != "v1" {
		t.Errorf("%+v", n)
	}
	if !slices.Equal(n.Addresses, []string{"10.1.0.7", "fd00::7"}) {
		t.Errorf("addresses %v", n.Addresses)
	}
	if n.Caps != xds.CapCORS|xds.CapIstioStats|xds.CapIdentity|xds.CapFileSecrets|xds.CapWasmFetch|xds.CapDynamicForward {
		t.Errorf("caps %b", n.Caps)
	}
	for metadata, want := range map[string]bool{`{}`: false, `{"ISTIO_VERSION": "1.31.0"}`: true, `{"ISTIO_VERSION": "1.31.0", "NAVARCH_IDENTITY": "none"}`: false,
		`{"ISTIO_VERSION": "1.31.0", "GENERATOR": "grpc"}`: false} {
		if n, err := parse(t, `{"id": "sidecar~~a.shop~", "metadata": `+metadata+`}`); err != nil || n.Caps.Has(xds.CapWasmFetch) != want {
			t.Errorf("%s: fetches modules %v (%v), want %v", metadata, !want, err, want)
		}
	}
	for metadata, want := range map[string]bool{`{}`: false, `{"ISTIO_VERSION": "1.31.0"}`: true, `{"NAVARCH_IDENTITY": "sds"}`: true,
		`{"ISTIO_VERSION": "1.31.0", "NAVARCH_IDENTITY": "none"}`: false} {
		if n, err := parse(t, `{"id": "sidecar~~a.shop~", "metadata": `+metadata+`}`); err != nil || n.Caps.Has(xds.CapIdentity) != want {
			t.Errorf("%s: identity %v, %v", metadata, !want, err)
		}
	}
	for metadata, want := range map[string]xds.Caps{`"ISTIO_VERSION": "1.31.0"`: xds.CapIdentity, `"NAVARCH_IDENTITY": "provider"`: xds.CapIdentity, `"NAVARCH_IDENTITY": "sds"`: 0} {
		if n, err := parse(t, `{"id": "sidecar~~a.shop~", "metadata": {"GENERATOR": "grpc", "INTERCEPTION_MODE": "REDIRECT", `+metadata+`}}`); err != nil ||
			n.Kind != Proxyless || n.Mode != None || n.Caps != want {
			t.Errorf("an application with gRPC's own client, %s: %+v, %v", metadata, n, err)
		}
	}
	if _, kept := n.Metadata["PROXY_CONFIG"]; kept {
		t.Error("an object was kept as a string")
	}
	if n, err = parse(t, `{"id": "sidecar~~a.shop~"}`); err != nil || n.Caps != xds.StockCaps || n.Domain != DefaultDomain || n.Namespace != "shop" {
		t.Errorf("the least node: %+v, %v", n, err)
	}
	if NameOf(n.ID) != "a.shop" || NameOf("sidecar~a.shop") != "sidecar~a.shop" {
		t.Errorf("names %q and %q", NameOf(n.ID), NameOf("sidecar~a.shop"))
	}
}

func TestParseRefuses(t *testing.T) {
	for json, want := range map[string]string{
		`{}`:                                "node.id \"\": want type~ip~name.namespace~domain",
		`{"id": "web-1"}`:                   "want type~ip~name.namespace~domain",
		`{"id": "waypoint~10.0.0.1~a.b~c"}`: `proxy type "waypoint" is not served; want sidecar or router`,
		`{"id": "sidecar~10.0.0~a.b~c"}`:    "want an IP address",
		`{"id": "sidecar~10.0.0.1~~c"}`:     "no name",
		`{"id": "sidecar~10.0.0.1~web~c"}`:  "no namespace; want name.namespace in its third part, or node.metadata.NAMESPACE",
		`{"id": "sidecar~~a.b~c", "metadata": {"NAMESPACE": 7}}`:                   "node.metadata.NAMESPACE: want a string, got a number",
		`{"id": "sidecar~~a.b~c", "metadata": {"NAMESPACE": "a/b"}}`:               "not the name of a namespace",
		`{"id": "sidecar~~a.b~c", "metadata": {"LABELS": "app=web"}}`:              "node.metadata.LABELS: want an object of strings, got a string",
		`{"id": "sidecar~~a.b~c", "metadata": {"LABELS": {"app": ["web"]}}}`:       "node.metadata.LABELS.app: want a string, got a list",
		`{"id": "sidecar~~a.b~c", "metadata": {"LABELS": {"b": 1, "a": ["web"]}}}`: "node.metadata.LABELS.a: want a string, got a list",
		`{"id": "sidecar~~a.b~c", "metadata": {"INSTANCE_IPS": "10.0.0.1,x"}}`:     "node.metadata.INSTANCE_IPS: \"x\"; want IP addresses separated by commas",
		`{"id": "sidecar~~a.b~c", "metadata": {"INTERCEPTION_MODE": "SOMEHOW"}}`:   "node.metadata.INTERCEPTION_MODE: \"SOMEHOW\"; want REDIRECT, TPROXY or NONE",
		`{"id": "sidecar~~a.b~c", "metadata": {"GENERATOR": "api"}}`:               "node.metadata.GENERATOR: \"api\" is not served; want grpc",
		`{"id": "router~~a.b~c", "metadata": {"GENERATOR": "grpc"}}`:               "is a gateway's",
		`{"id": "sidecar~~a.b~c", "metadata": {"CLUSTER_ID": {"a": 1}}}`:           "node.metadata.CLUSTER_ID: want a string, got an object",
	} {
		if _, err := parse(t, json); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", json, err, want)
		}
	}
}

// The stored texts of a node are bounded, and an error names the field that is too long. Fields that are not read have
// no bound.
// Promise: security-limits.md#plans-and-configuration, security-workloads.md#what-it-says-of-itself
func TestTextsAreBounded(t *testing.T) {
	many := func(n, length int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"key-%d": %q`, i, strings.Repeat("v", length)))
		}
		return "{" + strings.Join(all, ", ") + "}"
	}
	node := func(metadata string) string { return `{"id": "sidecar~~a.b~c", "metadata": ` + metadata + `}` }
	for what, c := range map[string]struct{ json, want string }{
		"many keys":             {node(many(600, 1)), "node.metadata: 600 texts"},
		"long values":           {node(many(200, 250)), "node.metadata: 200 texts of 5"},
		"one label more":        {node(`{"LABELS": ` + many(513, 1) + `}`), "node.metadata.LABELS: 513 texts"},
		"no label more":         {node(`{"LABELS": ` + many(512, 1) + `}`), ""},
		"one key more":          {node(many(513, 1)), "node.metadata: 513 texts"},
		"no key more":           {node(many(512, 1)), ""},
		"many labels":           {node(`{"LABELS": ` + many(600, 1) + `}`), "node.metadata.LABELS: 600 texts"},
		"one long label":        {node(`{"LABELS": ` + many(1, 40_000) + `}`), "node.metadata.LABELS: 1 texts"},
		"as many as fit":        {node(many(500, 20)), ""},
		"very long values":      {node(many(1000, 300)), ""},
		"long keys":             {node(`{"` + strings.Repeat("k", 60_000) + `": "v"}`), ""},
		"a long node.cluster":   {`{"id": "sidecar~~a.b~c", "cluster": "` + strings.Repeat("c", 60_000) + `"}`, ""},
		"objects nobody reads":  {node(`{"x": ` + many(5000, 10) + `}`), ""},
		"labels as many as fit": {node(`{"LABELS": ` + many(500, 20) + `}`), ""},
	} {
		n, err := parse(t, c.json)
		if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) || c.want == "" && err != nil {
			t.Errorf("%s: %v", what, err)
		}
		size := len(n.ID) + len(n.Workload)
		for _, texts := range []map[string]string{n.Metadata, n.Labels} {
			for k, v := range texts {
				size += len(k) + len(v)
			}
		}
		if err == nil && size > 2*mostBytes {
			t.Errorf("%s: %d bytes are kept", what, size)
		}
	}
}

// A proxy's locality is read from its labels, by the same rule as for its Pod's endpoints, otherwise from its bootstrap
// (which may contain the platform's locality). A locality with a part that contains a slash is refused.
func TestLocality(t *testing.T) {
	node := func(rest string) string {
		return `{"id": "sidecar~10.1.0.7~web-1.shop~shop.svc.cluster.local"` + rest + `}`
	}
	labels := `, "metadata": {"LABELS": {"topology.kubernetes.io/region": "r2", "topology.kubernetes.io/zone": "z2"`
	for text, want := range map[string]string{
		node(``): "",
		node(`, "locality": {"region": "r1", "zone": "z1", "sub_zone": "s1"}`):                   "r1/z1/s1",
		node(`, "locality": {"region": "r1"}` + labels + `}}`):                                   "r2/z2",
		node(`, "locality": {"region": "r1"}, "metadata": {"LABELS": {"istio-locality": "r3"}}`): "r3",
		node(`, "locality": {"zone": "z1"}`):                                                     "/z1",
		node(labels + `}}`):                                                                      "r2/z2",
		node(labels + `, "istio-locality": "r3.z3.s3"}}`):                                        "r3/z3/s3",
		node(labels + `, "istio-locality": "r3.z3.s3", "topology.istio.io/locality": "r4.z4"}}`): "r4/z4",
		node(labels + `, "istio-locality": "r3.z3.s3", "topology.istio.io/locality": ""}}`):      "r2/z2",
		node(`, "locality": {}` + labels + `, "topology.istio.io/subzone": "s"}}`):               "r2/z2/s",
	} {
		if n, err := parse(t, text); err != nil || n.Locality != want {
			t.Errorf("%s: locality %q (%v), want %q", text, n.Locality, err, want)
		}
	}
	for _, bad := range []string{"a/b", strings.Repeat("x", longest+1)} {
		if _, err := parse(t, node(`, "locality": {"zone": "`+bad+`"}`)); err == nil || !strings.Contains(err.Error(), "node.locality") {
			t.Errorf("%.10q: %v", bad, err)
		}
	}
}

// The metadata of an agent says which files it serves, and whether it bounds them for each namespace.
func TestAgentFiles(t *testing.T) {
	const both = xds.CapFileSecrets | xds.CapFileLists
	for metadata, want := range map[string]xds.Caps{`{}`: 0, `{"ISTIO_VERSION": "1.31.0"}`: xds.CapFileSecrets, `{"NAVARCH_IDENTITY": "sds"}`: 0,
		`{"NAVARCH_IDENTITY": "sds", "NAVARCH_FILES": "sds"}`: both, `{"NAVARCH_FILES": "sds"}`: 0, `{"NAVARCH_IDENTITY": "none", "NAVARCH_FILES": "sds"}`: 0,
		`{"NAVARCH_IDENTITY": "sds", "NAVARCH_FILES": "sds", "NAVARCH_FILE_OWNERS": "true"}`: both | xds.CapFileOwners,
		`{"NAVARCH_IDENTITY": "sds", "NAVARCH_FILE_OWNERS": "true"}`:                         0} {
		n, err := parse(t, `{"id": "sidecar~~a.shop~", "metadata": `+metadata+`}`)
		if got := n.Caps & (both | xds.CapFileOwners); err != nil || got != want {
			t.Errorf("%s: files %b (%v), want %b", metadata, got, err, want)
		}
	}
}
