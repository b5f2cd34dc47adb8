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

// monitoring is /metrics, /version and /debug, where istioctl and Kiali look for them, and the pages for operators, which alerts lead to; debug may be nil
// (ENABLE_DEBUG_ON_HTTP=false).
func monitoring(debug http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", obs.Handler())
	mux.Handle(manual.Root, manual.Handler())
	mux.HandleFunc("/version", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("output") == "json" { // not by Accept: the API server's proxy, by which istioctl asks, has JSON in it
			version(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, obs.Version) // as istioctl version and Kiali read it (istio pkg/kube/client.go, setServerInfoWithIstiodVersionInfo)
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

// public is /ready, /version and /debug. ready says what is missing, and notes what else is amiss; debug may be nil
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
	mux.HandleFunc("/version", version)
	if debug != nil {
		mux.Handle("/debug/", debug)
	}
	return mux
}
