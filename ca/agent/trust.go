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

// source identifies the origin of roots. The roots of all sources are trusted. A root stays trusted while at least one
// source has it. So a lagging CA replica or file can delay a rotation but not break it.
type source uint8

const (
	fromConfig source = iota
	fromFile
	fromCA
	fromPush
)

// SetTrust replaces the roots that the control plane pushed, and all revocation lists. Both arguments are PEM. The text
// roots must contain at least one root; the text crl may be empty. Roots from the configuration, the root file and the
// CA stay. If an issuer's list in use has a higher number than its pushed list, the list in use stays. A list in use is
// dropped if its issuer has no pushed list. Errors: a text does not parse, there is no root, an issuer has two lists,
// or a list has no number or no key identifier of its issuer. With an error nothing changes. The arguments are not
// retained.
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

// readRoots reads the root file. If the file cannot be read or parsed, the roots read before stay in effect.
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
		a.cfg.Log.Warn("root file cannot be used; the roots read before stay in effect", "file", a.cfg.RootFile, "error", err)
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

// Roots returns the trusted roots of all sources, each once, sorted by their DER encoding. The result is nil while no
// source has roots. The caller owns the slice, but must not modify the certificates.
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

// publish passes certificate, key, roots and revocation lists to Envoy. It writes all of them except the lists to the
// output directory. Before the first certificate, publish does nothing. It holds a.mu throughout, so that an older
// state never replaces a newer one.
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
		// Envoy refuses a leaf if a.crls has no list of its issuer. A root from the CA or the file may arrive before
		// the control plane pushes the root's list. Such a root is trusted, but Envoy's acknowledgement of the root is
		// not reported. So the CA does not sign leaves under this root yet.
		held = a.trust[fromPush]
	}
	a.hub.set(certificateSecret(certificateName, id.Chain, a.key), trustSecret(bundle, a.crls.encode(), fingerprints(held)))
	if a.out == nil {
		return
	}
	err := a.out.write(map[string][]byte{"cert-chain.pem": id.Chain, "key.pem": a.key, "root-cert.pem": bundle})
	if err != nil {
		a.cfg.Log.Warn("writing certificate files failed; the directory may still have the old ones", "directory", a.out.dir, "error", err)
	}
}
