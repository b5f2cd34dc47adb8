package serving

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
)

// signed makes a certificate of a name for a key, signed by the issuer's key; all but leaves are of CAs.
func signed(t *testing.T, name string, key, by *ecdsa.PrivateKey, issuer string, leaf bool) []byte {
	t.Helper()
	n, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	of := &x509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: !leaf, BasicConstraintsValid: true}
	if leaf {
		of.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, of, &x509.Certificate{SerialNumber: n, Subject: pkix.Name{CommonName: issuer}}, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// ends returns both ends of a connection that buffers sent bytes until the other end reads them.
func ends(t *testing.T, path string) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("unix", path); err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// A client's certificates lead to a configured CA, or the handshake ends. If many of them may have issued one another,
// no signature is verified. A client that presents another's certificate without its key is refused as before.
// Promise: security-connections.md#handshakes
func TestPresentedCertificates(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	writePair(t, cert, key)
	rootKey, betweenKey, leafKey, strange := newKey(t), newKey(t), newKey(t), newKey(t)
	root := signed(t, "root", rootKey, rootKey, "root", false)
	between := signed(t, "between", betweenKey, rootKey, "root", false)
	leaf := signed(t, "leaf", leafKey, betweenKey, "between", true)
	same := func(n int) (all [][]byte) { // n certificates with the name of the leaf's issuer
		for range n {
			all = append(all, signed(t, "between", newKey(t), strange, "between", false))
		}
		return append([][]byte{leaf}, all...)
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(root)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(parsed)
	conf, err := ByFiles(cert, key, pool)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		chain  [][]byte
		key    *ecdsa.PrivateKey
		chains int
		says   string // empty: it is accepted
	}{
		"none":                     {nil, nil, 0, ""},
		"leaf and issuer":          {[][]byte{leaf, between}, leafKey, 1, ""},
		"with the root":            {[][]byte{leaf, between, root}, leafKey, 1, ""},
		"in another order":         {[][]byte{leaf, root, between}, leafKey, 1, ""},
		"issuer twice":             {[][]byte{leaf, between, between}, leafKey, 1, ""},
		"without the issuer":       {[][]byte{leaf}, leafKey, 0, "unknown authority"},
		"another's key":            {[][]byte{leaf, between}, strange, 0, "invalid signature"},
		"of another CA":            {[][]byte{signed(t, "leaf", leafKey, strange, "root", true)}, leafKey, 0, "unknown authority"},
		"a CA's, for servers":      {[][]byte{signed(t, "x", leafKey, rootKey, "root", false)}, leafKey, 1, ""}, // no usage is every usage (RFC 5280 4.2.1.12)
		"seven":                    {same(6), leafKey, 0, "presents 7 certificates"},
		"many of one name":         {same(3), leafKey, 0, "several certificates of one name"},
		"as many as fit in 32 KiB": {same(70), leafKey, 0, "presents 71 certificates"},
	} {
		near, far := ends(t, filepath.Join(dir, "socket"))
		go func() {
			client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return &tls.Certificate{Certificate: c.chain, PrivateKey: c.key}, nil
			}
			conn := tls.Client(near, client)
			if conn.HandshakeContext(context.Background()) == nil {
				_, _ = conn.Read(make([]byte, 1)) // the alert
			}
			near.Close()
		}()
		conn, info, err := Credentials(conf).Clone().ServerHandshake(far)
		switch {
		case c.says != "":
			if err == nil || !strings.Contains(fmt.Sprint(err), c.says) {
				t.Errorf("%s: %v, want %q", name, err, c.says)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if got := len(info.(credentials.TLSInfo).State.VerifiedChains); got != c.chains {
				t.Errorf("%s: %d chains, want %d", name, got, c.chains)
			}
			conn.Close()
		}
		far.Close()
	}
}
