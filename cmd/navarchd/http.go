package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"time"

	"navarch.io/navarch/store/obs"
)

// serveHTTP answers on a listener until the context ends, then lets requests finish for a moment.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})
	defer stopped()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("http server on %s: %w", l.Addr(), err)
	}
	return nil
}

// monitoring is /metrics and /version.
func monitoring() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", obs.Handler())
	mux.HandleFunc("/version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{
			"version": obs.Version, "golang_version": runtime.Version(), "platform": obs.Platform(),
		})
	})
	return mux
}

// public is /ready and /debug. ready says what is missing, and notes what else is amiss; debug may be nil
// (ENABLE_DEBUG_ON_HTTP=false).
func public(ready func() error, notes func() []string, debug http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ready", func(w http.ResponseWriter, _ *http.Request) {
		if err := ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
		for _, note := range notes() {
			fmt.Fprintln(w, note)
		}
	})
	if debug != nil {
		mux.Handle("/debug/", debug)
	}
	return mux
}
