package issue

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"
)

// maxUserLists bounds ca-crl.pem, in bytes. The lists are stored in one value of etcd, and in a ConfigMap in every
// namespace.
const maxUserLists = 64 << 10

// readLists parses the user's revocation lists, ca-crl.pem, into a.Lists. If the authority's certificates or roots
// contain the issuer of a list, that issuer must have signed the list. Signatures of other lists are not checked here,
// since proxies verify them. readLists returns an error if a list revokes a certificate of the authority's own chain.
func (a *Authority) readLists(text []byte, now time.Time) error {
	if len(text) > maxUserLists {
		return fmt.Errorf("%d bytes; at most %d are accepted", len(text), maxUserLists)
	}
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			if len(bytes.TrimSpace(rest)) > 0 {
				return errors.New("is not PEM, or has text after the last PEM block")
			}
			if n := bytes.Count(text, []byte("-----BEGIN ")); n != len(a.Lists) {
				return fmt.Errorf("%d PEM blocks begin, but only %d can be read", n, len(a.Lists))
			}
			return nil
		}
		if block.Type != "X509 CRL" {
			return fmt.Errorf("PEM block %d is %.40q, not an X509 CRL", len(a.Lists)+1, block.Type)
		}
		list, err := x509.ParseRevocationList(block.Bytes)
		if err == nil {
			err = a.checkList(list, now)
		}
		if err != nil {
			return fmt.Errorf("list %d: %w", len(a.Lists)+1, err)
		}
		a.Lists = append(a.Lists, list)
	}
}

// checkList validates one list for readLists. Lists that were read before are in a.Lists.
func (a *Authority) checkList(list *x509.RevocationList, now time.Time) error {
	switch {
	case list.Number == nil:
		return fmt.Errorf("issuer %s: the list has no number (RFC 5280, section 5.2.3), which orders the lists of an issuer", list.Issuer)
	case !list.NextUpdate.IsZero() && !now.Before(list.NextUpdate):
		return fmt.Errorf("issuer %s: the list expired at %s, so proxies would refuse all certificates", list.Issuer, stamp(list.NextUpdate))
	case slices.ContainsFunc(a.Lists, func(o *x509.RevocationList) bool { return SameIssuer(o, list) }):
		return fmt.Errorf("issuer %s: an earlier list has the same issuer", list.Issuer)
	}
	var issuers []*x509.Certificate
	for _, c := range append(a.path(), a.Roots...) {
		if bytes.Equal(c.RawSubject, list.RawIssuer) {
			issuers = append(issuers, c)
		}
	}
	if len(issuers) > 0 && !slices.ContainsFunc(issuers, func(c *x509.Certificate) bool { return list.CheckSignatureFrom(c) == nil }) {
		return fmt.Errorf("issuer %s: the certificates of this name have not signed the list", list.Issuer)
	}
	for _, c := range a.path() {
		if !bytes.Equal(c.RawIssuer, list.RawIssuer) {
			continue
		}
		if slices.ContainsFunc(list.RevokedCertificateEntries,
			func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(c.SerialNumber) == 0 }) {
			return fmt.Errorf("issuer %s: the list revokes %q, which is in this CA's own chain", list.Issuer, c.Subject)
		}
	}
	return nil
}

// SameIssuer reports whether two revocation lists have equal issuer names and equal authority key identifiers.
func SameIssuer(a, b *x509.RevocationList) bool {
	return bytes.Equal(a.RawIssuer, b.RawIssuer) && bytes.Equal(a.AuthorityKeyId, b.AuthorityKeyId)
}

// NewestLists merges revocation lists into a fresh slice. For each issuer (SameIssuer) the slice has the list with the
// highest number. If several lists have that number, it has the first of them. The first argument must contain at most
// one list of each issuer. All lists must have a number. Issuers are in order of first appearance. The lists are not
// copied.
func NewestLists(have []*x509.RevocationList, more ...*x509.RevocationList) []*x509.RevocationList {
	out := slices.Clone(have)
	for _, list := range more {
		i := slices.IndexFunc(out, func(o *x509.RevocationList) bool { return SameIssuer(o, list) })
		switch {
		case i < 0:
			out = append(out, list)
		case out[i].Number.Cmp(list.Number) < 0:
			out[i] = list
		}
	}
	return out
}
