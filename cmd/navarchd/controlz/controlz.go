// Package controlz changes log levels at run time. It answers the requests that `istioctl admin log` sends to ControlZ,
// an interface of istiod (pkg/ctrlz/topics/scopes.go in Istio).
//
// Owns: nothing.
// Reads: requests from this machine.
// Never: answers requests from other machines, or from web pages of other sites.
package controlz

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"navarch.io/navarch/cmd/internal/web"
	"navarch.io/navarch/store/obs"
)

// Scope is one log scope (a named part of the log with its own level) as JSON, with Istio's names of fields. In a PUT
// request an empty field leaves the value unchanged.
type Scope struct {
	Name            string `json:"name"`
	Description     string `json:"description"`
	OutputLevel     string `json:"output_level"`      // debug, info, warn, error, fatal or none (obs.Scope.Set)
	StackTraceLevel string `json:"stack_trace_level"` // always none
	LogCallers      bool   `json:"log_callers"`       // always false
}

// Root is the path of all scopes. Root/NAME is the path of one scope.
const Root = "/scopej"

// Handler returns the handler of Root and Root/NAME. GET responds with all scopes or one Scope as JSON. PUT with a
// Scope changes the level of the scope in the path. DELETE resets the level to the level at the start of the process.
// PUT and DELETE respond with 202 (Accepted), and are logged.
//
// Status 400 means that the scope is unknown, or that the Scope is invalid. Status 403 means that the request comes
// from another machine, or that a page of another site may have caused it. A refused request changes nothing.
func Handler(levels *obs.Levels, log *slog.Logger) http.Handler {
	all := func(w http.ResponseWriter, _ *http.Request) {
		scopes := []Scope{}
		for _, s := range levels.All() {
			scopes = append(scopes, shown(s))
		}
		answer(w, scopes)
	}
	change := func(set func(*obs.Scope, *http.Request) error) http.HandlerFunc {
		return one(levels, func(w http.ResponseWriter, r *http.Request, s *obs.Scope) {
			before := s.Level()
			if err := set(s, r); err != nil {
				http.Error(w, fmt.Sprintf("scope %s: %v", s.Name, err), http.StatusBadRequest)
				return
			}
			log.Info("the level of log lines is changed", obs.KeyName, s.Name, obs.KeyLeast, s.Level(), "before", before)
			w.WriteHeader(http.StatusAccepted)
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+Root, all)
	mux.HandleFunc("GET "+Root+"/{$}", all)
	mux.HandleFunc("GET "+Root+"/{scope}", one(levels, func(w http.ResponseWriter, _ *http.Request, s *obs.Scope) { answer(w, shown(s)) }))
	mux.HandleFunc("PUT "+Root+"/{scope}", change(put))
	mux.HandleFunc("DELETE "+Root+"/{scope}", change(func(s *obs.Scope, _ *http.Request) error {
		s.Reset()
		return nil
	}))
	return web.Guard(nil, sameMachine(mux))
}

// sameMachine refuses requests of other machines, also those that a proxy on this machine forwards.
func sameMachine(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !web.SameMachine(r) {
			http.Error(w, "log levels are read and changed only from the machine on which this process runs (for example with "+
				"kubectl port-forward)", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// one returns a handler that finds the scope of the request's path and calls h. As with istiod, a request for an
// unknown scope gets status 400.
func one(levels *obs.Levels, h func(http.ResponseWriter, *http.Request, *obs.Scope)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("scope")
		s := levels.Find(name)
		if s == nil {
			var names []string
			for _, s := range levels.All() {
				names = append(names, s.Name)
			}
			http.Error(w, fmt.Sprintf("unknown scope name: %.100q: the scopes are %s", name, strings.Join(names, ", ")), http.StatusBadRequest)
			return
		}
		h(w, r, s)
	}
}

// put applies the Scope in the body of a request. After an error nothing is changed.
func put(s *obs.Scope, r *http.Request) error {
	var to Scope
	if err := json.NewDecoder(r.Body).Decode(&to); err != nil {
		return fmt.Errorf("the request cannot be decoded: %w", err)
	}
	switch {
	case to.Name != "" && to.Name != s.Name:
		return fmt.Errorf("name: it is %.100q, and the path names %s", to.Name, s.Name)
	case to.StackTraceLevel != "" && to.StackTraceLevel != "none":
		return errors.New("stack_trace_level: log lines have no stack traces, so none is the only level")
	case to.LogCallers:
		return errors.New("log_callers: log lines do not name their callers")
	case to.OutputLevel == "":
		return nil
	}
	if err := s.Set(to.OutputLevel); err != nil {
		return fmt.Errorf("output_level: %w", err)
	}
	return nil
}

func shown(s *obs.Scope) Scope {
	return Scope{Name: s.Name, Description: s.About, OutputLevel: s.Level(), StackTraceLevel: "none"}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
