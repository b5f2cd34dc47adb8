package keyring

import (
	"crypto"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
)

// State is what this replica may use now. Immutable; it prints without keys.
type State struct {
	// Active signs; nil: this replica cannot sign, and Sealed says why.
	Active *issue.Authority
	Sealed error
	// Bundle is every root that peers must trust, oldest epoch first; what was known last while Sealed. Generation counts
	// its changes, and is what a certificate is journalled with.
	Bundle     []*x509.Certificate
	Generation uint64
	// Claimed are the roots that etcd holds, while Sealed and with no Bundle: the replica could not verify since its start
	// that a holder of the key encryption key wrote them. Where it remembers roots (Config.Dir), they are among those. They
	// are for asking a peer, and for who calls; nobody else is to be told them. What is revoked is as unproven then.
	Claimed []*x509.Certificate
	Epochs  []Epoch
	// CRLs has one list for each issuer whose leaves may be in use. It is nil where one of them cannot sign lists: a list
	// that is missing would fail everyone.
	CRLs []CRL
	// Lists are the user's own revocation lists (ca-crl.pem), of each issuer the newest.
	Lists []*x509.RevocationList
	// Alarm says why what etcd holds was refused; the rest of the State is what was good before. nil: no alarm.
	Alarm error

	serials, identities map[string]revoked
	minBundle           uint64 // generation of the bundle that goes with new certificates at least
}

// Epoch is what is known of one signing key.
type Epoch struct {
	Number    uint64    `json:"number"`
	Status    Status    `json:"status"`
	Origin    string    `json:"origin"` // self-signed, cacerts, istio-ca-secret
	Subject   string    `json:"subject"`
	KeyID     string    `json:"keyId"`
	Signer    string    `json:"signer"` // subject key identifier, hex: what its leaves have as authority key identifier
	Roots     []string  `json:"roots"`  // subjects
	Published uint64    `json:"published"`
	Forced    bool      `json:"forced,omitempty"`
	Created   time.Time `json:"created"`
	Since     time.Time `json:"since"`
	NotAfter  time.Time `json:"notAfter"`
}

// CRL is the revocation list of one issuer.
type CRL struct {
	Epoch  uint64
	Number uint64
	DER    []byte
}

// Callers are the roots that those who come are verified against: the Bundle, else what is Claimed.
func (s *State) Callers() []*x509.Certificate {
	if len(s.Bundle) > 0 {
		return s.Bundle
	}
	return s.Claimed
}

// RevokedIdentity says whether an identity gets no certificate any more.
func (s *State) RevokedIdentity(id spiffeid.ID) bool { _, ok := s.identities[id.String()]; return ok }

// Denied are the identities that are revoked and may have certificates that have not ended yet, sorted: who enforces what proxies
// do keeps them out of connections. known: false where nothing of the keyring could be read yet. Those of a State with Claimed
// roots are as unproven as these.
func (s *State) Denied(now time.Time) (out []Denial, known bool) {
	for id, v := range s.identities {
		if !ended(v, now) {
			out = append(out, Denial{Identity: id, Until: v.Until})
		}
	}
	slices.SortFunc(out, func(a, b Denial) int { return strings.Compare(a.Identity, b.Identity) })
	return out, len(s.Bundle)+len(s.Claimed) > 0
}

// RevokedSerial says whether a certificate was revoked; the serial is lower-case hexadecimal without leading zeros.
func (s *State) RevokedSerial(serial string) bool { _, ok := s.serials[serial]; return ok }

// String is the state without keys.
func (s *State) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "keyring generation=%d roots=%d", s.Generation, len(s.Bundle))
	for _, e := range s.Epochs {
		fmt.Fprintf(&b, " %d=%s", e.Number, e.Status)
	}
	if s.Sealed != nil {
		fmt.Fprintf(&b, " sealed=%q", s.Sealed)
	}
	if s.Alarm != nil {
		fmt.Fprintf(&b, " alarm=%q", s.Alarm)
	}
	return b.String()
}

// Format implements fmt.Formatter: no verb shows more than String.
func (s *State) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue implements slog.LogValuer.
func (s *State) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalJSON implements json.Marshaler.
func (s *State) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// signer hides a private key from everything that prints.
type signer struct{ crypto.Signer }

// Format implements fmt.Formatter.
func (signer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[sealed]") }

// MarshalText implements encoding.TextMarshaler.
func (signer) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }

func certificates(ders [][]byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for _, der := range ders {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// authority is an epoch with its key.
func (e *epoch) authority(key crypto.Signer) (*issue.Authority, error) {
	certs, err := certificates(append([][]byte{e.Cert}, e.Chain...))
	if err != nil {
		return nil, fmt.Errorf("certificates of epoch %d: %w", e.Number, err)
	}
	roots, err := certificates(e.Roots)
	if err != nil {
		return nil, fmt.Errorf("roots of epoch %d: %w", e.Number, err)
	}
	return &issue.Authority{Epoch: e.Number, Key: key, Certificate: certs[0], Chain: certs[1:], Roots: roots}, nil
}

// public is the part of a State that needs no key.
func (r *record) public() (*State, error) {
	bundle, err := certificates(r.bundle())
	if err != nil {
		return nil, fmt.Errorf("bundle of generation %d: %w", r.Generation, err)
	}
	s := &State{Bundle: bundle, Generation: r.Generation, serials: r.Serials, identities: r.Identities}
	if p := r.in(Prepared); p != nil {
		s.minBundle = p.Published
	}
	for i := range r.Epochs {
		e := &r.Epochs[i]
		a, err := e.authority(nil)
		if err != nil {
			return nil, err
		}
		info := Epoch{Number: e.Number, Status: e.Status, Origin: e.Origin, Subject: a.Certificate.Subject.String(), KeyID: e.keyID(),
			Signer: hex.EncodeToString(a.Certificate.SubjectKeyId), Published: e.Published, Forced: e.Forced, Created: e.Created, Since: e.Since, NotAfter: a.End()}
		for _, root := range a.Roots {
			info.Roots = append(info.Roots, root.Subject.String())
		}
		lists, err := e.lists()
		if err != nil {
			return nil, err
		}
		s.Lists = issue.NewestLists(s.Lists, lists...)
		s.Epochs = append(s.Epochs, info)
	}
	return s, nil
}

// lists are the user's own revocation lists of an epoch.
func (e *epoch) lists() (out []*x509.RevocationList, err error) {
	for _, der := range e.Lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("revocation lists of the user's, of epoch %d: %w", e.Number, err)
		}
		out = append(out, list)
	}
	return out, nil
}
