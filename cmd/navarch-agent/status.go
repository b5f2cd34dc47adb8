package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/cmd/navarch-agent/status"
	"navarch.io/navarch/push/istiometrics"
	"navarch.io/navarch/shard/relay"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/scrape"
)

// debugPage is the response of GET /debug.
type debugPage struct {
	Node     string      `json:"node"`
	Ready    bool        `json:"ready"`
	NotReady string      `json:"notReady,omitempty"` // reason
	Draining bool        `json:"draining"`
	Envoy    envoyState  `json:"envoy"`
	XDS      relay.Stats `json:"xds"`
	// Certificate is the certificate of the workload. It is absent if the agent uses no TLS to the control plane.
	Certificate *certificatePage `json:"certificate,omitempty"`
}

// newStatus returns the server of the status ports, with settings from the variables that injection sets. It returns an
// error if ISTIO_KUBE_APP_PROBERS cannot be parsed or status.New fails. A wrong list of scrape targets is only logged.
func (a *agent) newStatus(log *slog.Logger) (*status.Server, error) {
	cfg := status.Config{
		Ready: a.ready, Quit: func() { a.quit() }, Drain: a.drainNow, EnvoyStats: "http://" + a.cfg.adminAddr + metricsPath,
		Agent: facts{a: a, start: time.Now()}, ProbeHost: a.id.addresses[0], Log: log,
		Workload: workloadOf(a.id.node.GetMetadata()),
	}
	var err error
	if cfg.Probes, err = status.ParseProbes(a.id.lookup("ISTIO_KUBE_APP_PROBERS")); err != nil {
		return nil, fmt.Errorf("environment ISTIO_KUBE_APP_PROBERS: %w", err)
	}
	if legacy, _ := strconv.ParseBool(a.id.lookup("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION")); legacy {
		cfg.ProbeHost = "127.0.0.1"
	}
	// The ports of gateways are reachable from everywhere. A gateway therefore serves no metrics of an application, as
	// in Istio.
	if a.cfg.nodeType == "sidecar" {
		own := []uint16{portOf(a.cfg.statsAddr), portOf(a.cfg.statusAddr), portOf(a.cfg.metricsAddr)}
		if cfg.Apps, err = scrape.Read(a.id.lookup(scrape.Variable), own...); err != nil {
			// A wrong annotation of Prometheus must not keep the Pod from starting.
			log.Warn("metrics of the application are not merged", "variable", scrape.Variable, obs.KeyError, err)
		}
	}
	return status.New(cfg)
}

// workloadOf returns the workload that a node's metadata describes, for the labels of metrics.
func workloadOf(metadata *structpb.Struct) istiometrics.Workload {
	fields, labels := metadata.GetFields(), map[string]string{}
	for name, value := range fields["LABELS"].GetStructValue().GetFields() {
		labels[name] = value.GetStringValue()
	}
	text := func(key string) string { return fields[key].GetStringValue() }
	return istiometrics.Of(text("WORKLOAD_NAME"), text("NAMESPACE"), text("CLUSTER_ID"), labels)
}

// portOf returns the port of "host:port", or 0 if there is no numeric port.
func portOf(hostPort string) uint16 {
	_, port, _ := net.SplitHostPort(hostPort)
	n, _ := strconv.ParseUint(port, 10, 16)
	return uint16(n)
}

// drainNow marks the agent as not ready and starts a graceful drain of Envoy's listeners in the background. Envoy keeps
// running.
func (a *agent) drainNow() {
	a.draining.Store(true)
	go func() {
		if err := a.admin.drainListeners(context.Background(), a.cfg.bye.drainPath()); err != nil { // bounded by the admin's time limit
			a.log.Warn("cannot drain Envoy", "error", err)
		}
	}()
}

func (a *agent) debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug", func(w http.ResponseWriter, r *http.Request) {
		// Readiness is read before the statistics. A page with "ready": true therefore includes the XDS responses that
		// made the proxy ready.
		err := a.ready(r.Context())
		page := debugPage{
			Node: a.id.node.Id, Ready: err == nil, Draining: a.draining.Load(),
			Envoy: a.envoy.State(), XDS: a.relay.Stats(), Certificate: a.certificate(),
		}
		if err != nil {
			page.NotReady = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.Encode(page)
	})
	return web.Guard(web.NewHosts(slices.Concat(a.id.addresses, []string{a.cfg.debugAddr})...), mux)
}
