package issue

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"
)

// provenOID is the leaf's extension with the time when a token last proved the leaf's identity, in Unix seconds (an
// INTEGER; not critical). Renewals copy the extension, so that every replica can read the time from the leaf. The OID
// is below the arc for experiments (1.3.6.1.3). An experimental number suffices, because only Navarch's CA writes the
// extension, and other CAs' leaves are not searched for it (attest.Certificates.Foreign).
var provenOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 1}

// Proven returns the time when a token last proved a leaf's identity. If the leaf does not state that time, because an
// older version of this CA or another CA issued it, the result is the NotBefore of the leaf.
func Proven(leaf *x509.Certificate) time.Time {
	if at, says := provenAt(leaf); says {
		return at
	}
	return leaf.NotBefore
}

// Follows returns the time when a token last proved a leaf's identity, as Proven does. If the leaf does not state that
// time, the result is IssuedAt, which is later than the result of Proven by Backdate. Use Follows for checks that must
// not mistake the leaf for an older one.
func Follows(leaf *x509.Certificate) time.Time {
	if at, says := provenAt(leaf); says {
		return at
	}
	return IssuedAt(leaf)
}

// IssuedAt returns the time when a leaf was issued, as NotBefore plus Backdate. The result is too late if the CA's
// certificate began less than Backdate before the issue, and imprecise for leaves of another CA or another
// Policy.Backdate.
func IssuedAt(leaf *x509.Certificate) time.Time { return leaf.NotBefore.Add(Backdate) }

func provenAt(leaf *x509.Certificate) (at time.Time, says bool) {
	for _, e := range leaf.Extensions {
		var seconds int64
		if !e.Id.Equal(provenOID) {
			continue
		}
		if rest, err := asn1.Unmarshal(e.Value, &seconds); err == nil && len(rest) == 0 {
			return time.Unix(seconds, 0), true
		}
	}
	return time.Time{}, false
}

func proven(at time.Time) ([]pkix.Extension, error) {
	if at.IsZero() {
		return nil, nil
	}
	value, err := asn1.Marshal(at.Unix())
	return []pkix.Extension{{Id: provenOID, Value: value}}, err
}
