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

// source is a source of roots. All sources together are trusted. A root is dropped once no source has it, so a lagging
// CA replica or file can delay a rotation but not break one.
type source uint8

const (
	fromConfig source = iota
	fromFile
	fromCA
	fromPush
)

// SetTrust replaces the roots (PEM) that the control plane pushed, and their revocation lists (PEM; nil: none). Of each
// issuer's lists the one with the highest number stays. The error says what does not parse; nothing is changed then.
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

// readRoots reads the root file. If it cannot be read, the roots read before stay.
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

// Roots returns all roots, ordered by content, each once.
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

// publish passes the identity and trust to Envoy and to the directory, once there is a certificate. It holds the lock
// throughout, so an older state never replaces a newer one.
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
		// Envoy refuses a leaf whose issuer has no list here. A root that came before its list, ahead of the push, is
		// therefore trusted but not reported as held: nothing may be signed under it yet.
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
