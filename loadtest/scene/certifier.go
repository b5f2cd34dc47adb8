package scene

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"sync"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/loadtest/proxy"
)

// certifier is the agents' part of the communication with a CA, for all proxies of a process. It requests a certificate
// for each identity or Pod, receives pushed roots, and reports to the CA that proxies hold them.
type certifier struct {
	authority Authority
	minter    *minter
	private   *ecdsa.PrivateKey // shared by all, because only the server's cost is measured
	asking    chan struct{}     // limits concurrent requests

	mu      sync.Mutex
	pool    *x509.CertPool
	bundle  string // hash of the newest pushed roots
	held    int    // proxies that hold these roots
	all     map[string]*certified
	trouble error // the first error
}

// certified is one identity with its certificate.
type certified struct {
	once   sync.Once
	leaf   *tls.Certificate
	failed error
	pods   map[string]string // its proxies, with the hash of the roots that each holds
}

// atOnce is the limit of concurrent calls of a process to the CA.
const atOnce = 16

func newCertifier(a Authority) (*certifier, error) {
	raw, err := os.ReadFile(a.Roots)
	if err != nil {
		return nil, fmt.Errorf("roots of the CA: %w", err)
	}
	c := &certifier{authority: a, all: map[string]*certified{}, asking: make(chan struct{}, atOnce)}
	if c.pool, err = rootsOf(raw, "the CA's file of roots"); err != nil {
		return nil, err
	}
	if c.minter, err = newMinter(a.Key); err != nil {
		return nil, err
	}
	c.private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	return c, err
}

// key returns the name under which a proxy's certificate is stored: the account's, or with EachPod the Pod's.
func (c *certifier) key(id proxy.Identity) string {
	if c.authority.EachPod {
		return id.SPIFFE(trustDomain) + " " + id.Name
	}
	return id.SPIFFE(trustDomain)
}

// client returns a proxy's TLS configuration. The certificate is requested once for each key.
func (c *certifier) client(id proxy.Identity) (*tls.Config, error) {
	name := c.key(id)
	c.mu.Lock()
	one := c.all[name]
	if one == nil {
		one = &certified{pods: map[string]string{}}
		c.all[name] = one
	}
	if _, known := one.pods[id.Name]; !known {
		one.pods[id.Name] = ""
	}
	c.mu.Unlock()
	one.once.Do(func() {
		c.asking <- struct{}{}
		defer func() { <-c.asking }()
		leaf, err := c.certificate(id)
		c.mu.Lock()
		defer c.mu.Unlock()
		if one.leaf, one.failed = leaf, err; err != nil && c.all[name] == one {
			c.all[name] = &certified{pods: one.pods} // the next dial requests it again
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.failed != nil {
		return nil, one.failed
	}
	return &tls.Config{RootCAs: c.pool, ServerName: serverName, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*one.leaf}}, nil
}

// renew makes every identity request a new certificate at its next dial.
func (c *certifier) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, old := range c.all {
		c.all[name] = &certified{pods: old.pods}
	}
}

// trust processes the roots that were pushed to one proxy. Once all proxies with its certificate hold them, it reports
// that to the CA.
func (c *certifier) trust(id proxy.Identity, body []byte) error {
	sum := sha256.Sum256(body)
	bundle := hex.EncodeToString(sum[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	if bundle != c.bundle {
		if err := c.take(body); err != nil {
			return err
		}
		c.bundle, c.held = bundle, 0
	}
	one := c.all[c.key(id)]
	if one == nil || one.leaf == nil || one.pods[id.Name] == bundle {
		return nil
	}
	one.pods[id.Name] = bundle
	c.held++
	for _, has := range one.pods {
		if has != bundle {
			return nil
		}
	}
	prints, err := fingerprints(body)
	if err != nil {
		return err
	}
	go c.reportHeld(one.leaf, prints)
	return nil
}

// reportHeld reports to the CA and keeps the first error, which explains a rotation that never ends.
func (c *certifier) reportHeld(leaf *tls.Certificate, prints []string) {
	c.asking <- struct{}{}
	defer func() { <-c.asking }()
	if err := c.report(leaf, prints); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.trouble == nil {
			c.trouble = fmt.Errorf("report of roots: %w", err)
		}
	}
}

// trusting returns the number of proxies with the newest roots, and the first error of a report.
func (c *certifier) trusting() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held, c.trouble
}

// certified counts the identities by the key that signed their certificate: the key's id in hexadecimal.
func (c *certifier) certified() (map[string]int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	by := map[string]int{}
	for _, one := range c.all {
		if one.leaf == nil {
			continue
		}
		leaf, err := x509.ParseCertificate(one.leaf.Certificate[0])
		if err != nil {
			return nil, err
		}
		by[hex.EncodeToString(leaf.AuthorityKeyId)]++
	}
	return by, nil
}

func (c *certifier) take(body []byte) error {
	raw, err := trusted(body)
	if err != nil {
		return err
	}
	pool, err := rootsOf(raw, "the pushed trust")
	if err == nil {
		c.pool = pool
	}
	return err
}

// trusted returns the PEM in a CertificateValidationContext.
func trusted(body []byte) ([]byte, error) {
	var v tlsv3.CertificateValidationContext
	if err := proto.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("trust: %w", err)
	}
	return v.GetTrustedCa().GetInlineBytes(), nil
}

// fingerprints returns the SHA-256 of each root's DER in a CertificateValidationContext, sorted.
func fingerprints(body []byte) ([]string, error) {
	raw, err := trusted(body)
	if err != nil {
		return nil, err
	}
	var all []string
	for block, rest := pem.Decode(raw); block != nil; block, rest = pem.Decode(rest) {
		sum := sha256.Sum256(block.Bytes)
		all = append(all, hex.EncodeToString(sum[:]))
	}
	slices.Sort(all)
	return all, nil
}
