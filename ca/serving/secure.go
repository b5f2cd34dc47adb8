// Package serving configures TLS for the secure gRPC address and for webhooks. The newest state of the keyring
// decides which roots verify callers, and which certificate is presented. The certificate is an operator's, or one of
// our CA, or signed by a peer while this process cannot sign.
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

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
)

// pairFiles reads an operator's certificate and key, again after a change of a file. While the two files do not match
// (one is not written yet) or cannot be read, the last good pair stays in use.
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

// pair returns the newest matching pair. Errors, which name the flags: no pair could be read so far.
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

// ByFiles returns the TLS configuration of a process without a keyring, with an operator's certificate and key. The
// arguments cert and key are paths. Changed files take effect at the next handshake. While the files cannot be read
// or do not match, the last good pair stays in use. The pool clients verifies presented client certificates, if the
// server uses Credentials; nil: no client certificate is requested. Errors, which name the flags: the files cannot be
// read or do not match at the first reading.
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

// curves lists Envoy's key exchanges (proto TlsParameters.ecdh_curves), and the hybrid key exchange of newer clients.
// Go's other curves, P-384 and P-521, cost a server about 8 and 20 times as much per handshake, and a client without a
// credential could choose them.
func curves() []tls.CurveID { return []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256} }

// TLS holds the serving certificate of a process, and makes its TLS configurations for states of the keyring. It makes
// a new tls.Config only for a new state or certificate. Safe for concurrent use, except for Identify.
type TLS struct {
	names []string    // DNS names and IP addresses in the certificate
	id    spiffeid.ID // of the process, for its peers; zero: none
	files *pairFiles  // nil: the certificate is of our own CA

	mu    sync.Mutex // guards the fields below
	own   *tls.Certificate
	epoch uint64 // epoch of the key that signed own; 0: a peer signed own
	from  string // the peer that signed own; empty: this process signed it
	why   error  // reason of the last failed request to peers; nil: the last request succeeded
	made  *tls.Config
	state *keyring.State   // the state for which the configuration was made
	pair  *tls.Certificate // the certificate in the configuration
}

// Identify sets the SPIFFE ID in the certificates of our CA that this process makes for itself. Other replicas
// recognise this process by the SPIFFE ID. It must be called before the first certificate is made.
func (s *TLS) Identify(id spiffeid.ID) { s.id = id }

// New returns a TLS for certificates of our CA with these DNS names and IP addresses. If cert is not empty, cert and
// key are paths of an operator's files, and the certificate in them is presented instead. Errors, which name the flags:
// the files cannot be read or do not match.
func New(names []string, cert, key string) (*TLS, error) {
	s := &TLS{names: names}
	if cert == "" {
		return s, nil
	}
	s.files = &pairFiles{cert: cert, key: key}
	_, err := s.files.pair()
	return s, err
}

// Config returns the TLS configuration of the secure address, for Credentials. Each handshake calls state for the state
// of the keyring (never nil), and verifies a presented client certificate against the state's Callers. A handshake
// fails while there is no certificate to present.
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

// Under returns the TLS configuration for one state, with the state's Callers as ClientCAs. It requests no client
// certificate; Config adds the request. The result is shared: the caller must not change it. An error says why there is
// no certificate to present.
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

// Certificate returns the certificate to present under a state of the keyring, and makes it if needed. The result is
// shared: the caller must not change it. An error says why no certificate exists and this process cannot make one.
func (s *TLS) Certificate(state *keyring.State, now time.Time) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certificate(state, now)
}

// certificate returns the operator's certificate, else the process's own certificate of our CA. An own certificate is
// replaced when the signer changes, and at half of its lifetime. While this process cannot sign, the result is the
// previous certificate until it expires, or a certificate that a peer signed (PeerIssued).
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
	fresh, err := issue.Serving(state.Active, issue.ServingRequest{Names: s.names, Identity: s.id}, issue.Policy{}, now, nil)
	switch {
	case err != nil && s.own != nil && now.Before(s.own.Leaf.NotAfter):
		return s.own, nil
	case err != nil:
		return nil, fmt.Errorf("make the serving certificate: %w", err)
	}
	s.own, s.epoch, s.from, s.why = &fresh, state.Active.Epoch, "", nil
	return s.own, nil
}

// halfLife returns the middle of a certificate's lifetime, the time for its replacement.
func halfLife(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

// OwnFiles reports whether New got paths of an operator's certificate. Then no peer needs to sign one.
func (s *TLS) OwnFiles() bool { return s.files != nil }

// usePeerIssued stores a peer's certificate, or the reason (err) why no peer signed.
func (s *TLS) usePeerIssued(issued *caserve.PeerCertificate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = err; err == nil {
		s.own, s.epoch, s.from = &issued.Certificate, 0, issued.Peer
	}
}

// InForce returns the newest certificate of our CA, and the address of the peer that signed it (empty: this process).
// The certificate may have expired. It is nil before the first one, and always with an operator's files.
func (s *TLS) InForce() (own *tls.Certificate, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, s.from
}
