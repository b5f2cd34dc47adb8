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

// Bounds of profiles: how many are made at once, more are refused, and for how many seconds one may go on. net/http/pprof has
// no such bound: it puts off the server's limit of time.
const (
	maxProfiles       = 2
	maxProfileSeconds = 60
)

// pprofPath is what paths of profiles begin with.
const pprofPath = "/debug/pprof/"

// profiles serves the profiles of this process, of which places bounds how many are made at once. The list of them, the command
// line and the names of addresses cost nothing, and do not count.
func profiles(places *semaphore.Weighted) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(pprofPath, pprof.Index) // heap, goroutine and so on, too
	mux.HandleFunc(pprofPath+"cmdline", pprof.Cmdline)
	mux.HandleFunc(pprofPath+"profile", pprof.Profile)
	mux.HandleFunc(pprofPath+"symbol", pprof.Symbol)
	mux.HandleFunc(pprofPath+"trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path.Clean(r.URL.Path) {
		case path.Clean(pprofPath), pprofPath + "cmdline", pprofPath + "symbol":
		default:
			if text := r.FormValue("seconds"); text != "" { // as net/http/pprof reads it
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
