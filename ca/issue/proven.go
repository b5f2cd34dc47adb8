package issue

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"time"
)

// provenOID is the extension of a leaf that says when its identity was proven by a token last, in Unix seconds (an INTEGER; not critical).
// It goes from certificate to certificate as these are renewed, so that every replica knows it without asking (issue 12, item 4). It is
// below the arc for experiments (1.3.6.1.3): only our own CA writes it, and it counts only where that is the mesh's (attest.Certificates.Foreign).
var provenOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 1}

// Proven is when the identity of a leaf was proven by a token last. One that does not say counts from its own beginning: an older version
// issued it.
func Proven(leaf *x509.Certificate) time.Time {
	if at, says := provenAt(leaf); says {
		return at
	}
	return leaf.NotBefore
}

// Follows is the time from which what a leaf says is true: that at which a token proved it. A leaf that does not say, of an older version, counts
// from when it was issued.
func Follows(leaf *x509.Certificate) time.Time {
	if at, says := provenAt(leaf); says {
		return at
	}
	return IssuedAt(leaf)
}

// IssuedAt is when a leaf was issued, by its beginning, which lies Backdate before that, unless its CA is younger.
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
