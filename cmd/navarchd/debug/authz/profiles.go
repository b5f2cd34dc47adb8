package authz

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"path"
	"strconv"

	"golang.org/x/sync/semaphore"

	"navarch.io/navarch/cmd/internal/web"
)

// Bounds of profiles: the number of profiles that are made at the same time, and the duration in seconds. Further or
// longer profiles are refused. The package net/http/pprof has no such bounds, and extends the server's timeout.
const (
	maxProfiles       = 2
	maxProfileSeconds = 60
)

// pprofPath is the path prefix of profiles.
const pprofPath = "/debug/pprof/"

// profiles serves the profiles of this process. The argument places limits the number of profiles that are made at the
// same time. The list of profiles, the command line and the names of addresses are cheap, so they do not count.
func profiles(places *semaphore.Weighted) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(pprofPath, pprof.Index) // also heap, goroutine and so on
	mux.HandleFunc(pprofPath+"cmdline", pprof.Cmdline)
	mux.HandleFunc(pprofPath+"profile", pprof.Profile)
	mux.HandleFunc(pprofPath+"symbol", pprof.Symbol)
	mux.HandleFunc(pprofPath+"trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Clean(r.URL.Path) {
		case path.Clean(pprofPath), pprofPath + "cmdline", pprofPath + "symbol":
		default:
			if text := r.FormValue("seconds"); text != "" { // parsed as in net/http/pprof
				if seconds, err := strconv.ParseFloat(text, 64); err != nil || !(seconds <= maxProfileSeconds) {
					http.Error(w, fmt.Sprintf("seconds=%.20q: want %d at most", text, maxProfileSeconds), http.StatusBadRequest)
					return
				}
			}
			if !places.TryAcquire(1) {
				w.Header().Set("Retry-After", "5")
				http.Error(w, web.ErrBusy.Error(), http.StatusTooManyRequests)
				return
			}
			defer places.Release(1)
		}
		mux.ServeHTTP(w, r)
	})
}
