package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"math/big"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
	sim "navarch.io/navarch/loadtest/proxy"
)

// fleetCA is the CA of fleets in tests whose replicas have no role ca: an operator's own, with certificates in files.
// Tests about the mesh's CA use an enrolment instead.
var fleetCA sharedAuthority

// sharedAuthority is an authority that is created by the first test that uses it. It issues client certificates without
// files, one for each proxy, as in a mesh.
type sharedAuthority struct {
	once   sync.Once
	ca     *authority
	key    *ecdsa.PrivateKey // one for all proxies, because the test is about the servers
	serial atomic.Int64
}

func (s *sharedAuthority) authority(t testing.TB) *authority {
	t.Helper()
	s.once.Do(func() {
		dir, err := os.MkdirTemp("", "navarch-e2e-ca-")
		if err != nil {
			t.Fatal(err)
		}
		ca := newAuthorityIn(t, dir)
		ca.issue(t, "server", "")
		s.key = newKey(t)
		s.ca = ca
	})
	if s.ca == nil {
		t.Fatal("the CA of the fleets could not be made")
	}
	return s.ca
}

// remove deletes the authority's files.
func (s *sharedAuthority) remove() error {
	if s.ca == nil {
		return nil
	}
	return os.RemoveAll(s.ca.dir)
}

// mtls returns args with the arguments of a secure address, for a process with role xds and without role ca. The
// address verifies the proxies of fleets. Thousands of proxies connect from one address, as from behind a gateway.
func mtls(t testing.TB, args ...string) []string {
	t.Helper()
	ca := fleetCA.authority(t)
	return append(args, "--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"),
		"--shared-sources", "127.0.0.1/32")
}

// xdsReplica starts a process with role xds that serves fleets over mTLS.
func xdsReplica(t testing.TB, args ...string) *daemon {
	t.Helper()
	return start(t, mtls(t, append([]string{"--roles=xds"}, args...)...)...)
}

// proxies returns the TLS configuration of the proxies of one fleet (sim.Config.TLS): each has its own certificate.
func (s *sharedAuthority) proxies(t testing.TB) func(sim.Identity) (*tls.Config, error) {
	t.Helper()
	ca := s.authority(t)
	base := ca.client(t, "")
	base.ServerName, base.NextProtos = "127.0.0.1", []string{"h2"}
	var mu sync.Mutex
	made := map[string]*tls.Config{} // by the name of a proxy
	return func(id sim.Identity) (*tls.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		if conf := made[id.Name]; conf != nil {
			return conf, nil
		}
		leaf, err := s.leaf(id)
		if err != nil {
			return nil, err
		}
		conf := base.Clone()
		conf.Certificates = []tls.Certificate{leaf}
		made[id.Name] = conf
		return conf, nil
	}
}

// originOID is the extension with the Pod of a certificate of our CA (ca/issue/origin.go).
var originOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 2}

// leaf returns a certificate for a proxy's identity that names its own Pod, as in a mesh. Certificates without a Pod
// would share the limit of 1,024 streams of an account.
func (s *sharedAuthority) leaf(id sim.Identity) (tls.Certificate, error) {
	uri, err := url.Parse(id.SPIFFE("cluster.local"))
	if err != nil {
		return tls.Certificate{}, err
	}
	origin, err := asn1.Marshal(issue.Origin{Pod: id.Name})
	if err != nil {
		return tls.Certificate{}, err
	}
	raw, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(s.serial.Add(1)), URIs: []*url.URL{uri}, NotBefore: time.Now().Add(-time.Minute), NotAfter: s.ca.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		ExtraExtensions: []pkix.Extension{{Id: originOID, Value: origin}},
	}, s.ca.cert, s.key.Public(), s.ca.key)
	leaf, err2 := x509.ParseCertificate(raw)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: s.key, Leaf: leaf}, errors.Join(err, err2)
}
