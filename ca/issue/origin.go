package issue

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// Origin is what proved the identity of a leaf in the first place. However many certificates follow from one token, all of them say the
// same, so that what they may have is counted once (issue 12, item 9).
type Origin struct {
	Pod    string `asn1:"utf8"` // that the token was bound to; empty: to none
	PodUID string `asn1:"utf8"` // empty: the token did not say
	Token  string `asn1:"utf8"` // what tells tokens without a Pod from each other; or the serial number of a leaf that had no origin
	// Cluster is the one whose keys verified the token; empty: that is not known.
	Cluster string `asn1:"utf8"`
}

// originOID is the extension of a leaf with its Origin (a SEQUENCE of UTF8Strings; not critical). See provenOID.
var originOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 2}

// OriginOf is what a leaf says of its origin; zero: it was issued by an older version, or by another CA.
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
