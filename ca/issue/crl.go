package issue

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"slices"
	"time"
)

// ErrNoCRL means that the authority's certificate is not allowed to sign revocation lists (CanRevoke). This happens
// only with a user's own CA. While that CA is in use, proxies must get no revocation list at all.
var ErrNoCRL = errors.New("the CA certificate does not allow revocation lists")

// Revoked is one entry of a revocation list.
type Revoked struct {
	Serial string    // hexadecimal, as Issued.Serial; positive, below 2^159
	At     time.Time // time of revocation; truncated to whole seconds in the list
	// Reason is a CRLReason of RFC 5280, section 5.3.1, from 0 to 10 except 7. 0 (unspecified) is omitted from the
	// list, 1 is keyCompromise.
	Reason int
}

// CRL signs the authority's revocation list and returns it as DER. The argument number must be between 0 and 2^159-1,
// and should be greater than the number of the previous list. The list begins (thisUpdate) at now-Backdate, for peers
// with slow clocks. It ends (nextUpdate) when a.Certificate ends, because peers refuse every certificate once a list is
// outdated. Entries are sorted by serial number. If several entries have the same serial number, only the entry with
// the earliest time is used. revoked may be empty. If random is nil, crypto/rand is used. Errors match ErrAuthority if
// the authority has no key or certificate, or if its certificate ended at now-Backdate or earlier. They match ErrNoCRL
// if the certificate does not allow lists (CanRevoke). Any other error means that a serial number, the list's number or
// a reason is invalid, or that reading random or signing failed.
func CRL(a *Authority, number *big.Int, revoked []Revoked, now time.Time, random io.Reader) ([]byte, error) {
	if random == nil {
		random = rand.Reader
	}
	if a == nil || a.Key == nil || a.Certificate == nil {
		return nil, fmt.Errorf("%w: no key is loaded", ErrAuthority)
	}
	issuer := a.Certificate
	if !a.CanRevoke() {
		return nil, fmt.Errorf("revocation list of epoch %d: %w", a.Epoch, ErrNoCRL)
	}
	if number == nil || number.Sign() < 0 || number.BitLen() > 159 {
		return nil, fmt.Errorf("revocation list of epoch %d: number %v is not in 0..2^159-1", a.Epoch, number)
	}
	entries, err := crlEntries(revoked)
	if err != nil {
		return nil, fmt.Errorf("revocation list of epoch %d: %w", a.Epoch, err)
	}
	update := now.Add(-Backdate)
	if !update.Before(issuer.NotAfter) {
		return nil, fmt.Errorf("%w: epoch %d expired at %s", ErrAuthority, a.Epoch, stamp(issuer.NotAfter))
	}
	der, err := x509.CreateRevocationList(random, &x509.RevocationList{
		Number:                    number,
		ThisUpdate:                update.UTC().Truncate(time.Second),
		NextUpdate:                issuer.NotAfter,
		RevokedCertificateEntries: entries,
	}, issuer, a.Key)
	if err != nil {
		return nil, fmt.Errorf("sign revocation list of epoch %d: %w", a.Epoch, err)
	}
	return der, nil
}

// CanRevoke reports whether the authority's certificate is allowed to sign revocation lists: it has the key usage
// cRLSign and a subject key identifier. Certificate must not be nil.
func (a *Authority) CanRevoke() bool {
	return a.Certificate.KeyUsage&x509.KeyUsageCRLSign != 0 && len(a.Certificate.SubjectKeyId) != 0
}

func crlEntries(revoked []Revoked) ([]x509.RevocationListEntry, error) {
	out := make([]x509.RevocationListEntry, 0, len(revoked))
	for _, r := range revoked {
		n, ok := new(big.Int).SetString(r.Serial, 16)
		if !ok || n.Sign() <= 0 || n.BitLen() > 159 {
			return nil, fmt.Errorf("serial %.60q is not a positive hexadecimal number of at most 20 bytes", r.Serial)
		}
		if r.Reason < 0 || r.Reason > 10 || r.Reason == 7 {
			return nil, fmt.Errorf("serial %s: reason %d is not in RFC 5280", r.Serial, r.Reason)
		}
		out = append(out, x509.RevocationListEntry{
			SerialNumber: n, RevocationTime: r.At.UTC().Truncate(time.Second), ReasonCode: r.Reason,
		})
	}
	slices.SortFunc(out, func(x, y x509.RevocationListEntry) int {
		if c := x.SerialNumber.Cmp(y.SerialNumber); c != 0 {
			return c
		}
		return x.RevocationTime.Compare(y.RevocationTime)
	})
	return slices.CompactFunc(out, func(x, y x509.RevocationListEntry) bool {
		return x.SerialNumber.Cmp(y.SerialNumber) == 0
	}), nil
}

// EncodeCRL encodes a revocation list in DER as PEM.
func EncodeCRL(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}
