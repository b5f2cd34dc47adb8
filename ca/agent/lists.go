package agent

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// lists are revocation lists, at most one for each issuer.
type lists []*x509.RevocationList

// parseLists parses PEM that contains only revocation lists, at most one for each issuer. For an empty text it returns
// nil. parseLists does not verify the signatures of the lists. Envoy does, because it has the issuers.
func parseLists(text []byte) (lists, error) {
	var out lists
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return nil, fmt.Errorf("%d bytes that are not PEM", len(rest))
			}
			if n := bytes.Count(text, []byte("-----BEGIN ")); n != len(out) { // pem.Decode skips broken blocks
				return nil, fmt.Errorf("%d PEM blocks begin, but only %d can be decoded", n, len(out))
			}
			return out, nil
		}
		if block.Type != "X509 CRL" {
			return nil, fmt.Errorf("a PEM block %.40q among the revocation lists", block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err != nil {
			return nil, err
		}
		if list.Number == nil || len(list.AuthorityKeyId) == 0 {
			return nil, fmt.Errorf("the revocation list of %s has no number, or no key identifier of its issuer", list.Issuer)
		}
		if out.sameIssuer(list) != nil {
			return nil, fmt.Errorf("two revocation lists of %s", list.Issuer)
		}
		out = append(out, list)
	}
}

// sameIssuer returns the list in l that has the same issuer as the argument. The result is nil if l has no such list.
func (l lists) sameIssuer(other *x509.RevocationList) *x509.RevocationList {
	for _, list := range l {
		if bytes.Equal(list.RawIssuer, other.RawIssuer) && bytes.Equal(list.AuthorityKeyId, other.AuthorityKeyId) {
			return list
		}
	}
	return nil
}

// follow returns one list for each issuer in l. It takes an issuer's list from l, unless the parameter held has a list
// of this issuer with a higher number. So a lagging replica of the control plane does not undo a revocation. The result
// has no lists of issuers that are missing from l.
func (l lists) follow(held lists) lists {
	out := make(lists, len(l))
	for i, list := range l {
		out[i] = list
		if before := held.sameIssuer(list); before != nil && before.Number.Cmp(list.Number) > 0 {
			out[i] = before
		}
	}
	return out
}

func (l lists) encode() (text []byte) {
	for _, list := range l {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: list.Raw})...)
	}
	return text
}
