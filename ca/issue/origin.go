package issue

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
)

// Origin identifies the token by which the first leaf of a series of renewals was issued. All leaves of the series have
// the same Origin. So limits per token count the series once.
type Origin struct {
	Pod    string `asn1:"utf8"` // name of the Pod that the token was bound to; empty: the token was not bound to a Pod
	PodUID string `asn1:"utf8"` // uid of the Pod; empty: not in the token
	// Token identifies a token that is bound to no Pod. If the first leaf had no Origin, Token is that leaf's serial
	// number.
	Token string `asn1:"utf8"`
	// Cluster is the cluster whose keys verified the token; empty: unknown.
	Cluster string `asn1:"utf8"`
}

// originOID is the leaf's extension with its Origin (a SEQUENCE of UTF8Strings; not critical). The OID is experimental,
// as provenOID is.
var originOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 2}

// OriginOf returns the Origin recorded in a leaf. The result is zero if the leaf has no readable Origin. An older
// version of this CA or another CA issued such a leaf, or no Origin was requested.
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
