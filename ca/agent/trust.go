package agent

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
)

// source is where roots come from. What is trusted is the union: a root goes when no source names it any more, so a CA
// replica or a file that lags can delay a rotation and never break one.
type source uint8

const (
	fromConfig source = iota
	fromFile
	fromCA
	fromPush
)

// SetTrust takes the bundle that the control plane pushed (PEM), and revocation lists for it (PEM; nil: none). It replaces
// what was pushed before, but of one issuer's lists the one with the highest number stays. What is not valid changes
// nothing. An error says what does not parse.
func (a *Agent) SetTrust(roots, crl []byte) error {
	certs, err := parseCertificates(roots)
	if err != nil {
		return fmt.Errorf("pushed roots: %w", err)
	}
	revoked, err := parseLists(crl)
	if err != nil {
		return fmt.Errorf("pushed revocation lists: %w", err)
	}
	a.mu.Lock()
	a.trust[fromPush], a.crls = certs, revoked.follow(a.crls)
	a.mu.Unlock()
	a.publish()
	return nil
}

// readRoots reads the root file again. A file that cannot be read leaves the roots of it as they were.
func (a *Agent) readRoots() {
	if a.cfg.RootFile == "" {
		return
	}
	text, err := os.ReadFile(a.cfg.RootFile)
	var certs []*x509.Certificate
	if err == nil {
		certs, err = parseCertificates(text)
	}
	if err != nil {
		a.cfg.Log.Warn("root file not taken; the roots read before stay", "file", a.cfg.RootFile, "error", err)
		return
	}
	a.mu.Lock()
	same := slices.EqualFunc(a.trust[fromFile], certs, (*x509.Certificate).Equal)
	a.trust[fromFile] = certs
	a.mu.Unlock()
	if !same {
		a.publish()
	}
}

// Roots is the union of all roots, ordered by content, each once.
func (a *Agent) Roots() []*x509.Certificate {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.union()
}

func (a *Agent) union() []*x509.Certificate {
	var all []*x509.Certificate
	for _, certs := range a.trust {
		all = append(all, certs...)
	}
	slices.SortFunc(all, func(x, y *x509.Certificate) int { return bytes.Compare(x.Raw, y.Raw) })
	return slices.CompactFunc(all, (*x509.Certificate).Equal)
}

func fingerprints(roots []*x509.Certificate) []string {
	var out []string
	for _, r := range roots {
		sum := sha256.Sum256(r.Raw)
		out = append(out, hex.EncodeToString(sum[:]))
	}
	slices.Sort(out)
	return out
}

// publish gives what is held to Envoy, and to the directory. Nothing is published before there is a certificate. The lock
// is held throughout, so an older state never overwrites a newer one.
func (a *Agent) publish() {
	a.mu.Lock()
	defer a.mu.Unlock()
	id := a.current.Load()
	if id == nil {
		return
	}
	roots := a.union()
	var bundle []byte
	for _, r := range roots {
		bundle = append(bundle, encode(r)...)
	}
	held := roots
	if len(a.crls) > 0 {
		// Envoy refuses a leaf whose issuer has no list here. So a root that came without one, ahead of the push, is trusted but
		// not reported as held: nothing must be signed under it before its list is here too.
		held = a.trust[fromPush]
	}
	a.hub.set(certificateSecret(certificateName, id.Chain, a.key), trustSecret(bundle, a.crls.encode(), fingerprints(held)))
	if a.out == nil {
		return
	}
	err := a.out.write(map[string][]byte{"cert-chain.pem": id.Chain, "key.pem": a.key, "root-cert.pem": bundle})
	if err != nil {
		a.cfg.Log.Warn("certificate files not written; the old ones stay", "directory", a.out.dir, "error", err)
	}
}
