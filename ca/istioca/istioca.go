// Package istioca reads the mesh's CA from istiod's Secrets in the namespace of the control plane. The Secret cacerts
// has the user's own CA. If cacerts does not exist, the Secret istio-ca-secret has the root that istiod made for
// itself.
//
// Owns: nothing.
// Reads: the Secrets cacerts and istio-ca-secret, every 5 s while Run runs.
// Never: writes a Secret; shows a Secret's content in an error or log line.
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

// userSecret and istiodSecret are the names of the Secrets. istiodType is the type of a Secret with istiod's own root.
// If istiod runs with USE_CACERTS_FOR_SELF_SIGNED_CA, it keeps its own root in cacerts.
const (
	userSecret   = "cacerts"
	istiodSecret = "istio-ca-secret"
	istiodType   = "istio.io/ca-root"
)

const (
	every    = 5 * time.Second // pause between two reads
	patience = 5 * time.Second // timeout of one request
)

// Secrets is a keyring.CASource that reads istiod's Secrets. Call Run once. Read is safe for concurrent use, also with
// Run.
type Secrets struct {
	api       *apiserver.Client
	namespace string
	log       *slog.Logger
	now       atomic.Pointer[found]

	// Only Run uses these fields. known: a read has succeeded. failing: the last read failed.
	known, failing bool
}

// found is the result of a read.
type found struct {
	ca  keyring.UserCA
	err error
}

// New returns the Secrets of a namespace. It sends no request. Until Run has tried to read once, the error of Read
// matches keyring.ErrNotRead. api and log must not be nil.
func New(api *apiserver.Client, namespace string, log *slog.Logger) *Secrets {
	s := &Secrets{api: api, namespace: namespace, log: log}
	s.now.Store(&found{err: fmt.Errorf("Secret %s/%s: %w", namespace, userSecret, keyring.ErrNotRead)})
	return s
}

// Read implements keyring.CASource. It returns the CA that Run read last, without a request. If neither Secret existed
// at that time, UserCA.None is true. If the Secret lacked a needed key, the error names the key. While the Secrets
// cannot be read, Read returns the previous result. Before the first successful read, Read returns the error of the
// last attempt. The bytes must not be modified.
func (s *Secrets) Read() (keyring.UserCA, error) {
	now := s.now.Load()
	return now.ca, now.err
}

// Run reads the Secrets, with pauses of 5 s, until ctx ends. It returns the error of ctx.
func (s *Secrets) Run(ctx context.Context) error {
	for {
		s.refresh(ctx)
		if err := loop.Pause(ctx, every); err != nil {
			return err
		}
	}
}

// refresh reads the Secrets once. Only Run calls it.
func (s *Secrets) refresh(ctx context.Context) {
	ca, err := s.readSecrets(ctx)
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
			s.log.Warn("the Secrets of the CA cannot be read; the CA that was read last stays in use", obs.KeyError, err)
		}
		if s.failing = true; !s.known {
			s.now.Store(&found{err: err})
		}
	}
}

// readSecrets reads the CA. UserCA.None means that neither Secret exists. An error of type *incomplete means that a
// Secret lacks a key. Other errors mean that a Secret cannot be read.
func (s *Secrets) readSecrets(ctx context.Context) (keyring.UserCA, error) {
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

// secret has the fields of a Secret (k8s.io/api/core/v1) that this package uses.
type secret struct {
	Metadata struct{ Name string }
	Type     string
	Data     map[string][]byte
}

// get reads a Secret by name. It returns nil without an error if the Secret does not exist.
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

// incomplete is the error for a Secret that lacks a key.
type incomplete struct{ from, key string }

// Error implements error.
func (i *incomplete) Error() string {
	return fmt.Sprintf("%s: key %s is missing or empty", i.from, i.key)
}

// userCA returns the CA in a Secret. If the Secret has the key tls.crt, the CA is in tls.crt, tls.key and ca.crt, which
// cert-manager writes. istiod reads such a Secret in the same way.
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
	case u.FirstOnly: // istiod may write its own root as ca-cert.pem alone
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
