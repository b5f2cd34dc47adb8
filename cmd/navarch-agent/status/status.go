// Package status serves the status ports of navarch-agent, 15020 and 15021. It answers readiness requests, merges the
// metrics of Envoy, agent and application into one page, and carries out the kubelet's probes of the application. From
// this machine it accepts requests to drain Envoy or to end the agent.
//
// Owns: the handlers of the status ports and their limits. Reads: Config. Never: interprets a metric; connects to a
// target that is not in Config; lets one client delay another.
package status

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/push/istiometrics"
	"navarch.io/navarch/store/obs"
	"navarch.io/navarch/store/scrape"
)

const (
	prefix = "istio_agent_" // as in Istio's agents

	maxScrapes = 4  // concurrent requests for metrics; the type turns handles requests above the limit
	maxProbes  = 32 // concurrent probes
)

// limits are the limits of each status port.
var limits = web.Limits{Answer: maxBudget + 5*time.Second, Idle: 30 * time.Second, Connections: 128}

// Config contains the settings of a Server. Its functions may be called from any goroutine.
type Config struct {
	// Ready returns nil when the proxy can serve traffic, else an error that lists what is missing.
	Ready func(context.Context) error
	// Quit must end the agent as SIGTERM does. Drain must start a graceful close of Envoy's client connections. The
	// requester gets its response when the function returns.
	Quit, Drain func()
	// EnvoyStats is the URL of Envoy's Prometheus page. The query of a request for metrics is added to this URL.
	EnvoyStats string
	// Workload is the workload of the proxy, for Istio's labels on request metrics.
	Workload istiometrics.Workload
	// Agent collects metrics of the agent itself; their names get the prefix istio_agent_. nil: the agent has only this
	// package's metrics scrapes_total and scrape_failures_total, with the same prefix.
	Agent prometheus.Collector
	// Apps are the metrics pages of the application, on localhost; empty: no such page is merged.
	Apps []scrape.Target
	// Probes are the probes of the application, by path. The Server sends them to the IP address ProbeHost, normally
	// that of the Pod. If there are no Probes, ProbeHost may be empty.
	Probes    Probes
	ProbeHost string
	Log       *slog.Logger // nil: nothing is logged
}

// Server answers requests on the status ports. New makes it. Its methods and handlers are safe for concurrent use.
type Server struct {
	cfg      Config
	registry *prometheus.Registry
	counts   counts
	fetcher  *http.Client
	prober   *prober
	scrapes  *turns
	probes   *turns
}

// New validates cfg and returns a server. It opens no sockets. It returns an error if a function or EnvoyStats is
// missing, if ProbeHost is not an IP address although there are Probes, or if Agent cannot be registered.
func New(cfg Config) (*Server, error) {
	if cfg.Ready == nil || cfg.Quit == nil || cfg.Drain == nil || cfg.EnvoyStats == "" {
		return nil, errors.New("status: Ready, Quit, Drain and EnvoyStats are needed")
	}
	if len(cfg.Probes) > 0 {
		if _, err := netip.ParseAddr(cfg.ProbeHost); err != nil {
			return nil, fmt.Errorf("status: address for probes: %w", err)
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, registry: prometheus.NewRegistry(), counts: newCounts(), fetcher: newFetcher(),
		prober: newProber(cfg.ProbeHost), scrapes: newTurns(maxScrapes), probes: newTurns(maxProbes),
	}
	all := prometheus.WrapRegistererWithPrefix(prefix, s.registry)
	for _, c := range append(s.counts.collectors(), cfg.Agent) {
		if c == nil {
			continue
		}
		if err := all.Register(c); err != nil {
			return nil, fmt.Errorf("status: metrics of the agent: %w", err)
		}
	}
	return s, nil
}

// Health returns the handler of port 15021. It answers /healthz/ready only, because this port is reachable from
// everywhere. The status is 200, or 503 with the error of Config.Ready. Other paths get 404.
func (s *Server) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", s.ready)
	return mux
}

// Handler returns the handler of port 15020. It serves readiness as in Health, merged metrics (GET /stats/prometheus or
// /metrics), and Config.Probes by their paths. POST /quitquitquit and POST /drain call Config.Quit and Config.Drain.
// Requests for these two paths from other machines get 403. Requests with a wrong method get 405. Other paths get 404.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", s.ready)
	mux.HandleFunc("GET /stats/prometheus", s.metrics)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("/app-health/", s.probe)
	mux.HandleFunc("/app-lifecycle/", s.probe)
	mux.Handle("/quitquitquit", web.Guard(nil, local(s.cfg.Quit)))
	mux.Handle("/drain", web.Guard(nil, local(s.cfg.Drain)))
	return mux
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.Ready(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}

// local returns a handler that calls do for POST requests from this machine, and refuses all others.
func local(do func()) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !web.SameMachine(r):
			http.Error(w, "only requests from localhost are allowed", http.StatusForbidden)
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "only POST is allowed", http.StatusMethodNotAllowed)
		default:
			_, _ = io.WriteString(w, "OK")
			do()
		}
	}
}

// Serve answers requests on l with h until ctx ends, then lets requests finish for a second and returns nil. It closes
// l. Slow, idle and oversized requests lose their connection. A client may have 64 connections, and all clients
// together 128. A client is an IPv4 address or an IPv6 /64. At its own limit, a client loses its oldest connection. At
// the total limit, the client with the most connections loses one, so that the kubelet always gets an answer. The
// argument clients logs connections that are closed at a limit; if it is nil, they are not logged. If l cannot accept
// connections, Serve returns the wrapped error of l.
func Serve(ctx context.Context, l net.Listener, h http.Handler, clients *obs.Sampled) error {
	return web.Serve(ctx, l, h, limits, clients)
}
