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

// certifier is the agents' half of a CA, for all proxies of a process: a certificate for each identity, or each Pod, the roots that are
// pushed, and the word to the CA that they have come.
type certifier struct {
	authority Authority
	minter    *minter
	private   *ecdsa.PrivateKey // one for all: what is measured is the server
	asking    chan struct{}     // how many ask at once

	mu      sync.Mutex
	pool    *x509.CertPool
	bundle  string // hash of the newest roots that came
	held    int    // proxies that have these
	all     map[string]*certified
	trouble error // the first
}

// certified is one identity with its certificate.
type certified struct {
	once   sync.Once
	leaf   *tls.Certificate
	failed error
	pods   map[string]string // its proxies: the roots that each has, by hash
}

// atOnce is how many calls to the CA a process makes at a time.
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

// key is whose certificate a proxy has.
func (c *certifier) key(id proxy.Identity) string {
	if c.authority.EachPod {
		return id.SPIFFE(trustDomain) + " " + id.Name
	}
	return id.SPIFFE(trustDomain)
}

// client is the configuration that a proxy dials with; its certificate is asked for once for each identity.
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
			c.all[name] = &certified{pods: one.pods} // the next dial asks again
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if one.failed != nil {
		return nil, one.failed
	}
	return &tls.Config{RootCAs: c.pool, ServerName: serverName, MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*one.leaf}}, nil
}

// renew has every identity ask for a new certificate at its next dial.
func (c *certifier) renew() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, old := range c.all {
		c.all[name] = &certified{pods: old.pods}
	}
}

// trust takes the roots that one proxy was pushed. When all proxies of its certificate have them, the CA is told.
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

// report reports, and keeps the first error: a rotation that never ends must say why.
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

// trusting is how many proxies have the newest roots, and what went wrong.
func (c *certifier) trusting() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held, c.trouble
}

// certified counts the identities by who has signed their certificate: the key's id, hexadecimal.
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

// trusted is the PEM of a CertificateValidationContext.
func trusted(body []byte) ([]byte, error) {
	var v tlsv3.CertificateValidationContext
	if err := proto.Unmarshal(body, &v); err != nil {
		return nil, fmt.Errorf("trust: %w", err)
	}
	return v.GetTrustedCa().GetInlineBytes(), nil
}

// fingerprints names the roots of a CertificateValidationContext: SHA-256 of their DER, sorted.
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
