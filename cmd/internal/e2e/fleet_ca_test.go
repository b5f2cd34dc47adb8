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

// fleetCA is the CA of the fleets of tests whose replicas have no role ca: an operator's own, whose certificates replicas are given as
// files. Tests in which the mesh's CA does something have an enrolment instead.
var fleetCA sharedAuthority

// sharedAuthority is an authority that is made for the first test that wants it. It issues client certificates without files, one for each
// proxy, as in a mesh.
type sharedAuthority struct {
	once   sync.Once
	ca     *authority
	key    *ecdsa.PrivateKey // one for all proxies: the servers are what is tested
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

// remove takes its files away.
func (s *sharedAuthority) remove() error {
	if s.ca == nil {
		return nil
	}
	return os.RemoveAll(s.ca.dir)
}

// mtls are the arguments of a process with role xds and without role ca, and with them those of its secure address, which verifies the
// proxies of fleets. Thousands of them come from one address, as they would from behind a gateway.
func mtls(t testing.TB, args ...string) []string {
	t.Helper()
	ca := fleetCA.authority(t)
	return append(args, "--tls-cert", ca.file("server.crt"), "--tls-key", ca.file("server.key"), "--tls-client-ca", ca.file("ca.crt"),
		"--shared-sources", "127.0.0.1/32")
}

// xdsReplica starts a process with role xds to which fleets come over mTLS.
func xdsReplica(t testing.TB, args ...string) *daemon {
	t.Helper()
	return start(t, mtls(t, append([]string{"--roles=xds"}, args...)...)...)
}

// proxies is how the proxies of one fleet dial (sim.Config.TLS): each with a certificate of its own.
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

// originOID is the extension in which our CA says which Pod a certificate is of (ca/issue/origin.go).
var originOID = asn1.ObjectIdentifier{1, 3, 6, 1, 3, 20112, 2}

// leaf is a certificate of a proxy's identity, of its own Pod, as in a mesh: those that are of no Pod have 1,024 streams of an account
// together.
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
