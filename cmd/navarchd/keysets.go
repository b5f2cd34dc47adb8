package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"navarch.io/navarch/store/ingest"
	"navarch.io/navarch/store/jwks"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

func (c *config) bindKeySets(f *pflag.FlagSet) {
	f.StringVar(&c.jwksRoots, "jwks-roots", "",
		"File of certificates, PEM, that servers of key sets (RequestAuthentication, jwksUri) are verified against beside the system's.")
	f.BoolVar(&c.jwksLoopback, "jwks-loopback", false, "Fetch key sets from addresses of this machine, too.")
	f.BoolVar(&c.jwksCluster, "jwks-cluster", false,
		"Fetch key sets from Services and Pods of the clusters, and from --cluster-ranges, too: writers of"+
			" RequestAuthentications can then make the control plane send requests to these addresses.")
}

// newKeySets makes the leader's duty that fetches the key sets (JWKS) that RequestAuthentications name. It sets the
// callback KeySets of the loop, so that the loop reports the needed key sets. Errors name flags.
func newKeySets(c *config, to *ingest.Loop, store *kv.Store, log *slog.Logger) (duty, error) {
	of := jwks.FetcherConfig{Blocked: c.env.keysNotAt, Loopback: c.jwksLoopback}
	if !c.jwksCluster {
		of.Cluster = c.isolation.orInRanges(to.OfCluster)
	}
	if c.jwksRoots != "" {
		raw, err := os.ReadFile(c.jwksRoots)
		if err != nil {
			return duty{}, fmt.Errorf("--jwks-roots: %w", err)
		}
		if of.Roots, err = x509.SystemCertPool(); err != nil {
			return duty{}, fmt.Errorf("--jwks-roots: the system's certificates: %w", err)
		}
		if !of.Roots.AppendCertsFromPEM(raw) {
			return duty{}, fmt.Errorf("--jwks-roots: %s has no certificate, PEM", c.jwksRoots)
		}
	}
	keys := jwks.New(jwks.Config{Fetch: jwks.NewFetcher(of).Fetch, Refresh: c.env.keyRefresh, Emit: to.Emit, Log: log})
	to.KeySets = keys.Need
	from := jwks.Origin()
	return duty{lead: func(ctx context.Context, epoch kv.Epoch) { keys.Run(ctx, store, epoch) },
		problems: func() []object.Problem { return keySetProblems(keys) }, origin: &from}, nil
}

// keySetProblems returns the problems of key sets that this process fetched as leader.
func keySetProblems(keys *jwks.Leader) (all []object.Problem) {
	for _, p := range keys.Problems() {
		all = append(all, object.Problem{ID: p.ID, Location: "JWKS", Code: problem.Pending, Severity: problem.Warning, Message: p.Message})
	}
	return all
}
