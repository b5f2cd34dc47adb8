package issue

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// ServingNames returns the DNS names of the control plane's serving certificate, as agents expect them. These are
// SERVICE.NAMESPACE.svc of the Services istiod, istiod-remote and istio-pilot. A revision that is neither "" nor
// "default" adds the Service istiod-<revision>. The names in the argument custom (for example from ISTIOD_CUSTOM_HOST)
// are added, except empty names. The result is sorted, without duplicates.
func ServingNames(namespace, revision string, custom ...string) []string {
	services := []string{"istiod", "istiod-remote", "istio-pilot"}
	if revision != "" && revision != "default" {
		services = append(services, "istiod-"+revision)
	}
	names := slices.DeleteFunc(slices.Clone(custom), func(s string) bool { return s == "" })
	for _, s := range services {
		names = append(names, s+"."+namespace+".svc")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// ServingRequest is a request for the certificate of a control plane server.
type ServingRequest struct {
	Names    []string      // DNS names and IP addresses, at least one
	Identity spiffeid.ID   // URI name; zero: none
	TTL      time.Duration // requested lifetime; 0: Policy.DefaultTTL
}

// Serving makes a P-256 key and a certificate for a server of the control plane. The certificate is signed with a.Key.
// The result contains the chain without the root, and the parsed leaf. A nil random means crypto/rand. Errors match
// ErrInvalid if the request has no names or an invalid TTL. They match ErrAuthority if the authority or the policy
// cannot be used (see Issue). Any other error means that reading random bytes or signing failed.
func Serving(a *Authority, r ServingRequest, p Policy, now time.Time, random io.Reader) (tls.Certificate, error) {
	if random == nil {
		random = rand.Reader
	}
	if len(r.Names) == 0 {
		return tls.Certificate{}, fmt.Errorf("serving certificate: %w: no names", ErrInvalid)
	}
	t := x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	name(&t, r.Names)
	if !r.Identity.IsZero() {
		t.URIs = uris(r.Identity)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make the serving key: %w", err)
	}
	issued, err := a.sign(&key.PublicKey, t, r.TTL, p, now, random)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("serving certificate: %w", err)
	}
	out := tls.Certificate{PrivateKey: key, Leaf: issued.Leaf}
	for _, c := range issued.Chain {
		out.Certificate = append(out.Certificate, c.Raw)
	}
	return out, nil
}

func name(t *x509.Certificate, names []string) {
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
}
