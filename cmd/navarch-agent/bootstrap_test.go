package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3" // so that protojson knows it
	"google.golang.org/protobuf/encoding/protojson"

	"navarch.io/navarch/push/envoytest"
)

func rendered(t *testing.T, proxyYAML string) []byte {
	t.Helper()
	id, err := identify("sidecar", sources{}, []string{"POD_NAME=a", "POD_NAMESPACE=b", "INSTANCE_IP=10.0.0.1", "PROXY_CONFIG=" + proxyYAML})
	if err != nil {
		t.Fatal(err)
	}
	js, err := bootstrap(id, bootstrapAddresses{admin: "127.0.0.1:15000", metrics: "0.0.0.0:15090", xds: "./etc/istio/proxy/XDS", sds: "./etc/istio/proxy/SDS"})
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Envoy itself validates the bootstrap, with and without a selection of statistics.
func TestEnvoyAcceptsTheBootstrap(t *testing.T) {
	for name, config := range map[string]string{
		"plain": "",
		"zones": `{proxyMetadata: {ISTIO_META_ENABLE_SELF_DISCOVERY: "true"}}`,
		"stats": `{proxyStatsMatcher: {inclusionPrefixes: [http.], inclusionSuffixes: [_retry], inclusionRegexps: ['.*x']}}`,
	} {
		var typed bootstrapv3.Bootstrap
		if err := protojson.Unmarshal(rendered(t, config), &typed); err != nil {
			t.Errorf("%s: Envoy's types: %v", name, err)
		} else if err := typed.ValidateAll(); err != nil {
			t.Errorf("%s: Envoy's rules: %v", name, err)
		}
		file := filepath.Join(t.TempDir(), "b.json")
		if err := os.WriteFile(file, rendered(t, config), 0o600); err != nil {
			t.Fatal(err)
		}
		if complaint := envoytest.Validate(envoytest.Binary(t), file); complaint != "" {
			t.Errorf("%s: %s", name, complaint)
		}
	}
}

// The bootstrap has the settings on which the protocol depends (for the reasons see bootstrap.go).
func TestBootstrapSettings(t *testing.T) {
	var b struct {
		Dynamic struct {
			ADS struct {
				Type     string `json:"api_type"`
				NodeOnce bool   `json:"set_node_on_first_message_only"`
				Services []struct {
					Envoy struct {
						Cluster string          `json:"cluster_name"`
						Retry   json.RawMessage `json:"retry_policy"`
					} `json:"envoy_grpc"`
				} `json:"grpc_services"`
			} `json:"ads_config"`
			LDS struct {
				Timeout string `json:"initial_fetch_timeout"`
			} `json:"lds_config"`
		} `json:"dynamic_resources"`
		Resolver struct {
			Config struct {
				Tries   int `json:"query_tries"`
				Timeout int `json:"query_timeout_seconds"`
			} `json:"typed_config"`
		} `json:"typed_dns_resolver_config"`
	}
	js := rendered(t, "")
	if err := json.Unmarshal(js, &b); err != nil {
		t.Fatal(err)
	}
	ads := b.Dynamic.ADS
	if ads.Type != "DELTA_GRPC" || !ads.NodeOnce || ads.Services[0].Envoy.Cluster != "xds-grpc" || b.Dynamic.LDS.Timeout != "0s" {
		t.Errorf("got %+v", b.Dynamic)
	}
	if r := b.Resolver.Config; r.Tries != 2 || r.Timeout != 2 {
		t.Errorf("a name is given up after %d tries of %d s", r.Tries, r.Timeout)
	}
	if r := string(ads.Services[0].Envoy.Retry); !strings.Contains(r, "0.100s") || !strings.Contains(r, `"1s"`) {
		t.Errorf("retry policy %s", r)
	}
}

func TestAddress(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1", "localhost:1", "127.0.0.1:70000", "127.0.0.1:x"} {
		if _, err := socketAddress(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
