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

// Bounds of one request. Large issuers' key sets have some 12 KiB, most of it certificates, which are not kept.
const (
	defaultTimeout = 5 * time.Second // Istio's, where a rule states none
	mostTimeout    = 30 * time.Second
	mostBody       = 256 << 10
	mostKept       = 16 << 10 // of a key set without its certificates: it is a part of each policy that reads it
	mostHeaders    = 16 << 10
	mostRedirects  = 3
)

// discoveryPath is where an issuer says where its keys are (OpenID Connect Discovery 1.0, section 4).
const discoveryPath = "/.well-known/openid-configuration"

// Never are the addresses that nobody may have the leader connect to: those of this machine, of its link, where clouds give their machines
// credentials, and none at all.
var never = prefixes("0.0.0.0/8", "169.254.0.0/16", "fe80::/10", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32", "::/128",
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", "fd00:ec2::254/128", "fd20:ce::254/128")

var loopback = prefixes("127.0.0.0/8", "::1/128")

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// FetcherConfig is what NewFetcher needs.
type FetcherConfig struct {
	Blocked  []netip.Prefix        // beside what is never connected to (BLOCKED_CIDRS_IN_JWKS_URIS)
	Cluster  func(netip.Addr) bool // whether an address is one of the cluster's own, which is not connected to; nil: none is
	Loopback bool                  // addresses of this machine may be connected to
	Roots    *x509.CertPool        // of servers; nil: the system's
}

// Fetcher fetches key sets. Whoever may write a RequestAuthentication says from where, so that it is bounded in every way: which addresses
// it connects to, looked at where it connects, so that no name that resolves to another address later, and no redirect, leads elsewhere; how much
// it reads, and how long it waits. It sends no credential, and asks no proxy.
type Fetcher struct {
	FetcherConfig
	client *http.Client
}

// errBlocked is in the error of a connection that is not allowed.
var errBlocked = errors.New("the address is one that may not be connected to")

// NewFetcher connects to nothing yet.
func NewFetcher(c FetcherConfig) *Fetcher {
	f := &Fetcher{FetcherConfig: c}
	dialer := &net.Dialer{Control: func(_, address string, _ syscall.RawConn) error { return f.allowed(address) }}
	f.client = &http.Client{CheckRedirect: redirect, Transport: &http.Transport{
		DialContext: dialer.DialContext, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: mostHeaders,
		TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
	}}
	return f
}

// allowed says whether an address, as it is about to be connected to, may be.
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

// meant are the addresses that packets to an address may go to: itself, and the IPv4 address within it (IPv4-mapped, NAT64, 6to4).
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

// redirect follows a few redirects, to http and https alone, and from https to nothing else. Where they lead is looked at as it is connected to.
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

// limitOf is for how long a key set may be fetched of which a rule states a time; 0: it states none.
func limitOf(stated time.Duration) time.Duration {
	if stated <= 0 {
		return defaultTimeout
	}
	return min(stated, mostTimeout)
}

// Fetch fetches the keys at a source, as a JSON Web Key Set that has nothing but public keys. Errors say what is in networks that tenants do not see: they are for operators.
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

// discover asks an issuer where its keys are.
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

// get reads what is at a URL.
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
