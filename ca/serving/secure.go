// Package serving is the TLS of the secure gRPC address. It selects the certificate to present (an operator's, one of
// our CA, or one of a peer while this process cannot sign) and the roots to verify callers, by the newest state of the
// keyring.
//
// Owns: the serving certificate, and the loop that requests one from peers.
// Reads: states of ca/keyring, an operator's files, the fleet.
// Never: identifies a caller; issues a certificate to others.
package serving

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
)

// pairFiles are an operator's certificate and key, read again when a file changes. While the two do not match (one is
// not written yet), the last good pair stays in use.
type pairFiles struct {
	cert, key string

	mu       sync.Mutex // a leaf lock
	read     [2]fileState
	lastGood *tls.Certificate
}

type fileState struct {
	size     int64
	modified time.Time
}

func stateOf(path string) (fileState, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileState{}, err
	}
	return fileState{info.Size(), info.ModTime()}, nil
}

// pair returns the newest matching pair.
func (p *pairFiles) pair() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	cert, errCert := stateOf(p.cert)
	key, errKey := stateOf(p.key)
	err := errors.Join(errCert, errKey)
	if now := [2]fileState{cert, key}; err == nil && (p.lastGood == nil || now != p.read) {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(p.cert, p.key); err == nil {
			p.lastGood, p.read = &pair, now
		}
	}
	if p.lastGood != nil {
		return p.lastGood, nil
	}
	var missing *fs.PathError
	if errors.As(err, &missing) {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", missing)
	}
	return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
}

// ByFiles returns the TLS configuration of a process without keyring, with an operator's certificate and key. Presented
// client certificates are verified against clients; nil: none is requested. Errors name flags.
func ByFiles(cert, key string, clients *x509.CertPool) (*tls.Config, error) {
	files := &pairFiles{cert: cert, key: key}
	if _, err := files.pair(); err != nil {
		return nil, err
	}
	conf := secureBase()
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return files.pair() }
	if clients != nil {
		conf.ClientCAs = clients
		conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return verifying(conf, hello.Conn), nil }
	}
	return conf, nil
}

// secureBase returns the settings of all secure addresses. Dynamic record sizes are off: they help pages that render
// while loading, and cost a write for each small record. Session tickets are off: agents keep none, and every handshake
// must be verified by the newest state.
func secureBase() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		CurvePreferences: curves(), DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true}
}

// curves lists the key exchanges that Envoy offers (proto TlsParameters.ecdh_curves), and the hybrid one of newer
// clients. Go's other curves, P-384 and P-521, cost a server about 8 and 20 times as much per handshake, and a client
// without credential could choose them.
func curves() []tls.CurveID { return []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256} }

// TLS is the secure address's certificate and trust in a process that follows the keyring. It makes one tls.Config per
// state of the keyring and serving certificate. Any goroutine may call its methods.
type TLS struct {
	names []string   // DNS names of the certificate
	files *pairFiles // nil: the certificate is of our own CA

	mu    sync.Mutex // guards the fields below
	own   *tls.Certificate
	epoch uint64 // that issued own; 0: a peer did
	from  string // the peer that signed own; empty: this process did
	why   error  // why no peer signed when one was last asked
	made  *tls.Config
	state *keyring.State   // the state that made is based on
	pair  *tls.Certificate // certificate of made
}

// New returns a TLS for a certificate with these names, or for an operator's certificate and key files; empty: none.
// Errors name flags.
func New(names []string, cert, key string) (*TLS, error) {
	s := &TLS{names: names}
	if cert == "" {
		return s, nil
	}
	s.files = &pairFiles{cert: cert, key: key}
	_, err := s.files.pair()
	return s, err
}

// Config returns a configuration that calls state for the keyring at each handshake.
func (s *TLS) Config(state func() *keyring.State) *tls.Config {
	conf := secureBase()
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		now, err := s.Under(state())
		if err != nil {
			return nil, err
		}
		return verifying(now, hello.Conn), nil
	}
	return conf
}

// Under returns the configuration for one state; it requests no client certificate (Config does). An error: there is no
// certificate to present.
func (s *TLS) Under(state *keyring.State) (*tls.Config, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pair, err := s.certificate(state, time.Now())
	if err != nil {
		return nil, err
	}
	if s.made != nil && s.state == state && s.pair == pair {
		return s.made, nil
	}
	roots := x509.NewCertPool()
	for _, root := range state.Callers() {
		roots.AddCert(root)
	}
	conf := secureBase()
	conf.Certificates, conf.ClientCAs = []tls.Certificate{*pair}, roots
	s.made, s.state, s.pair = conf, state, pair
	return conf, nil
}

// Certificate returns the certificate to present under a state of the keyring. An error: it does not exist.
func (s *TLS) Certificate(state *keyring.State, now time.Time) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certificate(state, now)
}

// certificate returns the operator's certificate, or the process's own of our CA, which is made again when the signer
// changes and at half of its lifetime. While this process cannot sign it returns the previous one, or one of a peer
// (PeerIssued).
func (s *TLS) certificate(state *keyring.State, now time.Time) (*tls.Certificate, error) {
	if s.files != nil {
		return s.files.pair()
	}
	if state.Active == nil {
		switch {
		case s.own != nil && now.Before(s.own.Leaf.NotAfter):
			return s.own, nil
		case s.why != nil:
			return nil, fmt.Errorf("no serving certificate: %w; no peer signed one: %w", state.Sealed, s.why)
		}
		return nil, fmt.Errorf("no serving certificate: %w", state.Sealed)
	}
	if s.own != nil && s.epoch == state.Active.Epoch && now.Before(halfLife(s.own.Leaf)) {
		return s.own, nil
	}
	fresh, err := issue.Serving(state.Active, issue.ServingRequest{Names: s.names}, issue.Policy{}, now, nil)
	if err != nil {
		return nil, fmt.Errorf("make the serving certificate: %w", err)
	}
	s.own, s.epoch, s.from, s.why = &fresh, state.Active.Epoch, "", nil
	return s.own, nil
}

// halfLife returns the time at which a certificate should be replaced.
func halfLife(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

// OwnFiles reports whether the certificate is an operator's, so that no peer is asked for one.
func (s *TLS) OwnFiles() bool { return s.files != nil }

// usePeerIssued puts a peer's certificate in force, or records why no peer signed.
func (s *TLS) usePeerIssued(issued *caserve.PeerCertificate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = err; err == nil {
		s.own, s.epoch, s.from = &issued.Certificate, 0, issued.Peer
	}
}

// InForce returns the certificate in force (nil: none) and the peer that signed it (empty: this process).
func (s *TLS) InForce() (own *tls.Certificate, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, s.from
}
