package main

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// The log names those of istiod's variables that are set and not read. It does not name variables that navarchd acts
// on, that the kubelet sets for Services, or that belong to other programs.
func TestUnreadVariables(t *testing.T) {
	environ := []string{"PILOT_HTTP10=1", "ENABLE_MCS_HOST=true", "ISTIO_MULTIROOT_MESH=true", "PILOT_EMPTY=",
		"PILOT_PUSH_THROTTLE=5", "ENABLE_CA_SERVER=true", "ISTIO_WATCH_NAMESPACE=shop", "ENABLE_NATIVE_SIDECARS=true",
		"ISTIO_INGRESSGATEWAY_SERVICE_HOST=10.96.0.7", "ISTIO_INGRESSGATEWAY_SERVICE_PORT=80", "ISTIO_INGRESSGATEWAY_SERVICE_PORT_HTTP2=80",
		"ISTIO_INGRESSGATEWAY_PORT=tcp://10.96.0.7:80", "ISTIO_INGRESSGATEWAY_PORT_80_TCP=tcp://10.96.0.7:80", "ISTIO_INGRESSGATEWAY_PORT_80_TCP_ADDR=10.96.0.7",
		"HOME=/", "CLUSTER_ID=a"}
	var e environment
	if err := e.read(func(string) (string, bool) { return "", false }); err != nil {
		t.Fatal(err)
	}
	want := []string{"ENABLE_MCS_HOST", "ISTIO_MULTIROOT_MESH", "PILOT_HTTP10"}
	if got := e.unread(environ); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	var out bytes.Buffer
	e.warnUnread(environ, slog.New(slog.NewTextHandler(&out, nil)))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), &out)
	}
	for i, line := range lines {
		if !strings.Contains(line, "level=WARN") || !strings.HasSuffix(line, "name="+want[i]) {
			t.Errorf("line %s: want %s", line, want[i])
		}
	}
}
