package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
)

func podInfo(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The identity is read from the environment that stock injection sets.
func TestIdentifyInjectedPod(t *testing.T) {
	dir := podInfo(t, map[string]string{
		"labels":      "app=\"web\"\npod-template-hash=\"5f6\"\nistio-locality=\"eu.west.rack1\"\nversion=\"v2\"",
		"annotations": "proxy.istio.io/config=\"concurrency: 3\\n\"\nnote=\"a \\\"b\\\"\"\n",
	})
	id, err := identify("sidecar", sources{podInfo: dir}, []string{
		"POD_NAME=web-5f6-x", "POD_NAMESPACE=shop", "INSTANCE_IP=10.0.0.1", "INSTANCE_IPS=10.0.0.1,fd00::1", "SERVICE_ACCOUNT=web",
		"HOST_IP=192.168.0.1", "CA_ADDR=istiod.istio-system.svc:15012", "TRUST_DOMAIN=cluster.local",
		"DNS_PROXY_ADDR=127.0.0.9:53", "ISTIO_META_CLUSTER_ID=east", "ISTIO_META_MESH_ID=mesh1", "ISTIO_META_WORKLOAD_NAME=web", "ISTIO_META_INTERCEPTION_MODE=REDIRECT",
		`ISTIO_METAJSON_LABELS={"app":"old","static":"yes"}`, `ISTIO_METAJSON_EXTRA={"POD_PORTS_N":2,"UNPRIVILEGED_POD":"true"}`,
		"PROXY_CONFIG={discoveryAddress: 'istiod.mesh.svc:15012', drainDuration: 20s, concurrency: 2, proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true', OTHER: x}, unknownField: 1}",
		"XDS_HEADER_X-Tenant=a",
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "sidecar~10.0.0.1~web-5f6-x.shop~shop.svc.cluster.local"; id.node.Id != want {
		t.Errorf("id %q, want %q", id.node.Id, want)
	}
	if id.node.Cluster != "web.shop" || id.node.Locality.Region != "eu" || id.node.Locality.Zone != "west" || id.node.Locality.SubZone != "rack1" {
		t.Errorf("cluster %q, locality %v", id.node.Cluster, id.node.Locality)
	}
	got := id.node.Metadata.AsMap()
	want := map[string]any{
		"NAME": "web-5f6-x", "NAMESPACE": "shop", "INSTANCE_IPS": "10.0.0.1,fd00::1", "SERVICE_ACCOUNT": "web",
		"CLUSTER_ID": "east", "MESH_ID": "mesh1", "WORKLOAD_NAME": "web", "INTERCEPTION_MODE": "REDIRECT", "DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "127.0.0.9:53",
		"POD_PORTS_N": 2.0, "UNPRIVILEGED_POD": "true", "ISTIO_VERSION": istioVersion, "NAVARCH_IDENTITY": "none",
		"LABELS":      map[string]any{"app": "web", "static": "yes", "istio-locality": "eu/west/rack1", "version": "v2"},
		"ANNOTATIONS": map[string]any{"proxy.istio.io/config": "concurrency: 3\n", "note": `a "b"`},
		"PROXY_CONFIG": map[string]any{
			"discoveryAddress": "istiod.mesh.svc:15012", "drainDuration": "20s", "concurrency": 3.0, "controlPlaneAuthPolicy": "MUTUAL_TLS",
			"proxyMetadata": map[string]any{"ISTIO_META_DNS_CAPTURE": "true", "OTHER": "x"},
		},
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("metadata (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"ClusterID": "east", "X-Tenant": "a"}, id.headers); d != "" {
		t.Error(d)
	}
	o := &options{}
	if err := o.complete(id, noFlags); err != nil || o.plaintext || o.concurrency != 3 || o.drain.Seconds() != 20 || o.discovery != "istiod.mesh.svc:15012" {
		t.Errorf("options %+v, %v", o, err)
	}
}

func TestLocalityOf(t *testing.T) {
	for want, labels := range map[string]map[string]string{
		"//":       {"app": "web"},
		"r/z/s":    {"istio-locality": "r/z/s"},
		"r8/z8/s8": {"topology.istio.io/locality": "r8.z8.s8", "istio-locality": "r9/z9"},
		"r8//":     {"topology.istio.io/locality": "r8"},
	} {
		got := localityOf(labels)
		if s := got.GetRegion() + "/" + got.GetZone() + "/" + got.GetSubZone(); s != want {
			t.Errorf("%v: %s, want %s", labels, s, want)
		}
	}
}

func TestIdentifyNamesTheFault(t *testing.T) {
	base := []string{"POD_NAME=a", "POD_NAMESPACE=b", "INSTANCE_IP=10.0.0.1"}
	for name, c := range map[string]struct {
		env  []string
		dir  string
		want string
	}{
		"no pod":        {[]string{"POD_NAME=a"}, "", "POD_NAMESPACE"},
		"bad address":   {[]string{"POD_NAME=a", "POD_NAMESPACE=b", "INSTANCE_IPS=10.0.0.300"}, "", `"10.0.0.300"`},
		"bad JSON":      {append(base, "ISTIO_METAJSON_LABELS=app"), "", "ISTIO_METAJSON_LABELS"},
		"bad YAML":      {append(base, "PROXY_CONFIG={"), "", "PROXY_CONFIG"},
		"bad field":     {append(base, "PROXY_CONFIG=concurrency: many"), "", "PROXY_CONFIG"},
		"bad label row": {base, podInfo(t, map[string]string{"labels": "ok=\"1\"\napp=web"}), "labels:2: value of app"},
	} {
		if _, err := identify("sidecar", sources{podInfo: c.dir}, c.env); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v does not name %s", name, err, c.want)
		}
	}
	if _, err := identify("ztunnel", sources{podInfo: ""}, base); err == nil {
		t.Error("a node type that the agent cannot run was taken")
	}
}

// A CSR names the identity of the environment, if the environment has all of its parts.
func TestSPIFFEID(t *testing.T) {
	base := []string{"POD_NAME=a", "POD_NAMESPACE=shop", "INSTANCE_IP=10.0.0.1"}
	for name, c := range map[string]struct {
		env         []string
		want, wrong string
	}{
		"all of it":          {env: []string{"TRUST_DOMAIN=td.example", "SERVICE_ACCOUNT=web"}, want: "spiffe://td.example/ns/shop/sa/web"},
		"no account":         {env: []string{"TRUST_DOMAIN=td.example"}},
		"no trust domain":    {env: []string{"SERVICE_ACCOUNT=web"}},
		"not a trust domain": {env: []string{"TRUST_DOMAIN=TD example", "SERVICE_ACCOUNT=web"}, wrong: "TRUST_DOMAIN"},
		"no segment":         {env: []string{"TRUST_DOMAIN=td.example", "SERVICE_ACCOUNT=a/b"}, wrong: "SERVICE_ACCOUNT"},
	} {
		id, err := identify("sidecar", sources{}, append(slices.Clone(base), c.env...))
		if err != nil {
			t.Fatal(err)
		}
		got, err := id.spiffeID()
		if got.String() != c.want || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %s, %v; want %s, %s", name, got, err, c.want, c.wrong)
		}
	}
}

// Plaintext requires an explicit setting; no missing setting may lead to it.
func TestPlaintextIsExplicit(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		flags  options
		want   bool
	}{
		"default":            {"", options{}, false},
		"port 15010":         {"discoveryAddress: istiod:15010", options{}, true},
		"policy NONE":        {"controlPlaneAuthPolicy: NONE", options{discovery: "x:1"}, true},
		"policy not written": {"discoveryAddress: x:15012", options{}, false},
		"flag":               {"", options{discovery: "x:1", plaintext: true}, true},
	} {
		p, err := proxyConfig("", c.config, "")
		if err != nil {
			t.Fatal(err)
		}
		o := c.flags
		if err := o.complete(&identity{proxy: p}, noFlags); err != nil || o.plaintext != c.want {
			t.Errorf("%s: plaintext %v, want %v; %v", name, o.plaintext, c.want, err)
		}
	}
	o := options{discovery: "istiod"}
	if err := o.complete(&identity{}, noFlags); err == nil || !strings.Contains(err.Error(), `"istiod"`) {
		t.Errorf("address without port: %v", err)
	}
}

func noFlags(string) bool { return false }

// Variables of stock agents take effect unless the command line sets the flag; values that are not valid are named.
func TestKnobs(t *testing.T) {
	start := options{statusAddr: ":15021", metricsAddr: "0.0.0.0:15090", rootCert: "default.pem", discovery: "istiod:15012"}
	env := map[string]string{"ENVOY_STATUS_PORT": "25021", "ENVOY_PROMETHEUS_PORT": "25090", "SECRET_TTL": "6h", "SECRET_GRACE_PERIOD_RATIO": "0.25", "CA_ROOT_CA": "ca.pem"}
	o := start
	if err := o.complete(&identity{vars: env}, noFlags); err != nil || o.statusAddr != ":25021" || o.metricsAddr != "0.0.0.0:25090" ||
		o.certTTL != 6*time.Hour || o.renewAt != 0.75 || o.rootCert != "ca.pem" {
		t.Errorf("%+v, %v", o, err)
	}
	o = start
	if err := o.complete(&identity{vars: env}, func(string) bool { return true }); err != nil || o.statusAddr != ":15021" || o.metricsAddr != "0.0.0.0:15090" || o.rootCert != "default.pem" {
		t.Errorf("over the command line: %+v, %v", o, err)
	}
	env["XDS_ROOT_CA"] = "xds.pem"
	o = start
	if err := o.complete(&identity{vars: env}, noFlags); err != nil || o.rootCert != "default.pem" { // the flag's own variable
		t.Errorf("%+v, %v", o, err)
	}
	for name, values := range map[string][]string{"ENVOY_STATUS_PORT": {"0", "x", "70000"}, "ENVOY_PROMETHEUS_PORT": {"-1"},
		"SECRET_TTL": {"x", "0", "-1h"}, "SECRET_GRACE_PERIOD_RATIO": {"0", "1", "NaN", "x"}} {
		for _, v := range values {
			o := start
			if err := o.complete(&identity{vars: map[string]string{name: v}}, noFlags); err == nil || !strings.Contains(err.Error(), name+"=") {
				t.Errorf("%s=%s: %v", name, v, err)
			}
		}
	}
}

// The version of Istio in nodes is that of the API library that reads the objects.
func TestVersionOfIstio(t *testing.T) {
	module, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if want := "istio.io/api v" + istioVersion + "\n"; !strings.Contains(string(module), want) {
		t.Errorf("go.mod does not have %q: istioVersion follows it", want)
	}
	id, err := identify("sidecar", sources{}, []string{"POD_NAME=web-0", "POD_NAMESPACE=shop", "INSTANCE_IP=10.0.0.1", "ISTIO_META_ISTIO_VERSION=1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	if got := id.node.Metadata.Fields["ISTIO_VERSION"].GetStringValue(); got != "1.2.3" {
		t.Errorf("%q, want what the environment states", got)
	}
}
