// Package status is what others may ask navarch-agent: whether it is ready, the metrics of Envoy, agent and application on
// one page, whether the application is well (as the kubelet asks it), and, from this machine only, to drain or to end.
//
// Owns: the handlers of the status ports and their bounds.  Reads: Config.  Never: what a metric means; asks any target
// that injection did not list; lets one who asks slow down another.
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
	prefix = "istio_agent_" // of all metrics of stock agents

	maxScrapes = 4  // at once; where one source has them all, more of it are refused: a scraper comes again
	maxProbes  = 32 // at once, in the same way
)

// limits are those of one port.
var limits = web.Limits{Answer: maxBudget + 5*time.Second, Idle: 30 * time.Second, Connections: 128}

// Config of a Server. Functions may be called from any goroutine.
type Config struct {
	// Ready is nil when the proxy can take traffic, else what is missing.
	Ready func(context.Context) error
	// Quit ends the agent as SIGTERM does, Drain lets Envoy send its clients away. The answer waits for them.
	Quit, Drain func()
	// EnvoyStats is the address of Envoy's Prometheus page.
	EnvoyStats string
	// Workload is whose the proxy is: its request metrics are shown with Istio's labels.
	Workload istiometrics.Workload
	// Agent describes the agent itself; names get the prefix istio_agent_. nil: nothing more than scrapes.
	Agent prometheus.Collector
	// Apps are where the application shows its metrics, on localhost.
	Apps []scrape.Target
	// Probes of the application by path, sent to ProbeHost (the pod's address, as the kubelet would).
	Probes    Probes
	ProbeHost string
	Log       *slog.Logger // nil: none
}

// Server answers on the status ports. Make it with New.
type Server struct {
	cfg      Config
	registry *prometheus.Registry
	counts   counts
	fetcher  *http.Client
	prober   *prober
	scrapes  *turns
	probes   *turns
}

// New checks cfg; it opens nothing. An error: a function is missing, or ProbeHost is no IP.
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

// Health answers /healthz/ready only: the port 15021 is open to load balancers everywhere.
func (s *Server) Health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz/ready", s.ready)
	return mux
}

// Handler answers everything: the port 15020.
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

// local lets POST requests of this machine do what is done.
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

// Serve answers on l until ctx ends. A client that is slow, silent or large is cut off, and of too many connections the oldest is closed of
// the source that has most: a kubelet finds an answer, whoever else asks. clients gets a line about that; nil: nobody does.
// Its error is that of web.Serve.
func Serve(ctx context.Context, l net.Listener, h http.Handler, clients *obs.Sampled) error {
	return web.Serve(ctx, l, h, limits, clients)
}
