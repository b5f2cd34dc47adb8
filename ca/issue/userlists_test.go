package issue

import (
	"crypto/rand"
	"crypto/x509"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// The user's lists are accepted if each is complete, current, and signed by its issuer, if that is known. Lists that
// revoke the CA itself make it unusable.
// Promise: security-ca.md#your-own-ca
func TestUserLists(t *testing.T) {
	td, now := spiffeid.RequireTrustDomainFromString("cluster.local"), time.Now()
	self := func(epoch uint64) *Authority {
		a, err := SelfSigned(td, epoch, 100*time.Hour, now, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	root, stranger := self(1), self(2)
	below := self(3)
	template := *below.Certificate
	der, err := x509.CreateCertificate(rand.Reader, &template, root.Certificate, below.Key.Public(), root.Key)
	if err != nil {
		t.Fatal(err)
	}
	if below.Certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	below.Roots = []*x509.Certificate{root.Certificate}
	list := func(by *Authority, number int64, change func(*x509.RevocationList)) []byte {
		l := &x509.RevocationList{Number: big.NewInt(number), ThisUpdate: now.Add(-time.Hour), NextUpdate: now.Add(time.Hour)}
		if change != nil {
			change(l)
		}
		der, err := x509.CreateRevocationList(rand.Reader, l, by.Certificate, by.Key)
		if err != nil {
			t.Fatal(err)
		}
		return EncodeCRL(der)
	}
	revoking := func(serial *big.Int) func(*x509.RevocationList) {
		return func(l *x509.RevocationList) {
			l.RevokedCertificateEntries = []x509.RevocationListEntry{{SerialNumber: serial, RevocationTime: now}}
		}
	}
	forged := *stranger
	forged.Certificate = &x509.Certificate{RawSubject: root.Certificate.RawSubject, SubjectKeyId: root.Certificate.SubjectKeyId, KeyUsage: x509.KeyUsageCRLSign}
	for name, c := range map[string]struct {
		text  []byte
		lists int
		says  string
	}{
		"none":                         {nil, 0, ""},
		"of the root":                  {list(root, 1, nil), 1, ""},
		"of root and of others":        {slices.Concat(list(root, 1, revoking(big.NewInt(5))), list(stranger, 1, nil)), 2, ""},
		"out of date":                  {list(root, 1, func(l *x509.RevocationList) { l.NextUpdate = now.Add(-time.Minute) }), 0, "list 1: issuer CN="},
		"twice":                        {slices.Concat(list(root, 1, nil), list(root, 2, nil)), 0, "an earlier list has the same issuer"},
		"another's in the root's name": {list(&forged, 1, nil), 0, "the certificates of this name have not signed the list"},
		"it revokes the CA":            {list(root, 1, revoking(below.Certificate.SerialNumber)), 0, "which is in this CA's own chain"},
		"a broken one first": {slices.Concat([]byte("-----BEGIN X509 CRL-----\n?\n-----END X509 CRL-----\n"), list(root, 1, nil)), 0,
			"2 PEM blocks begin, but only 1 can be read"},
		"no PEM":        {[]byte("garbage"), 0, "is not PEM"},
		"a certificate": {EncodeCertificates(root.Certificate), 0, "not an X509 CRL"},
		"too much":      {make([]byte, maxUserLists+1), 0, "at most 65536"},
	} {
		a := *below
		err := a.readLists(c.text, now)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || err == nil && len(a.Lists) != c.lists {
			t.Errorf("%s: %d lists, %v", name, len(a.Lists), err)
		}
	}
}

// Of one issuer the list with the highest number stays, whatever the order in which they come.
// Promise: security-ca.md#your-own-ca
func TestNewestLists(t *testing.T) {
	list := func(issuer string, number int64) *x509.RevocationList {
		return &x509.RevocationList{RawIssuer: []byte(issuer), Number: big.NewInt(number)}
	}
	a1, a2, b1 := list("a", 1), list("a", 2), list("b", 1)
	for _, order := range [][]*x509.RevocationList{{a1, b1, a2}, {a2, b1, a1}, {a1, a2, b1}} {
		got := NewestLists(nil, order...)
		if len(got) != 2 || !slices.Contains(got, a2) || !slices.Contains(got, b1) {
			t.Errorf("of %v there are %v", order, got)
		}
	}
}
