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

// State is a snapshot of the keyring as this replica may use it. Callers must not change it, nor the values to which
// its fields refer. A printed State shows no keys.
type State struct {
	// Active signs certificates. nil: this replica cannot sign, and Sealed has the reason.
	Active *issue.Authority
	Sealed error // the reason why Active is nil; nil while Active is set
	// Bundle has every root that peers must trust, each once, oldest epoch first. While Sealed is set, Bundle has the
	// last verified roots. Empty: this replica has verified no roots yet. Generation counts the changes of the bundle.
	// Journal entries refer to a bundle by its Generation.
	Bundle     []*x509.Certificate
	Generation uint64
	// Claimed has the unverified roots of etcd, while Sealed is set and Bundle is empty. Unverified means that this
	// replica has not checked yet that a holder of the key encryption key wrote the roots. Claimed has only roots that
	// Config.Roots returns too. If Config.Roots is nil, Claimed has only roots that are remembered in Config.Dir. If no
	// roots are remembered either, it has all roots in etcd. Use Claimed to query peers and to verify callers, but do
	// not publish it. While Claimed is in use, revocations are unverified too.
	Claimed []*x509.Certificate
	Epochs  []Epoch // sorted by number, including the newest 16 retired epochs
	// CRLs has one list for each unretired epoch, in order of epochs. It is nil if the issuer of one of these epochs
	// cannot sign lists, since proxies reject every certificate whose issuer's list is missing. It may be nil while
	// Sealed is set.
	CRLs []CRL
	// Lists are the user's own revocation lists (ca-crl.pem), the newest of each issuer.
	Lists []*x509.RevocationList
	// Alarm is the reason why the keyring in etcd was refused; nil: the keyring was not refused. While Alarm is set,
	// the other fields are those of the previous keyring. But Active is nil if a peer remembers a newer keyring. If
	// Active is nil while Alarm is set, Sealed equals Alarm.
	Alarm error

	serials, identities map[string]revoked
	minBundle           uint64 // smallest bundle generation that new certificates may carry
}

// Epoch describes one signing certificate and its key.
type Epoch struct {
	Number    uint64    `json:"number"`
	Status    Status    `json:"status"`
	Origin    string    `json:"origin"`           // self-signed, cacerts, istio-ca-secret
	Subject   string    `json:"subject"`          // of the signing certificate, as RFC 2253 text
	KeyID     string    `json:"keyId"`            // first 10 bytes of the SHA-256 digest of the public key, hexadecimal
	Signer    string    `json:"signer"`           // subject key identifier, hexadecimal: the authority key identifier of leaves
	Roots     []string  `json:"roots"`            // subjects of its roots, as RFC 2253 text
	Published uint64    `json:"published"`        // Generation of the first Bundle with its roots
	Forced    bool      `json:"forced,omitempty"` // an operator forced it to sign without waiting for holders of leaves
	Created   time.Time `json:"created"`          // time at which it joined the keyring
	Since     time.Time `json:"since"`            // time at which it got its Status
	NotAfter  time.Time `json:"notAfter"`         // from this time on, the epoch cannot sign (issue.Authority.End)
}

// CRL is the keyring's revocation list of one issuer: the signing certificate of one epoch.
type CRL struct {
	Epoch  uint64 // number of the epoch
	Number uint64 // the CRL number, which grows with each list of the epoch
	DER    []byte // the signed list
}

// Callers returns the roots to verify clients against: Bundle or, if that is empty, Claimed. The result may be empty,
// and must not be changed.
func (s *State) Callers() []*x509.Certificate {
	if len(s.Bundle) > 0 {
		return s.Bundle
	}
	return s.Claimed
}

// RevokedIdentity reports whether an identity is denied. It returns false while no keyring is known.
func (s *State) RevokedIdentity(id spiffeid.ID) bool { _, ok := s.identities[id.String()]; return ok }

// Denied lists the denied identities that may have unexpired certificates, sorted by Identity. Denial.Leaves is 0.
// Proxies must refuse these identities. An identity is listed until 15 minutes after Denial.Until, for proxies with
// slow clocks, or always if Until is zero. While Bundle and Claimed are both empty, known is false, and callers must
// not rely on the list. While only Bundle is empty, the list is unverified. The caller owns the result.
func (s *State) Denied(now time.Time) (out []Denial, known bool) {
	for id, v := range s.identities {
		if !ended(v, now) {
			out = append(out, Denial{Identity: id, Until: v.Until})
		}
	}
	slices.SortFunc(out, func(a, b Denial) int { return strings.Compare(a.Identity, b.Identity) })
	return out, len(s.Bundle)+len(s.Claimed) > 0
}

// RevokedSerial reports whether the certificate with a serial number is revoked. The argument is lower-case hexadecimal
// without leading zeros. The result is false while no keyring is known, and if only the certificate's identity is
// denied.
func (s *State) RevokedSerial(serial string) bool { _, ok := s.serials[serial]; return ok }

// String describes the state in one line, without keys.
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

// MarshalJSON implements json.Marshaler: it encodes the result of String.
func (s *State) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// signer is a private key that prints as [sealed].
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

// authority converts an epoch to an issue.Authority, without Lists. key may be nil.
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

// public builds a State without the fields that need keys.
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
			Signer: hex.EncodeToString(a.Certificate.SubjectKeyId), Published: e.Published,
			Forced: e.Forced, Created: e.Created, Since: e.Since, NotAfter: a.End()}
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

// lists parses the user's own revocation lists of an epoch.
func (e *epoch) lists() (out []*x509.RevocationList, err error) {
	for _, der := range e.Lists {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return nil, fmt.Errorf("the user's revocation lists of epoch %d: %w", e.Number, err)
		}
		out = append(out, list)
	}
	return out, nil
}
