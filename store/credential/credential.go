// Package credential parses and checks the TLS content of Secrets and ConfigMaps: certificates, private keys, CAs and
// revocation lists. It also checks the conditions under which Envoy accepts the content.
//
// Owns: nothing.
// Reads: only its arguments, which anybody may have written.
// Never: reads a clock; puts a part of a private key into a message.
package credential

import (
	"bytes"
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ocsp"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// The bounds of content. A value that equals its bound is accepted.
const (
	MaxBytes  = 1 << 20   // bytes of all values that Parse reads together, as in a Secret of Kubernetes
	MaxChain  = 100 << 10 // bytes of a chain in DER; OpenSSL reads at most this (SSL_MAX_CERT_LIST_DEFAULT)
	MaxCerts  = 32        // certificates of a chain
	MaxKey    = 16 << 10  // bytes of a private key in PEM
	MinRSA    = 2048      // bits of a leaf's key; Envoy refuses shorter keys
	MaxRSA    = 8192      // bits of a leaf's key; clients in Go refuse longer keys, and handshakes are slow
	maxReason = 200       // largest number of bytes that a message quotes from the error of a parser
)

// names are the keys of a Secret's values. Istio has two sets of keys (istio: pilot/pkg/credentials/kube/secrets.go),
// listed in forms. The first set has precedence.
type names struct{ chain, key, trust, crl, ocsp string }

var forms = []names{
	{"cert", "key", "cacert", "crl", ""},
	{"tls.crt", "tls.key", "ca.crt", "ca.crl", "tls.ocsp-staple"},
}

// Reads reports whether Parse reads the value of a key in a Secret or ConfigMap. Parse ignores all other values.
func Reads(key string) bool {
	return key != "" && slices.ContainsFunc(forms, func(of names) bool {
		return slices.Contains([]string{of.chain, of.key, of.trust, of.crl, of.ocsp}, key)
	})
}

// Public reports whether the value of a key consists of certificates or revocation lists of authorities. Only such
// values are taken from a ConfigMap.
func Public(key string) bool {
	return key != "" && slices.ContainsFunc(forms, func(of names) bool { return key == of.trust || key == of.crl })
}

// Content is the parsed content of a Secret or ConfigMap. The PEM blocks in its fields have no headers. The chain and
// its key together are called the pair. Without a pair, Chain, Key, Ocsp, Until and At are zero.
type Content struct {
	Chain []byte           // certificates in PEM, the leaf first
	Key   model.PrivateKey // private key of the leaf, in PEM
	Ocsp  []byte           // OCSP response for the leaf, in DER, shared with Parse's argument; may be empty
	Trust []byte           // certificates of authorities in PEM; may be empty
	Crl   []byte           // revocation lists of authorities in PEM; may be empty
	Until time.Time        // end of validity of the leaf; may have passed
	At    string           // key of the value with the chain
}

// Fault is a problem of one value, for the author of the object.
type Fault struct {
	Key      string // key of the value; empty: all values together have too many bytes
	Code     problem.Code
	Severity problem.Severity // Warning: the content is usable without the value
	Message  string
}

// Parse parses the values of a Secret or ConfigMap. The parameter data has the values by key. Values for which Reads is
// false are ignored. A chain without its private key, a key without its chain, and a revocation list without a pair or
// authorities are ignored too. If a Fault has severity Error, the content is empty. If data has no values to parse, the
// content is empty and there is no Fault. Parse does not change data.
func Parse(data map[string][]byte) (Content, []Fault) {
	p := &parser{data: data}
	sum := 0
	for key, value := range data {
		if Reads(key) {
			sum += len(value)
		}
	}
	if sum > MaxBytes {
		return Content{}, []Fault{{Key: "", Code: problem.Invalid, Severity: problem.Error,
			Message: fmt.Sprintf("has %d bytes of certificates and keys, more than %d", sum, MaxBytes)}}
	}
	for _, of := range forms {
		if len(p.Chain) == 0 && len(data[of.chain]) > 0 && len(data[of.key]) > 0 {
			p.pair(of)
			p.Crl = p.blocks(of.crl, "X509 CRL", parseList)
		}
	}
	for _, of := range forms {
		if len(p.Trust) > 0 {
			continue
		}
		if p.Trust = p.blocks(of.trust, "CERTIFICATE", parseCertificate); len(p.Trust) > 0 && len(p.Crl) == 0 {
			p.Crl = p.blocks(of.crl, "X509 CRL", parseList)
		}
	}
	if p.broken {
		return Content{}, p.faults
	}
	return p.Content, p.faults
}

// Until returns the end of validity of the first certificate of a chain in PEM, such as Content.Chain. The result is
// zero if the first PEM block is missing or is not a certificate.
func Until(chain []byte) time.Time {
	block, _ := pem.Decode(chain)
	if block == nil {
		return time.Time{}
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return leaf.NotAfter
}

// parser collects the content and its faults.
type parser struct {
	Content
	data   map[string][]byte
	faults []Fault
	broken bool // a fault is an error
}

// errorf adds a fault of severity Error.
func (p *parser) errorf(code problem.Code, key, format string, args ...any) {
	p.broken = true
	p.faults = append(p.faults, Fault{key, code, problem.Error, fmt.Sprintf(format, args...)})
}

// pair parses a certificate chain with its private key and OCSP response.
func (p *parser) pair(of names) {
	var leaf *x509.Certificate
	size, count := 0, 0
	chain := p.blocks(of.chain, "CERTIFICATE", func(der []byte) error {
		certificate, err := x509.ParseCertificate(der)
		if count++; count == 1 {
			leaf = certificate
		}
		size += len(der)
		return err
	})
	switch {
	case p.broken:
		return
	case size > MaxChain || count > MaxCerts:
		p.errorf(problem.Invalid, of.chain, "has %d certificates of %d bytes: want at most %d, of %d bytes",
			count, size, MaxCerts, MaxChain)
		return
	}
	if wrong := wrongKey(leaf); wrong != "" { // before the private key, because parsing a large one takes long
		p.errorf(problem.NotSupported, of.chain, "%s", wrong)
		return
	}
	key := p.privateKey(of, chain)
	if p.Ocsp = p.staple(of, leaf); len(p.Ocsp) == 0 && mustStaple(leaf) {
		p.errorf(problem.Required, cmp.Or(of.ocsp, of.chain),
			"the certificate must be sent with an OCSP response (must-staple), which is missing")
	}
	p.Chain, p.Key, p.Until, p.At = chain, key, leaf.NotAfter, of.chain
}

// wrongKey returns the reason why Envoy would refuse the public key of a leaf, or why its use would be too slow. It
// returns "" for an accepted key.
func wrongKey(leaf *x509.Certificate) string {
	switch key := leaf.PublicKey.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < MinRSA || bits > MaxRSA {
			return fmt.Sprintf("has an RSA key of %d bits: want %d to %d", bits, MinRSA, MaxRSA)
		}
	case *ecdsa.PublicKey:
		if !slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return fmt.Sprintf("has an ECDSA key of curve %s: want P-256, P-384 or P-521", key.Params().Name)
		}
	}
	return "" // the only other type that tls.X509KeyPair accepts is Ed25519
}

// privateKey returns the private key for a chain in PEM. The result has only the block of the key. If it is nil, a
// fault was added.
func (p *parser) privateKey(of names, chain []byte) model.PrivateKey {
	if size := len(p.data[of.key]); size > MaxKey+MaxChain { // there may be certificates beside the key
		p.errorf(problem.Invalid, of.key, "has %d bytes, more than %d", size, MaxKey+MaxChain)
		return nil
	}
	for rest := p.data[of.key]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			p.errorf(problem.Required, of.key, "has no private key in PEM")
			return nil
		}
		if !strings.HasSuffix(block.Type, "PRIVATE KEY") {
			continue
		}
		key := pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})
		if len(key) > MaxKey {
			p.errorf(problem.Invalid, of.key, "the private key has %d bytes, more than %d", len(key), MaxKey)
			return nil
		}
		p.belongs(of, chain, key)
		return key
	}
}

// belongs adds a fault if a private key cannot be read, does not belong to the leaf of a chain, or is not accepted. The
// errors of crypto/tls are not repeated, because they might quote the key.
func (p *parser) belongs(of names, chain, key []byte) {
	pair, err := tls.X509KeyPair(chain, key)
	switch {
	case err != nil && strings.Contains(err.Error(), "does not match"):
		p.errorf(problem.Invalid, of.key, "the private key does not belong to the certificate in data.%s", of.chain)
	case err != nil:
		p.errorf(problem.Invalid, of.key, "is not a private key that can be read (encrypted ones cannot)")
	default:
		if private, is := pair.PrivateKey.(*rsa.PrivateKey); is && len(private.Primes) != 2 {
			p.errorf(problem.NotSupported, of.key, "the RSA key has %d primes: want 2", len(private.Primes))
		}
	}
}

// blocks returns the PEM blocks of one kind in a value. Text and other blocks are left out, so a private key that is
// among certificates by mistake is not passed on. If the function parse returns an error for a block, or the value has
// no block of the kind, blocks adds a fault and returns nil. It returns nil without a fault for a missing value.
func (p *parser) blocks(at, kind string, parse func([]byte) error) []byte {
	if at == "" || len(p.data[at]) == 0 {
		return nil
	}
	var out bytes.Buffer
	for rest := p.data[at]; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != kind {
			continue
		}
		if err := parse(block.Bytes); err != nil {
			reason := err.Error()
			p.errorf(problem.Invalid, at, "a %s cannot be read: %s", strings.ToLower(kind), reason[:min(len(reason), maxReason)])
			return nil
		}
		_ = pem.Encode(&out, &pem.Block{Type: kind, Bytes: block.Bytes}) // writes to a buffer do not fail
	}
	if out.Len() == 0 {
		p.errorf(problem.Required, at, "has no %s in PEM", kind)
	}
	return out.Bytes()
}

func parseCertificate(der []byte) error { _, err := x509.ParseCertificate(der); return err }

func parseList(der []byte) error { _, err := x509.ParseRevocationList(der); return err }

// staple returns the OCSP response for a leaf. The result is nil if the value is missing, or if a warning was added.
// Envoy refuses a certificate with an OCSP response for another certificate.
func (p *parser) staple(of names, leaf *x509.Certificate) []byte {
	raw := p.data[of.ocsp]
	if of.ocsp == "" || len(raw) == 0 {
		return nil
	}
	left := ""
	switch response, err := ocsp.ParseResponse(raw, nil); {
	case err != nil:
		left = "is no OCSP response; it is left out"
	case response.SerialNumber == nil || response.SerialNumber.Cmp(leaf.SerialNumber) != 0:
		left = "is the OCSP response for another certificate; it is left out"
	default:
		return raw
	}
	p.faults = append(p.faults, Fault{of.ocsp, problem.Invalid, problem.Warning, left})
	return nil
}

// mustStaple reports whether a certificate has the extension TLS Feature (RFC 7633), with any feature. With the feature
// status_request Envoy refuses the certificate without an OCSP response.
func mustStaple(leaf *x509.Certificate) bool {
	return slices.ContainsFunc(leaf.Extensions, func(e pkix.Extension) bool { return e.Id.String() == "1.3.6.1.5.5.7.1.24" })
}
