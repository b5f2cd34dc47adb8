// Package obs names what Navarch shows of itself: keys of log lines, metrics and their labels, all in one place.
//
// Owns: the metrics registry.  Reads: nothing of ours.  Never: a label per proxy, key material.
package obs

import (
	"net/http"
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Keys of structured log lines.
const (
	KeyRevision = "revision"
	KeyEpoch    = "epoch"
	KeyProxy    = "proxy"
	KeyType     = "type"
	KeyObject   = "object"
	KeyField    = "field"
	KeyOrigin   = "origin"
	KeyError    = "error"
	KeyAddress  = "address"
	KeyName     = "name"
)

// Version is what /version and pilot_info say; set by the linker.
var Version = "dev"

var registry = prometheus.NewRegistry()

// Buckets of durations, in seconds: from a push in memory to a fleet that lags.
var seconds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

// The metrics under the names that dashboards and alerts of Istio use
// (https://istio.io/latest/docs/reference/commands/pilot-discovery/#metrics).
var (
	Connections     = gaugeVec("pilot_xds", "Number of endpoints connected to this server using xDS.", "version")
	Pushes          = counterVec("pilot_xds_pushes", "Responses sent, by type: cds, eds, lds, rds, sds.", "type")
	PushTime        = histogramVec("pilot_xds_push_time", "Seconds to compute and send one response.", "type")
	SendTime        = histogram("pilot_xds_send_time", "Seconds the transport took to accept one response.")
	ConfigSize      = histogramSizes("pilot_xds_config_size_bytes", "Bytes of the responses sent, by type.", "type")
	Rejects         = rejects{counterVec("pilot_xds_cds_reject", "Clusters refused by proxies.", "err"), counterVec("pilot_xds_eds_reject", "Endpoint assignments refused by proxies.", "err"), counterVec("pilot_xds_lds_reject", "Listeners refused by proxies.", "err"), counterVec("pilot_xds_rds_reject", "Route configurations refused by proxies.", "err")}
	TotalRejects    = counterVec("pilot_total_xds_rejects", "Responses refused by proxies, by type.", "type")
	ExpiredNonce    = counterVec("pilot_xds_expired_nonce", "Requests with a nonce that is not the newest, by type.", "type")
	WriteTimeout    = counter("pilot_xds_write_timeout", "Streams closed because a response was not acknowledged in time.")
	Convergence     = histogram("pilot_proxy_convergence_time", "Seconds from a change of configuration to the push of it to a proxy.")
	QueueTime       = histogram("pilot_proxy_queue_time", "Seconds a proxy waited in the push queue.")
	Debounce        = histogram("pilot_debounce_time", "Seconds from the first change of a batch to its plan.")
	PushTriggers    = counterVec("pilot_push_triggers", "Plans made, by lane.", "type")
	InboundUpdates  = counterVec("pilot_inbound_updates", "Records that changed, by kind.", "type")
	Services        = gauge("pilot_services", "Services known.")
	VirtualServices = gauge("pilot_virt_services", "VirtualServices known.")
	RejectedConfigs = gaugeVec("pilot_total_rejected_configs", "Objects that do not apply because they are not valid.", "kind")
	Info            = gaugeVec("pilot_info", "Version of this build; the value is 1.", "version")
	Build           = gaugeVec("istio_build", "Version of this build, under Istio's name; the value is 1.", "component", "tag")
	Uptime          = gauge("istiod_uptime_seconds", "Seconds since this process started.")
)

// The metrics of the CA, under istiod's names.
var (
	CSRs               = counter("citadel_server_csr_count", "Certificate signing requests received.")
	CertificatesIssued = counter("citadel_server_success_cert_issuance_count", "Certificates issued.")
	CSRAuthFailures    = counter("citadel_server_authentication_failure_count", "Callers whose credential was not accepted.")
	CSRParseErrors     = counter("citadel_server_csr_parsing_err_count", "Signing requests that are not valid.")
	CSRIdentityErrors  = counter("citadel_server_id_extraction_err_count", "Callers without an identity that may have a certificate.")
	CSRSignErrors      = counter("citadel_server_csr_sign_err_count", "Signing requests that this replica could not sign.")
	IssueTime          = histogram("navarch_certificate_seconds", "Seconds from a signing request to its certificate.")
)

// The metrics that are Navarch's own.
var (
	Proxies        = gauge("navarch_proxies", "Streams that are served.")
	Views          = gaugeVec("navarch_views", "Planned layers that are shared by proxies, by layer: scope, family, workload, residue.", "layer")
	Builds         = counterVec("navarch_builds_total", "Resources built (encoded), by type.", "type")
	FragmentBuilds = counter("navarch_virtual_host_builds_total", "Virtual hosts built (encoded).")
	Pooled         = gaugeVec("navarch_pooled", "Encoded resources and virtual hosts that are held.", "what")
	SharedBytes    = counter("navarch_shared_bytes_total", "Bytes of resources handed to streams without a copy.")
	Revision       = gauge("navarch_revision", "Store revision that this replica is complete at.")
	Propagation    = histogram("navarch_propagation_seconds", "Seconds from the commit of a revision to its acknowledgement by a proxy.")
	Acks           = histogram("navarch_ack_seconds", "Seconds from sending a response to its acknowledgement.")
	Leading        = gauge("navarch_leader", "1 while this process is the elected ingester.")
	Writes         = counterVec("navarch_store_writes_total", "Records written to the store, by operation.", "op")
	StoreAlarm     = gaugeVec("navarch_store_alarm", "1 while the store is not to be trusted, by cause.", "cause")
	Problems       = gauge("navarch_problems", "Problems with files, objects, stored values and refused resources; /debug/problems lists these, and what planning finds.")
	OracleChecks   = counter("navarch_oracle_checks_total", "Views planned anew to check the incremental plan.")
	OracleFailures = counter("navarch_oracle_failures_total", "Views whose incremental plan differed from the plan from nothing.")
	Quarantined    = gaugeVec("navarch_quarantined", "Resources that proxies refused and that are held back, by type.", "type")
)

// rejects are the four counters of refused resources that Istio names by type.
type rejects struct{ CDS, EDS, LDS, RDS *prometheus.CounterVec }

func init() {
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	Info.WithLabelValues(Version).Set(1)
	Build.WithLabelValues("pilot", Version).Set(1)
}

// Handler serves the metrics in Prometheus' format.
func Handler() http.Handler {
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// Platform is the operating system and architecture, for /version.
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

func counter(name, help string) prometheus.Counter {
	m := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	registry.MustRegister(m)
	return m
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	m := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	registry.MustRegister(m)
	return m
}

func gauge(name, help string) prometheus.Gauge {
	m := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
	registry.MustRegister(m)
	return m
}

func gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	m := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	registry.MustRegister(m)
	return m
}

func histogram(name, help string) prometheus.Histogram {
	m := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds})
	registry.MustRegister(m)
	return m
}

func histogramVec(name, help string, labels ...string) *prometheus.HistogramVec {
	m := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: seconds}, labels)
	registry.MustRegister(m)
	return m
}

func histogramSizes(name, help string, labels ...string) *prometheus.HistogramVec {
	sizes := prometheus.ExponentialBuckets(1<<10, 4, 8)
	m := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: sizes}, labels)
	registry.MustRegister(m)
	return m
}
