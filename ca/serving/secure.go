// Package serving configures TLS for the secure gRPC address and for webhooks. The presented certificate comes from an
// operator's files or from our CA. In a process with the keyring (the signing keys of our CA), the newest state of the
// keyring determines the roots that verify callers. While this process cannot sign, a peer (another replica) can sign
// the certificate.
//
// Owns: the serving certificate, and the repeated requests to peers for one.
// Reads: states of the keyring (ca/keyring), an operator's files, the list of replicas.
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

// pairFiles reads an operator's certificate and key, and reads them again when the size or modification time of a file
// changes. While the two files do not match or cannot be read, the last good pair stays in use.
type pairFiles struct {
	cert, key string

	mu       sync.Mutex // guards the fields below; no other lock is acquired while mu is held
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

// pair returns the newest certificate and key that could be read and match each other. It fails only if there was no
// such pair so far. The error names the flags.
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
// or do not match, the last good pair stays in use.
//
// The argument clients has the roots for client certificates. If clients is not nil, a client may present a
// certificate. Its handshake fails if these roots do not verify the certificate. The gRPC server receives the verified
// chains only if it uses Credentials (of this package). If clients is nil, no client certificate is requested.
//
// ByFiles fails if the files cannot be read or parsed, or do not match. The error names the flags --tls-cert and
// --tls-key.
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

// secureBase returns the TLS settings that all secure addresses share. Dynamic record sizes are off, because they cost
// a write for each small record. Session tickets are off, because every handshake must verify the client by the newest
// state of the keyring.
func secureBase() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		CurvePreferences: curves(), DynamicRecordSizingDisabled: true, SessionTicketsDisabled: true}
}

// curves lists Envoy's default key exchanges (proto TlsParameters.ecdh_curves), and the hybrid key exchange of newer
// clients. Go also has the curves P-384 and P-521. With them, a handshake costs a server about 8 and 20 times as much.
// A client without a credential could choose them.
func curves() []tls.CurveID { return []tls.CurveID{tls.X25519MLKEM768, tls.X25519, tls.CurveP256} }

// TLS keeps the serving certificate of a process. For each state of the keyring it makes a TLS configuration. Make a
// TLS with New. Safe for concurrent use, except for Identify.
type TLS struct {
	names []string    // DNS names and IP addresses in the certificate
	id    spiffeid.ID // of the process, for its peers; zero: no SPIFFE ID
	files *pairFiles  // nil: the certificate comes from our CA

	mu    sync.Mutex // guards the fields below
	own   *tls.Certificate
	epoch uint64 // epoch of the key that signed own; 0: a peer signed own
	from  string // the peer that signed own; empty: this process signed it
	why   error  // error of the last request to peers; nil: it succeeded, or this process made own
	made  *tls.Config
	state *keyring.State   // the state for which made was created
	pair  *tls.Certificate // the certificate in made
}

// Identify sets the SPIFFE ID in the certificates that this process makes for itself with our CA. Other replicas
// recognise this process by the SPIFFE ID. Identify must be called before the first certificate is made, and not
// concurrently with other methods.
func (s *TLS) Identify(id spiffeid.ID) { s.id = id }

// New returns a TLS. If cert is empty, the TLS presents certificates of our CA for names, a list of DNS names and IP
// addresses. In this case the list must not be empty, and key is ignored. If cert is not empty, cert and key are paths
// of an operator's files, and the TLS presents the certificate in them. New keeps names, so the caller must not change
// the list.
//
// New fails if the files cannot be read or parsed, or do not match. The error names the flags --tls-cert and --tls-key.
// After an error, the TLS is not to be used.
func New(names []string, cert, key string) (*TLS, error) {
	s := &TLS{names: names}
	if cert == "" {
		return s, nil
	}
	s.files = &pairFiles{cert: cert, key: key}
	_, err := s.files.pair()
	return s, err
}

// Config returns the TLS configuration of the secure address, to be passed to Credentials. Each handshake calls the
// function state, which must not return nil. A client may present a certificate. The handshake fails if the roots of
// State.Callers do not verify this certificate, or if Under returns an error.
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

// Under returns the TLS configuration for one state of the keyring, which must not be nil. Its ClientCAs are the roots
// of State.Callers. The configuration requests no client certificate, but Config adds the request. Under returns the
// same result until the state or the certificate changes. The caller must not change the result. Errors are those of
// Certificate.
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

// Certificate returns the certificate to present at the time now, under a state of the keyring (not nil). It makes the
// certificate if needed. The result is shared, so the caller must not change it. With an operator's files, Certificate
// ignores its arguments and returns no error.
//
// Certificate fails only if this process has no unexpired certificate. The error reports that the process cannot sign,
// or that a new certificate could not be made.
func (s *TLS) Certificate(state *keyring.State, now time.Time) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.certificate(state, now)
}

// certificate returns the operator's certificate or, without operator's files, the process's certificate of our CA. A
// process that can sign replaces its certificate when the signer changes, and at half of the lifetime. If it cannot
// make a new certificate, it uses the previous one until the previous one expires. A process that cannot sign uses its
// newest certificate until it expires. A peer may have signed this certificate (PeerIssued). The caller holds s.mu.
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

// halfLife returns the middle of a certificate's lifetime, when the certificate is to be replaced.
func halfLife(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) / 2)
}

// OwnFiles reports whether New received paths of an operator's files. If so, the process needs no certificate from a
// peer.
func (s *TLS) OwnFiles() bool { return s.files != nil }

// usePeerIssued stores the certificate that a peer signed. If err is not nil, it stores only err, the reason why no
// peer signed.
func (s *TLS) usePeerIssued(issued *caserve.PeerCertificate, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why = err; err == nil {
		s.own, s.epoch, s.from = &issued.Certificate, 0, issued.Peer
	}
}

// InForce returns the newest certificate of our CA, and the address of the peer that signed it. The address is empty if
// this process signed the certificate. The certificate may have expired. InForce returns nil before the first
// certificate exists, and always with an operator's files. The certificate is shared, so the caller must not change it.
func (s *TLS) InForce() (own *tls.Certificate, from string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.own, s.from
}
