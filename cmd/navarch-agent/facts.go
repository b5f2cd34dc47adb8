package main

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// facts collects the metrics of the agent process. Metrics that Istio's agents also have keep their names. The status
// server adds the prefix istio_agent_ to all names.
type facts struct {
	a     *agent
	start time.Time
}

var (
	startedAt    = describe("process_start_time_seconds", "When the agent started, in seconds since 1970.")
	resident     = describe("process_resident_memory_bytes", "Resident memory of the agent.")
	goroutines   = describe("go_goroutines", "Goroutines of the agent.")
	certExpiry   = describe("cert_expiry_seconds", "Seconds until the workload's certificate expires.", "resource_name")
	dialFailures = describe("istiod_connection_failures", "Connections to the control plane that failed or ended.")
	connects     = describe("istiod_connections", "Streams that reached the control plane.")
	requests     = describe("xds_proxy_requests", "Requests of Envoy to the control plane.")
	responses    = describe("xds_proxy_responses", "Responses of the control plane to Envoy.")
	envoyStarts  = describe("envoy_starts_total", "Times that Envoy was started.")
	envoyCrashes = describe("envoy_crashes_total", "Times that Envoy ended with an error.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// Describe implements prometheus.Collector. It sends the descriptions of all metrics.
func (f facts) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		startedAt, resident, goroutines, certExpiry, dialFailures, connects, requests, responses, envoyStarts, envoyCrashes,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. It omits the resident memory if /proc is not readable, and the expiry if
// there is no certificate. The expiry is in seconds from now, and negative for an expired certificate.
func (f facts) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v))
	}
	gauge(startedAt, float64(f.start.UnixNano())/1e9)
	if n, ok := residentBytes(); ok {
		gauge(resident, float64(n))
	}
	gauge(goroutines, float64(runtime.NumGoroutine()))
	if f.a.identity != nil {
		if now := f.a.identity.Identity(); now != nil {
			gauge(certExpiry, time.Until(now.NotAfter).Seconds(), "default")
		}
	}
	xds, envoy := f.a.relay.Stats(), f.a.envoy.State()
	count(dialFailures, xds.Failures)
	count(connects, xds.Connects)
	count(requests, xds.Total.Requests)
	count(responses, xds.Total.Responses)
	count(envoyStarts, uint64(envoy.Starts))
	count(envoyCrashes, uint64(envoy.Crashes))
}

// residentBytes returns the agent's resident memory in bytes: the second field of /proc/self/statm (proc(5)) in pages,
// times the page size. It returns false if the file is absent or has another form.
func residentBytes() (int64, bool) {
	text, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(text)
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}
