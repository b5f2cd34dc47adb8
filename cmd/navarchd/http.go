package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime"

	"navarch.io/navarch/cmd/navarchd/manual"
	"navarch.io/navarch/store/obs"
)

// monitoring returns the handler of /metrics, /version and /debug, at the paths of istioctl and Kiali, and of the
// operators' pages, to which alerts link. debug may be nil (ENABLE_DEBUG_ON_HTTP=false).
func monitoring(debug http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", obs.Handler())
	mux.Handle(manual.Root, manual.Handler())
	mux.HandleFunc("/version", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("output") == "json" { // not by Accept: the API server's proxy, which istioctl uses, sends JSON in it
			version(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		// the form that istioctl version and Kiali read (istio pkg/kube/client.go, setServerInfoWithIstiodVersionInfo)
		_, _ = io.WriteString(w, obs.Version)
	})
	if debug != nil {
		mux.Handle("/debug/", debug)
	}
	return mux
}

func version(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{
		"version": obs.Version, "golang_version": runtime.Version(), "platform": obs.Platform(),
	})
}

// public returns the handler of /ready, /version and /debug. ready returns what is missing; notes are further remarks.
// debug may be nil (ENABLE_DEBUG_ON_HTTP=false).
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
	mux.HandleFunc("/version", version)
	if debug != nil {
		mux.Handle("/debug/", debug)
	}
	return mux
}
