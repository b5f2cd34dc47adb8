package listener

import (
	"strings"
	"testing"

	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/build/telemetry"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// counts is a Common for proxies that count by Envoy's stats access logger.
func counts(t testing.TB) Common {
	c := logged(t, func(m *meshv1.MeshConfig) {
		m.DefaultProviders = &meshv1.MeshConfig_DefaultProviders{Metrics: []string{"prometheus"}}
	})
	c.Caps |= xds.CapStatsLog
	return c
}

// overridden is counts with overrides of metrics and tags.
func overridden(t testing.TB) Common {
	c := counts(t)
	c.Telemetry.Metrics = telemetry.Metrics{Said: true, Overrides: (&intern.Table[telemetry.Override]{}).List(
		telemetry.Override{Metric: "request_bytes", Drop: true}, telemetry.Override{Metric: "requests_total", Tag: "host", Value: "request.host"},
		telemetry.Override{Metric: "requests_total", Tag: "response_flags"}, telemetry.Override{Metric: "requests_total", Tag: "team", Value: "'blue'"})}
	return c
}

// The counting access log is next to the access logs of connection managers and of TCP proxies, if metrics are on and
// the proxy has the logger but not the filter istio.stats.
func TestCounts(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*Common)
		want int // access logs
	}{
		"counted":           {func(*Common) {}, 2},
		"nobody asks":       {func(c *Common) { c.Mesh = logged(t, nil).Mesh }, 1},
		"all disabled":      {func(c *Common) { c.Telemetry.Metrics = telemetry.Metrics{Said: true, Off: true} }, 1},
		"no logger":         {func(c *Common) { c.Caps &^= xds.CapStatsLog }, 1},
		"the filter counts": {func(c *Common) { c.Caps |= xds.CapIstioStats }, 1},
	} {
		common := counts(t)
		c.edit(&common)
		_, l := build(t, Outbound{Common: common, Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80", Fallback: xds.Passthrough})
		requests, connections := manager(t, l.FilterChains[0]).AccessLog, proxy(t, l.DefaultFilterChain).AccessLog
		if len(requests) != c.want || len(connections) != c.want {
			t.Errorf("%s: %d and %d access logs, want %d", name, len(requests), len(connections), c.want)
		}
		if c.want == 2 && (!strings.Contains(requests[1].String(), "istio_requests_total") || !strings.Contains(connections[1].String(), "istio_tcp_sent_bytes_total")) {
			t.Errorf("%s: %v and %v", name, requests[1], connections[1])
		}
	}
}

// BenchmarkCounts measures the build of listeners for proxies with and without the counting access log.
func BenchmarkCounts(b *testing.B) {
	for name, c := range map[string]Common{"counted": counts(b), "not": logged(b, nil)} {
		for kind, spec := range map[string]builder{
			"http": Outbound{Common: c, Name: "0.0.0.0_80", Bind: "0.0.0.0", Port: 80, Route: "80"},
			"tcp":  Outbound{Common: c, Name: "10.96.0.11_9000", Bind: "10.96.0.11", Port: 9000, TCP: chains.List(chainTo(Chain{Protocol: model.Protocol_PROTOCOL_TCP}, "db"))},
		} {
			b.Run(kind+"/"+name, func(b *testing.B) {
				bytes := 0
				b.ReportAllocs()
				for b.Loop() {
					r, err := spec.Build()
					if err != nil {
						b.Fatal(err)
					}
					bytes = len(r.Body())
				}
				b.ReportMetric(float64(bytes), "bytes/listener")
			})
		}
	}
}
