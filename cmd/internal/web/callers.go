package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// passthrough is the source of what a sidecar hands on to its application for others (Istio's InboundPassthroughCluster), who
// may be anywhere.
var passthrough = netip.MustParseAddr("127.0.0.6")

// forwarded are headers that proxies add to what they pass on, in canonical form; forwardedPrefix those by how they begin.
// Whoever asks from this machine sends none of them.
var (
	forwarded       = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Request-Id"}
	forwardedPrefix = []string{"X-Forwarded-", "X-Envoy-", "X-Original-"}
)

// SameMachine says whether a request was made on this machine, as those of kubectl port-forward are. What a proxy on this
// machine passes on was not: it comes from 127.0.0.6, or has a header that says so, be it empty.
func SameMachine(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	if ip := from.Addr().Unmap(); !ip.IsLoopback() || ip == passthrough {
		return false
	}
	for _, name := range forwarded {
		if _, there := r.Header[name]; there {
			return false
		}
	}
	for name := range r.Header {
		for _, prefix := range forwardedPrefix {
			if strings.HasPrefix(name, prefix) {
				return false
			}
		}
	}
	return true
}

// Hosts are the names by which a server may be asked, beside loopback addresses and localhost.
type Hosts map[string]bool

// NewHosts takes names and IP addresses, each with or without a port. Empty ones and those that stand for all addresses of a
// machine (0.0.0.0) name nobody, and are left out.
func NewHosts(names ...string) Hosts {
	hosts := Hosts{}
	for _, name := range names {
		name = hostOf(name)
		if ip, err := netip.ParseAddr(name); name != "" && (err != nil || !ip.IsUnspecified()) {
			hosts[name] = true
		}
	}
	return hosts
}

// has says whether the Host of a request is one of them. A page that a browser was shown under a name of its author's, which
// came to resolve to this machine (DNS rebinding), asks with that name as Host.
func (h Hosts) has(hostPort string) bool {
	host := hostOf(hostPort)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return host == "localhost" || h[host]
}

// hostOf is the host of "host", "host:port", "[v6]" or "[v6]:port", in the form in which two of them are compared.
func hostOf(hostPort string) string {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostPort, "["), "]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.String()
	}
	return strings.ToLower(host)
}

// Guard refuses (403) what a page of another site may have made a browser ask for: a request under a Host that is none of ours,
// and one that says that it comes from a page of another origin. Its answers may not be shown inside of such a page either.
func Guard(hosts Hosts, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		head := w.Header()
		head.Set("Cross-Origin-Resource-Policy", "same-origin")
		head.Set("X-Content-Type-Options", "nosniff")
		head.Set("X-Frame-Options", "DENY")
		if err := foreign(hosts, r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// foreign says why a request may be of a page of another site; nil: it is not. Browsers send Sec-Fetch-Site to loopback and over
// TLS (https://www.w3.org/TR/fetch-metadata/), and Origin where a page may read the answer; other clients send neither.
func foreign(hosts Hosts, r *http.Request) error {
	if !hosts.has(r.Host) {
		return fmt.Errorf("host %.200q is not a name of this server: it is asked as localhost, by a loopback address, or by a name that it was given", r.Host)
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" { // none: the user's own doing
			return fmt.Errorf("a page of another site asks (Sec-Fetch-Site: %.50q)", site)
		}
	}
	for _, origin := range r.Header["Origin"] {
		if at, err := url.Parse(origin); err != nil || !strings.EqualFold(at.Host, r.Host) {
			return fmt.Errorf("a page of another site asks (Origin: %.200q)", origin)
		}
	}
	return nil
}
