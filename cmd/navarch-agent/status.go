package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"navarch.io/navarch/shard/relay"
)

// debugPage is the answer of /debug.
type debugPage struct {
	Node     string      `json:"node"`
	Ready    bool        `json:"ready"`
	NotReady string      `json:"notReady,omitempty"` // why
	Draining bool        `json:"draining"`
	Envoy    envoyState  `json:"envoy"`
	XDS      relay.Stats `json:"xds"`
	// Certificate is the workload's; absent on plain text.
	Certificate *certificatePage `json:"certificate,omitempty"`
}

func (a *agent) statusHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz/ready", func(w http.ResponseWriter, r *http.Request) {
		if err := a.ready(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	return mux
}

func (a *agent) debugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug", func(w http.ResponseWriter, r *http.Request) {
		// Readiness first: a page that says ready shows at least the traffic that made it so.
		err := a.ready(r.Context())
		page := debugPage{Node: a.id.node.Id, Ready: err == nil, Draining: a.draining.Load(), Envoy: a.envoy.State(), XDS: a.relay.Stats(), Certificate: a.certificate()}
		if err != nil {
			page.NotReady = err.Error()
		}
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		enc.Encode(page)
	})
	return mux
}

// ready is Envoy's word, and no while it drains.
func (a *agent) ready(ctx context.Context) error {
	if a.draining.Load() {
		return errors.New("draining")
	}
	return a.admin.ready(ctx)
}

// serve answers on l until ctx ends.
func serve(ctx context.Context, l net.Listener, h http.Handler) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}
