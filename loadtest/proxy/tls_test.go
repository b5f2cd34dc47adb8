package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
)

// authority signs certificates for a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	c := a.sign(root, nil)
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	a.pool.AddCert(a.cert)
	return a
}

// sign issues a certificate; without a parent it is self-signed.
func (a *authority) sign(template *x509.Certificate, parent *x509.Certificate) *tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	signer := a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) leaf(spiffe string, names ...string) *tls.Certificate {
	c := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: names}
	if u, err := url.Parse(spiffe); err == nil && spiffe != "" {
		c.URIs = []*url.URL{u}
	}
	return a.sign(c, a.cert)
}

// TestMutualTLS gives each proxy its own certificate; a proxy without one is counted as a separate error.
func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	var mu sync.Mutex
	seen := map[string]bool{}
	s := serve(t, &tls.Config{Certificates: []tls.Certificate{*a.leaf("", "istiod.test")},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool, NextProtos: []string{"h2"},
		VerifyConnection: func(cs tls.ConnectionState) error {
			mu.Lock()
			defer mu.Unlock()
			seen[cs.PeerCertificates[0].URIs[0].String()] = true
			return nil
		}})
	f := fleet(t, 0, Config{TLS: func(id Identity) (*tls.Config, error) {
		if id.Name == "p9" {
			return nil, errors.New("no certificate")
		}
		return &tls.Config{RootCAs: a.pool, ServerName: "istiod.test", Certificates: []tls.Certificate{*a.leaf(id.SPIFFE("td"))}}, nil
	}}, s)
	ids := identities(10)
	for i := range ids {
		ids[i].ServiceAccount = ids[i].Name
	}
	f.Add(ids...)
	join(t, f, 9)
	p := f.Watch(Change{Type: xds.Endpoint, Name: "a"})
	s.set(xds.Endpoint, "a", "2", endpoints("a", 2))
	s.say(xds.Endpoint, []string{"a"}, nil)
	if o := p.Wait(t.Context()); o.Acked != 9 {
		t.Errorf("%+v", o)
	}
	f.Reconnect(First(9), Reconnect{})
	eventually(t, "all have resumed", func() bool { return f.Stats().Resume.Count() == 9 })
	if len(seen) != 9 || !seen["spiffe://td/ns/ns/sa/p3"] {
		t.Errorf("%v", seen)
	}
	if st := f.Stats(); st.Ended["io"] == 0 || st.Errors["io"] != "tls: no certificate" {
		t.Errorf("%v %v", st.Ended, st.Errors)
	}
	clean(t, f)
}
