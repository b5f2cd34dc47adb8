package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/cmd/navarchd/api"
	"navarch.io/navarch/cmd/navarchd/manual"
	"navarch.io/navarch/store/obs"
)

// monitoring returns the handler of the monitoring address. It serves /metrics, /version, /debug and /api/v1. It also
// serves the operators' pages, to which alerts link. The argument asked is the handler of /debug and /api/v1. If it is
// nil (ENABLE_DEBUG_ON_HTTP=false), /debug and /api/v1 are not served.
func monitoring(asked http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", obs.Handler())
	mux.Handle(manual.Root, manual.Handler())
	mux.HandleFunc("/version", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("output") == "json" { // the header Accept does not count: the API server's proxy (istioctl) sends JSON in it
			version(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		// istioctl version and Kiali read plain text (istio pkg/kube/client.go, setServerInfoWithIstiodVersionInfo)
		_, _ = io.WriteString(w, obs.Version)
	})
	if asked != nil {
		mux.Handle("/debug/", asked)
		mux.Handle(fleetapi.Root, asked)
	}
	return bounded(mux)
}

// bounded limits the bodies of requests (api.MaxBody).
func bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.MaxBytesHandler(h, api.MaxBody(r.URL.Path)).ServeHTTP(w, r)
	})
}

func version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{
		"version": obs.Version, "golang_version": runtime.Version(), "platform": obs.Platform(),
	})
}

// public returns the handler of /ready, /version, /debug and /api/v1. If the function ready returns an error, /ready
// answers 503 with this error. If ready returns nil, /ready answers 200 with "ok" and the notes. The argument asked is
// the handler of /debug and /api/v1. If it is nil, /debug and /api/v1 are not served.
func public(ready func() error, notes func() []string, asked http.Handler) http.Handler {
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
	mux.HandleFunc("/version", version)
	if asked != nil {
		mux.Handle("/debug/", asked)
		mux.Handle(fleetapi.Root, asked)
	}
	return bounded(mux)
}
