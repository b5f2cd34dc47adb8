package issue

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// Origin identifies the credential behind a leaf: the first proof of its identity. All certificates that go back to one
// token have the same Origin, so that they are counted once.
type Origin struct {
	Pod    string `asn1:"utf8"` // Pod that the token was bound to; empty: unbound
	PodUID string `asn1:"utf8"` // empty: not in the token
	Token  string `asn1:"utf8"` // distinguishes tokens without a Pod; for a renewed leaf without an origin its serial number
	// Cluster is the cluster whose keys verified the token; empty: unknown.
	Cluster string `asn1:"utf8"`
}

// originOID is the leaf's extension with its Origin (a SEQUENCE of UTF8Strings; not critical). See provenOID.
var originOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 2}

// OriginOf returns the Origin in a leaf. Zero: an older version or another CA issued the leaf, without an Origin.
func OriginOf(leaf *x509.Certificate) Origin {
	for _, e := range leaf.Extensions {
		var o Origin
		if !e.Id.Equal(originOID) {
			continue
		}
		if rest, err := asn1.Unmarshal(e.Value, &o); err == nil && len(rest) == 0 {
			return o
		}
	}
	return Origin{}
}

func (o Origin) extensions() ([]pkix.Extension, error) {
	if o == (Origin{}) {
		return nil, nil
	}
	value, err := asn1.Marshal(o)
	return []pkix.Extension{{Id: originOID, Value: value}}, err
}
