// Package istioca reads the mesh's CA where istiod has it in Kubernetes: the user's own in the Secret cacerts of the system namespace, else the
// root that istiod made for itself, in the Secret istio-ca-secret.
//
// Owns: nothing.  Reads: these two Secrets, by their names, as long as Run runs.  Never: writes a Secret; says what is in one in an error or
// a log line.
package istioca

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/apiserver"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/obs"
)

// The Secrets, and their type where istiod has made them: with USE_CACERTS_FOR_SELF_SIGNED_CA it keeps its own root in cacerts.
const (
	userSecret   = "cacerts"
	istiodSecret = "istio-ca-secret"
	istiodType   = "istio.io/ca-root"
)

const (
	every    = 5 * time.Second // between two looks, as at a folder
	patience = 5 * time.Second // for one answer
)

// Secrets implements keyring.CASource. Safe for concurrent use.
type Secrets struct {
	api       *apiserver.Client
	namespace string
	log       *slog.Logger
	now       atomic.Pointer[found]

	known, failing bool // Run's: a look has found out what there is; the last one has not
}

// found is what a look has found.
type found struct {
	ca  keyring.UserCA
	err error
}

// New asks nothing yet. Secrets are those of the namespace.
func New(api *apiserver.Client, namespace string, log *slog.Logger) *Secrets {
	s := &Secrets{api: api, namespace: namespace, log: log}
	s.now.Store(&found{err: fmt.Errorf("Secret %s/%s: %w", namespace, userSecret, keyring.ErrNotRead)})
	return s
}

// Read implements keyring.CASource: it gives what was found last. While the API server does not answer, or does not let it be read, what was
// read before stands.
func (s *Secrets) Read() (keyring.UserCA, error) {
	now := s.now.Load()
	return now.ca, now.err
}

// Run looks at the Secrets until the context ends, whose error it returns.
func (s *Secrets) Run(ctx context.Context) error {
	for {
		s.turn(ctx)
		if err := loop.Pause(ctx, every); err != nil {
			return err
		}
	}
}

// turn looks once. It is called by Run only.
func (s *Secrets) turn(ctx context.Context) {
	ca, err := s.look(ctx)
	var wrong *incomplete
	switch {
	case err == nil || errors.As(err, &wrong):
		if s.failing {
			s.log.Info("the Secrets of the CA can be read again")
		}
		s.known, s.failing = true, false
		s.now.Store(&found{ca, err})
	case ctx.Err() == nil:
		if !s.failing {
			s.log.Warn("the Secrets of the CA cannot be read; what was read last stays in use", obs.KeyError, err)
		}
		if s.failing = true; !s.known {
			s.now.Store(&found{err: err})
		}
	}
}

// look finds the CA. *incomplete: there is a Secret, which is not whole; other errors say that it cannot be read.
func (s *Secrets) look(ctx context.Context) (keyring.UserCA, error) {
	for _, name := range []string{userSecret, istiodSecret} {
		secret, err := s.get(ctx, name)
		if err != nil {
			return keyring.UserCA{}, err
		}
		if secret != nil {
			return secret.userCA(fmt.Sprintf("Secret %s/%s", s.namespace, name))
		}
	}
	return keyring.UserCA{None: true}, nil
}

// secret is a Secret, as far as it is used (k8s.io/api/core/v1).
type secret struct {
	Metadata struct{ Name string }
	Type     string
	Data     map[string][]byte
}

// get reads a Secret by its name; nil: there is none, for certain.
func (s *Secrets) get(ctx context.Context, name string) (*secret, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	got := &secret{}
	err := s.api.Do(ctx, http.MethodGet, "/api/v1/namespaces/"+s.namespace+"/secrets/"+name, nil, got)
	if apiserver.IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	if err == nil && got.Metadata.Name != name {
		err = errors.New("the API server answers with another object")
	}
	if err != nil {
		return nil, fmt.Errorf("Secret %s/%s: %w", s.namespace, name, err)
	}
	return got, nil
}

// incomplete is a Secret that lacks something.
type incomplete struct{ from, key string }

// Error implements error.
func (i *incomplete) Error() string {
	return fmt.Sprintf("%s: key %s is missing or empty", i.from, i.key)
}

// userCA is what a Secret says. As with istiod, one that has tls.crt is of the form of kubernetes.io/tls, as cert-manager writes it.
func (s *secret) userCA(from string) (keyring.UserCA, error) {
	u := keyring.UserCA{From: from, FirstOnly: s.Type == istiodType || s.Metadata.Name == istiodSecret}
	type part struct {
		key  string
		into *[]byte
	}
	parts := []part{{"ca-cert.pem", &u.Cert}, {"ca-key.pem", &u.Key}, {"root-cert.pem", &u.Root}}
	switch {
	case len(s.Data["tls.crt"]) > 0:
		parts = []part{{"tls.crt", &u.Cert}, {"tls.key", &u.Key}, {"ca.crt", &u.Root}}
		u.From += " (tls.crt is its ca-cert.pem, tls.key its ca-key.pem, ca.crt its root-cert.pem)"
	case u.FirstOnly: // a root of its own, which istiod does not write twice
		parts = parts[:2]
		u.Root = s.Data["root-cert.pem"]
		if len(u.Root) == 0 {
			u.Root = s.Data["ca-cert.pem"]
		}
		fallthrough
	default:
		u.Chain = s.Data["cert-chain.pem"]
	}
	u.Lists = s.Data["ca-crl.pem"]
	for _, p := range parts {
		if *p.into = s.Data[p.key]; len(*p.into) == 0 {
			return keyring.UserCA{From: from}, &incomplete{from, p.key}
		}
	}
	return u, nil
}

var _ keyring.CASource = (*Secrets)(nil)
