package jwks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"navarch.io/navarch/store/normal"
)

// Bounds of one fetch, including discovery and redirects. Key sets of large issuers have about 12 KiB. Most of these
// bytes are certificates, which are dropped.
const (
	defaultTimeout = 5 * time.Second // Istio's default, for rules without a timeout
	mostTimeout    = 30 * time.Second
	mostBody       = 256 << 10 // bytes of one response
	mostKept       = 16 << 10  // bytes of a key set without certificates; each policy that uses it contains a copy
	mostHeaders    = 16 << 10  // bytes of a response's headers
	mostRedirects  = 3
)

// discoveryPath is the path of an issuer's discovery document (OpenID Connect Discovery 1.0, section 4).
const discoveryPath = "/.well-known/openid-configuration"

// never is the list of the addresses that are always blocked: link-local and other addresses at which clouds serve
// credentials of machines, and addresses of no single host (unspecified, multicast, broadcast).
var never = prefixes("0.0.0.0/8", "169.254.0.0/16", "fe80::/10", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32", "::/128",
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128")

var loopback = prefixes("127.0.0.0/8", "::1/128")

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// FetcherConfig configures NewFetcher.
type FetcherConfig struct {
	Blocked  []netip.Prefix        // BLOCKED_CIDRS_IN_JWKS_URIS, in addition to the addresses that are always blocked
	Cluster  func(netip.Addr) bool // reports whether an address belongs to the cluster and is therefore blocked; nil: blocks no address
	Loopback bool                  // allows loopback addresses
	Roots    *x509.CertPool        // roots that servers are verified against; nil: the system's
}

// Fetcher fetches key sets. The author of a RequestAuthentication chooses the URL, so addresses, bytes and time are
// bounded. Addresses are checked when a connection is made. So neither a name with changing addresses nor a redirect
// evades the check. A Fetcher sends no credentials and uses no proxy. It is safe for concurrent use.
type Fetcher struct {
	FetcherConfig
	client *http.Client
}

// errBlocked is wrapped by the error of a connection to a blocked address.
var errBlocked = errors.New("connections to the address are not allowed")

// NewFetcher returns a Fetcher. It connects to no server yet.
func NewFetcher(c FetcherConfig) *Fetcher {
	f := &Fetcher{FetcherConfig: c}
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return f.allowed(address) }}
	f.client = &http.Client{CheckRedirect: redirect, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostHeaders,
		TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
	}}
	return f
}

// allowed returns an error if an address, IP:PORT, is blocked. The dialer calls it just before each connection.
func (f *Fetcher) allowed(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	for _, a := range meant(at.Addr()) {
		in := func(p netip.Prefix) bool { return p.Contains(a) }
		if slices.ContainsFunc(never, in) || !f.Loopback && slices.ContainsFunc(loopback, in) || slices.ContainsFunc(f.Blocked, in) {
			return fmt.Errorf("%w: %v", errBlocked, a)
		}
		if f.Cluster != nil && f.Cluster(a) {
			return fmt.Errorf("%w: %v is an address of the cluster, which only --jwks-cluster allows", errBlocked, a)
		}
	}
	return nil
}

// meant returns the addresses that packets to an address may reach: the address itself, without zone and IPv4
// mapping, and the IPv4 address that is embedded in it (NAT64, IPv4-compatible, 6to4).
func meant(a netip.Addr) []netip.Addr {
	a = a.WithZone("").Unmap()
	all := []netip.Addr{a}
	if !a.Is6() || a.IsLoopback() || a.IsUnspecified() {
		return all
	}
	raw := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a), netip.MustParsePrefix("::/96").Contains(a):
		all = append(all, netip.AddrFrom4([4]byte(raw[12:16])))
	case netip.MustParsePrefix("64:ff9b:1::/48").Contains(a): // with a prefix of any length (RFC 6052, section 2.2)
		for _, at := range [][4]int{{6, 7, 9, 10}, {7, 9, 10, 11}, {9, 10, 11, 12}, {12, 13, 14, 15}} {
			all = append(all, netip.AddrFrom4([4]byte{raw[at[0]], raw[at[1]], raw[at[2]], raw[at[3]]}))
		}
	case netip.MustParsePrefix("2002::/16").Contains(a):
		all = append(all, netip.AddrFrom4([4]byte(raw[2:6])))
	}
	return all
}

// redirect returns an error for a redirect that must not be followed: after mostRedirects, from https to another
// scheme, to a scheme other than http and https, or to a URL with a user. Addresses are checked when the connection is
// made.
func redirect(r *http.Request, via []*http.Request) error {
	switch last := via[len(via)-1].URL; {
	case len(via) > mostRedirects:
		return fmt.Errorf("more than %d redirects", mostRedirects)
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || last.Scheme == "https"):
		return fmt.Errorf("a redirect from %s to %s", last.Scheme, r.URL.Scheme)
	case r.URL.User != nil:
		return errors.New("a redirect to a URL with a user")
	}
	return nil
}

// limitOf returns the timeout of a fetch, given the timeout that a rule states; 0: not stated.
func limitOf(stated time.Duration) time.Duration {
	if stated <= 0 {
		return defaultTimeout
	}
	return min(stated, mostTimeout)
}

// Fetch fetches the key set at s.URI, or else at the URL in the discovery document of s.Issuer. The result is a JSON
// Web Key Set. Certificates and unusable keys are left out; symmetric keys stay. s.Timeout bounds the whole fetch: 5 s
// if it is 0 or negative, and at most 30 s.
//
// Errors: the URL or the address is not allowed, the server does not answer with status 200 within the bounds of size
// and time, or ctx ends. The discovery document does not decode, or names a URL that is not allowed. The content is not
// a key set with a usable key, has more than 16 KiB of keys, or has the private part of a key. Errors are returned at
// once. They and their time are only for operators, since they describe networks that tenants do not see (term.ask).
func (f *Fetcher) Fetch(ctx context.Context, s normal.KeySource) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limitOf(s.Timeout))
	defer cancel()
	at := s.URI
	if at == "" {
		found, err := f.discover(ctx, s.Issuer)
		if err != nil {
			return "", err
		}
		at = found
	}
	raw, err := f.get(ctx, at)
	if err != nil {
		return "", err
	}
	keys, private, err := normal.ParseKeySet(raw)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", at, err)
	case private:
		return "", fmt.Errorf("%s: a key contains its private part, so every reader of the key set could sign tokens", at)
	case len(keys) > mostKept:
		return "", fmt.Errorf("%s: the keys have %d bytes, want at most %d", at, len(keys), mostKept)
	}
	return string(keys), nil
}

// discover fetches an issuer's discovery document and returns the URL of the issuer's keys.
func (f *Fetcher) discover(ctx context.Context, issuer string) (string, error) {
	raw, err := f.get(ctx, strings.TrimSuffix(issuer, "/")+discoveryPath)
	if err != nil {
		return "", err
	}
	var document struct {
		URI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return "", fmt.Errorf("%s: the discovery document does not decode: %w", issuer, err)
	}
	from, err := url.Parse(issuer)
	to, err2 := url.Parse(document.URI)
	if err != nil || err2 != nil || to.User != nil || to.Scheme != "https" && (to.Scheme != "http" || from.Scheme == "https") {
		return "", fmt.Errorf("%s: jwks_uri of the discovery document is %.200q, which is not an allowed URL", issuer, document.URI)
	}
	return document.URI, nil
}

// get returns the body at a URL. A status other than 200 and a body above mostBody are errors.
func (f *Fetcher) get(ctx context.Context, at string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "navarchd")
	answer, err := f.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: status %d", at, answer.StatusCode)
	}
	raw, err := io.ReadAll(io.LimitReader(answer.Body, mostBody+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", at, err)
	case len(raw) > mostBody:
		return nil, fmt.Errorf("%s: more than %d bytes", at, mostBody)
	}
	return raw, nil
}
