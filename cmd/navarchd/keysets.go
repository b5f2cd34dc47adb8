package main

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"

	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// newKeySets fetches the keys that RequestAuthentications name, while this process leads. Errors name flags.
func newKeySets(c *config, emit func([]object.Event), log *slog.Logger) (*jwks.Leader, error) {
	of := jwks.FetcherConfig{Blocked: c.env.keysNotAt, Loopback: c.jwksLoopback}
	if c.jwksRoots != "" {
		raw, err := os.ReadFile(c.jwksRoots)
		if err != nil {
			return nil, fmt.Errorf("--jwks-roots: %w", err)
		}
		if of.Roots, err = x509.SystemCertPool(); err != nil {
			return nil, fmt.Errorf("--jwks-roots: the system's certificates: %w", err)
		}
		if !of.Roots.AppendCertsFromPEM(raw) {
			return nil, fmt.Errorf("--jwks-roots: %s has no certificate, PEM", c.jwksRoots)
		}
	}
	return jwks.New(jwks.Config{Fetch: jwks.NewFetcher(of).Fetch, Refresh: c.env.keyRefresh, Emit: emit, Log: log}), nil
}

// keySetProblems are those of the key sets that this process has fetched as leader.
func keySetProblems(keys *jwks.Leader) (all []object.Problem) {
	for _, p := range keys.Problems() {
		all = append(all, object.Problem{ID: p.ID, Location: "JWKS", Code: problem.Pending, Severity: problem.Warning, Message: p.Message})
	}
	return all
}
