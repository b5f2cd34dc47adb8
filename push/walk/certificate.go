package walk

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"navarch.io/navarch/push/xds"
)

// Secrets is a Held (the configuration of one proxy) that also contains the proxy's secrets, and the reasons why the
// proxy lacks secrets. An example is a dump by Envoy itself. Private keys are not read.
type Secrets interface {
	Held
	// Secret returns the secret with a name. It returns nil if the secret is not known, or if the proxy does not hold
	// it. The secret is read-only.
	Secret(name string) *tlsv3.Secret
	// Lack returns the reason why the proxy does not hold a secret that it requests. It returns "" if the proxy holds
	// the secret, or if this is not known.
	Lack(name string) string
	// MayHold reports whether the proxy may hold an earlier version of a secret for which Lack returns a reason.
	MayHold(name string) bool
}

// maxChain and maxRoots bound the number of certificates that are parsed from one secret.
const (
	maxChain = 10
	maxRoots = 200
)

// certificate is a certificate that a proxy holds, with the chain above it.
type certificate struct {
	leaf  *x509.Certificate
	above []*x509.Certificate
}

// secretOf returns the secret with a name that a proxy holds, or nil if the secret is not known.
func secretOf(held Held, name string) *tlsv3.Secret {
	if of, is := held.(Secrets); is && name != "" {
		return of.Secret(name)
	}
	return nil
}

// parsed returns the first certificates of PEM text, up to limit. Blocks that do not parse as certificates are skipped.
func parsed(text []byte, limit int) (all []*x509.Certificate) {
	for len(all) < limit {
		block, rest := pem.Decode(text)
		if block == nil {
			break
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, c)
		}
		text = rest
	}
	return all
}

// certificateOf returns the certificate in a secret of a proxy, or nil if the certificate is not known.
func certificateOf(held Held, name string) *certificate {
	chain := secretOf(held, name).GetTlsCertificate().GetCertificateChain()
	all := parsed(append(bytes.Clone(chain.GetInlineBytes()), chain.GetInlineString()...), maxChain)
	if len(all) == 0 {
		return nil
	}
	return &certificate{all[0], all[1:]}
}

// rootsOf returns the certificate authorities in a secret of a proxy, or nil if they are not known.
func rootsOf(held Held, name string) []*x509.Certificate {
	of := secretOf(held, name).GetValidationContext().GetTrustedCa()
	return parsed(append(bytes.Clone(of.GetInlineBytes()), of.GetInlineString()...), maxRoots)
}

// names returns the names that peers compare: the URIs, else the DNS names, else the subject.
func (c *certificate) names() (all []string) {
	for _, u := range c.leaf.URIs {
		all = append(all, u.String())
	}
	if len(all) == 0 {
		all = append(all, c.leaf.DNSNames...)
	}
	if len(all) == 0 {
		all = append(all, c.leaf.Subject.String())
	}
	return all
}

// text returns the names and the end of the certificate, for a step.
func (c *certificate) text() string {
	return strings.Join(c.names(), " and ") + ", which ends " + c.leaf.NotAfter.UTC().Format(time.RFC3339)
}

// lapsed returns the reason why the certificate is not valid at a time, or "" if it is valid. At the zero time every
// certificate is valid.
func (c *certificate) lapsed(at time.Time) string {
	switch {
	case at.IsZero():
		return ""
	case at.After(c.leaf.NotAfter):
		return "ended " + c.leaf.NotAfter.UTC().Format(time.RFC3339)
	case at.Before(c.leaf.NotBefore):
		return "begins " + c.leaf.NotBefore.UTC().Format(time.RFC3339)
	}
	return ""
}

// acceptedBy reports whether certificate authorities accept the certificate. The whole chain must be valid at the
// certificate's beginning or at its end.
func (c *certificate) acceptedBy(roots []*x509.Certificate) bool {
	pool, above := x509.NewCertPool(), x509.NewCertPool()
	for _, r := range roots {
		pool.AddCert(r)
	}
	for _, i := range c.above {
		above.AddCert(i)
	}
	for _, at := range []time.Time{c.leaf.NotAfter, c.leaf.NotBefore} { // an authority may be invalid at one of them
		if _, err := c.leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: above, CurrentTime: at,
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}); err == nil {
			return true
		}
	}
	return false
}

// handshakeFails returns the reason why the mTLS handshake fails at a time. It returns "" if the known certificates
// allow the handshake. It appends a line to c.TLS for each proxy whose certificate is known, until it finds a reason.
// At the zero time, the validity periods of certificates are ignored.
func (c *Call) handshakeFails(client, server Peer, tls Upstream, at time.Time) string {
	say := func(format string, args ...any) { c.TLS = append(c.TLS, fmt.Sprintf(format, args...)) }
	for _, one := range []struct {
		who, whose, other string
		own, peer         Held
		roots             string
	}{
		{"client", "client's", "server", client.Held, server.Held, xds.SDSRoot},
		{"server", "server's", "client", server.Held, client.Held, tls.Root},
	} {
		cert, roots := certificateOf(one.own, xds.SDSDefault), rootsOf(one.peer, one.roots)
		if cert == nil {
			continue
		}
		say("the %s holds the certificate of %s", one.who, cert.text())
		if why := cert.lapsed(at); why != "" {
			return fmt.Sprintf("the certificate of the %s proxy %s, so the %s refuses it: 503 (UF)", one.whose, why, one.other)
		}
		if len(roots) > 0 && !cert.acceptedBy(roots) {
			return fmt.Sprintf("the %s's proxy does not accept the authority of the %s certificate, so there is no common root: 503 (UF)",
				one.other, one.whose)
		}
	}
	cert := certificateOf(server.Held, xds.SDSDefault)
	expected := func(name string) bool { return slices.Contains(tls.Names, name) }
	if cert == nil || len(tls.Names) == 0 || slices.ContainsFunc(cert.names(), expected) {
		return ""
	}
	return fmt.Sprintf("the client's proxy expects %s, and the server's certificate is that of %s: 503 (UF)",
		strings.Join(tls.Names, " or "), strings.Join(cert.names(), " and "))
}
