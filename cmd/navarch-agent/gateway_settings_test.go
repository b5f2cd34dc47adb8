package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"

	"navarch.io/navarch/push/agentapi"
	"navarch.io/navarch/push/envoytest"
)

func TestGatewayShutdownSettings(t *testing.T) {
	router := &corev3.Node{Id: "router~10.0.0.1~a.b~b.svc.cluster.local"}
	for name, c := range map[string]struct {
		config string
		vars   map[string]string
		want   shutdown
	}{
		"default":      {"", nil, shutdown{wait: gatewayWait, least: defaultWait}},
		"config":       {"terminationDrainDuration: 60s", nil, shutdown{wait: time.Minute, least: defaultWait}},
		"short":        {"", map[string]string{"TERMINATION_DRAIN_DURATION_SECONDS": "6"}, shutdown{wait: 6 * time.Second, least: 3 * time.Second}},
		"at once":      {"", map[string]string{"TERMINATION_DRAIN_DURATION_SECONDS": "0"}, shutdown{}},
		"minimum":      {"", map[string]string{"MINIMUM_DRAIN_DURATION": "20s"}, shutdown{wait: gatewayWait, least: 20 * time.Second}},
		"beyond bound": {"", map[string]string{"MINIMUM_DRAIN_DURATION": "40s"}, shutdown{wait: gatewayWait, least: gatewayWait}},
		"without a bound": {"", map[string]string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true", "MINIMUM_DRAIN_DURATION": "40s"},
			shutdown{wait: gatewayWait, least: 40 * time.Second, whenIdle: true}},
		"full time": {"", map[string]string{"EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "false"},
			shutdown{wait: gatewayWait, least: defaultWait, fullTime: true}},
	} {
		proxy, err := proxyConfig("", c.config, "")
		if err != nil {
			t.Fatal(err)
		}
		c.want.gateway = true
		var got shutdown
		if err := got.complete(&identity{node: router, proxy: proxy, vars: c.vars}); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

// Envoy takes the bootstrap of a gateway, also beside an overload manager of a patch. One that Envoy refuses beside
// the agent's replaces it.
func TestGatewayBootstrap(t *testing.T) {
	dir := t.TempDir()
	id, err := identify("router", sources{}, []string{"POD_NAME=a", "POD_NAMESPACE=b", "INSTANCE_IP=10.0.0.1",
		"PROXY_CONFIG={proxyStatsMatcher: {inclusionPrefixes: [http.]}}"})
	if err != nil {
		t.Fatal(err)
	}
	o := &options{configPath: dir, adminAddr: "127.0.0.1:15000"}
	if err := o.bye.complete(id); err != nil {
		t.Fatal(err)
	}
	log := &envoytest.Output{}
	a := &agent{cfg: o, id: id, envoy: &supervisor{path: envoytest.Binary(t)}, log: slog.New(slog.NewTextHandler(log, nil))}
	if err := a.writeBootstrap(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(o.bootstrapFile())
	if err != nil {
		t.Fatal(err)
	}
	complaint := envoytest.Validate(envoytest.Binary(t), o.bootstrapFile())
	if complaint != "" || !strings.Contains(string(text), acceptedConnections) {
		t.Errorf("%s", complaint)
	}
	const connections = "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
	limit := object{overloadKey: object{"resource_monitors": []any{object{
		"name":         "envoy.resource_monitors.global_downstream_max_connections",
		"typed_config": object{"@type": connections, "max_active_downstream_connections": 1000}}}}}
	js, err := json.Marshal(idleOverload(filepath.Join(dir, "idle-pressure")))
	if err != nil {
		t.Fatal(err)
	}
	same := object{overloadKey: object{}}
	if err := json.Unmarshal(js, new(any)); err != nil || json.Unmarshal([]byte(fmt.Sprintf(`{%q: %s}`, overloadKey, js)), &same) != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		patch object
		kept  bool
	}{
		"other key": {object{"stats_flush_interval": "7s"}, true}, "limit": {limit, true}, "the same timers": {same, false},
		"wrong": {object{overloadKey: "x"}, true},
	} {
		got := a.yieldOverload(t.Context(), text, []agentapi.BootstrapPatch{{From: "EnvoyFilter shop/x", Merge: c.patch}})
		if kept := strings.Contains(string(got), "reduce_timeouts"); kept != c.kept {
			t.Errorf("%s: the agent's overload manager is there: %v", name, kept)
		}
	}
	if n := strings.Count(log.String(), "replaces the agent's overload manager"); n != 1 {
		t.Errorf("%d warnings: %s", n, log)
	}
}
