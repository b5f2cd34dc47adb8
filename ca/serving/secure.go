// Package serving is the TLS of the secure gRPC address: the certificate that a process presents (an operator's, one of our own CA, or one
// that a peer issued while this process cannot sign), and the roots that callers are verified against, by the newest state of the keyring.
//
// Owns: the serving certificate, and the loop that asks peers for one.  Reads: states of ca/keyring, an operator's files, the fleet.
// Never: says who a caller is, nor issues a certificate to anybody else.
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

// pairFiles are an operator's certificate and key, read again when a file changed. What does not fit together (one of two
// was written yet) leaves the last good pair.
type pairFiles struct {
	cert, key string

	mu       sync.Mutex // a leaf
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

// pair is the newest that fits together.
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

// ByFiles is the TLS of a process that follows no keyring: an operator's certificate and key, and a client certificate is verified where
// it is presented and there are clients' roots; nil: none is asked for. Errors name flags.
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

// secureBase is what all secure addresses have in common. Records are not sized to how the connection goes: that is for
// pages that are shown while they come, and costs a write for each of the small ones. Sessions are not resumed: agents keep
// none, so that a ticket would be work for nothing, and every handshake is judged by the newest state.
func secureBase() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, CurvePreferences: curves(), DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true}
}

// curves are those that keys are exchanged by: the ones that Envoy offers (proto TlsParameters.ecdh_curves) and the hybrid one of newer clients. Those that Go
// takes beside them, P-384 and P-521, cost a server some 8 and 20 times as much for each handshake, which a client without any credential may choose.
func curves() []tls.CurveID { return []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256} }

// TLS is what the secure address of a process that follows the keyring presents and trusts: one tls.Config for each state of the
// keyring and each serving certificate. Its methods may be called from any goroutine.
type TLS struct {
	names []string   // of the certificate
	files *pairFiles // nil: our own CA's certificate is served

	mu    sync.Mutex // guards what follows
	own   *tls.Certificate
	epoch uint64 // that issued own; 0: a peer's
	from  string // the peer that signed own; empty: this process did
	why   error  // no peer signed when one was asked last
	made  *tls.Config
	state *keyring.State   // that made is of
	pair  *tls.Certificate // in made
}

// New makes one whose certificate has these names, or is an operator's, in files; empty: there are none. Errors name flags.
func New(names []string, cert, key string) (*TLS, error) {
	s := &TLS{names: names}
	if cert == "" {
		return s, nil
	}
	s.files = &pairFiles{cert: cert, key: key}
	_, err := s.files.pair()
	return s, err
}

// Config asks state for the keyring at each handshake.
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

// Under is the configuration under one state, which asks for no certificate yet (Config does). An error: there is no certificate to present.
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

// Certificate is what the secure address presents under a state of the keyring; an error: there is none.
func (s *TLS) Certificate(state *keyring.State, now time.Time) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certificate(state, now)
}

// certificate is the operator's, or the process's own from our CA: made again when the signer changes, and at half of its
// life. While this process cannot sign it is the one made before, or one that a peer signed (peerIssued).
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

// halfLife is when a certificate is to be replaced.
func halfLife(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

// OwnFiles says whether the certificate is an operator's: then peers are asked for none.
func (s *TLS) OwnFiles() bool { return s.files != nil }

// usePeerIssued puts a certificate that a peer signed in force, or notes why there is none.
func (s *TLS) usePeerIssued(issued *caserve.PeerCertificate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = err; err == nil {
		s.own, s.epoch, s.from = &issued.Certificate, 0, issued.Peer
	}
}

// Have is the certificate in force, and the peer that signed it; nil and empty where there is none, or this process did.
func (s *TLS) Have() (own *tls.Certificate, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, s.from
}
