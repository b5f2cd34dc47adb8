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

// Bounds of one request. Key sets of large issuers have about 12 KiB. Most of that are certificates, which are dropped.
const (
	defaultTimeout = 5 * time.Second // Istio's default, for rules without a timeout
	mostTimeout    = 30 * time.Second
	mostBody       = 256 << 10
	mostKept       = 16 << 10 // of a key set without its certificates; each policy that reads it contains it
	mostHeaders    = 16 << 10
	mostRedirects  = 3
)

// discoveryPath is the path of an issuer's discovery document (OpenID Connect Discovery 1.0, section 4).
const discoveryPath = "/.well-known/openid-configuration"

// never lists the addresses that the leader must not connect to: those of this machine's link, where clouds serve
// credentials of machines, and addresses that are not of a single host.
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
	Blocked  []netip.Prefix        // in addition to those that are always blocked (BLOCKED_CIDRS_IN_JWKS_URIS)
	Cluster  func(netip.Addr) bool // reports addresses of the cluster, which are blocked too; nil: none is blocked
	Loopback bool                  // allows addresses of this machine
	Roots    *x509.CertPool        // for servers; nil: the system's
}

// Fetcher fetches key sets. The author of a RequestAuthentication chooses the URL, so everything is bounded: addresses,
// bytes and time. Addresses are checked when a connection is made, so that neither a name with changing addresses nor a
// redirect evades the check. A Fetcher sends no credentials and uses no proxy.
type Fetcher struct {
	FetcherConfig
	client *http.Client
}

// errBlocked is wrapped by the error of a connection that is not allowed.
var errBlocked = errors.New("the address is one that may not be connected to")

// NewFetcher returns a Fetcher. It connects to nothing yet.
func NewFetcher(c FetcherConfig) *Fetcher {
	f := &Fetcher{FetcherConfig: c}
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return f.allowed(address) }}
	f.client = &http.Client{CheckRedirect: redirect, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostHeaders,
		TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
	}}
	return f
}

// allowed returns an error if an address, just before the connection, is blocked.
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
			return fmt.Errorf("%w: %v is one of the cluster's own, from which --jwks-cluster allows to fetch keys", errBlocked, a)
		}
	}
	return nil
}

// meant returns the addresses that packets to a may reach: a itself, and the IPv4 address in it (IPv4-mapped, NAT64,
// 6to4).
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
	case netip.MustParsePrefix("2002::/16").Contains(a):
		all = append(all, netip.AddrFrom4([4]byte(raw[2:6])))
	}
	return all
}

// redirect allows a few redirects, to http and https only, and from https only to https. Their addresses are checked
// when the connection is made.
func redirect(r *http.Request, via []*http.Request) error {
	switch last := via[len(via)-1].URL; {
	case len(via) > mostRedirects:
		return fmt.Errorf("more than %d redirects", mostRedirects)
	case r.URL.Scheme != "https" && (r.URL.Scheme != "http" || last.Scheme == "https"):
		return fmt.Errorf("a redirect from %s to %s", last.Scheme, r.URL.Scheme)
	case r.URL.User != nil:
		return errors.New("a redirect with a user in it")
	}
	return nil
}

// limitOf returns the timeout of a fetch, given the one that a rule states; 0 stands for no statement.
func limitOf(stated time.Duration) time.Duration {
	if stated <= 0 {
		return defaultTimeout
	}
	return min(stated, mostTimeout)
}

// Fetch fetches the keys at a source, as a JSON Web Key Set with public keys only. Errors are for operators alone: they
// describe networks that tenants do not see.
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
		return "", fmt.Errorf("%s: a key has its private part, so that everybody who can read it can sign", at)
	case len(keys) > mostKept:
		return "", fmt.Errorf("%s: its keys have %d bytes, want at most %d", at, len(keys), mostKept)
	}
	return string(keys), nil
}

// discover requests the URL of an issuer's keys.
func (f *Fetcher) discover(ctx context.Context, issuer string) (string, error) {
	raw, err := f.get(ctx, strings.TrimSuffix(issuer, "/")+discoveryPath)
	if err != nil {
		return "", err
	}
	var document struct {
		URI string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(raw, &document); err != nil {
		return "", fmt.Errorf("%s is no issuer's document: %w", issuer, err)
	}
	from, err := url.Parse(issuer)
	to, err2 := url.Parse(document.URI)
	if err != nil || err2 != nil || to.User != nil || to.Scheme != "https" && (to.Scheme != "http" || from.Scheme == "https") {
		return "", fmt.Errorf("%s says that its keys are at %.200q, which is no URL to ask", issuer, document.URI)
	}
	return document.URI, nil
}

// get reads the content at a URL.
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
