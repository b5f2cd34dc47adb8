package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// passthrough is the source address of requests that a sidecar forwards to its application on behalf of others
// (Istio's InboundPassthroughCluster). The original clients may be on any machine.
var passthrough = netip.MustParseAddr("127.0.0.6")

// forwarded are headers that proxies add to forwarded requests, in canonical form. forwardedPrefix are the prefixes of
// further such headers. Clients on this machine send none of them.
var (
	forwarded       = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Request-Id"}
	forwardedPrefix = []string{"X-Forwarded-", "X-Envoy-", "X-Original-"}
)

// SameMachine reports whether a request was made on this machine, as the requests of kubectl port-forward are. This
// requires a loopback address as RemoteAddr. The result is false for a request that a proxy on this machine has
// forwarded: it comes from 127.0.0.6, or has a header that proxies add, even an empty one.
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

// Hosts are the names by which a server may be requested. Loopback addresses and localhost are always permitted, also
// by nil Hosts.
type Hosts map[string]bool

// NewHosts makes Hosts of names and IP addresses, each with or without a port. It omits empty names and unspecified
// addresses (0.0.0.0, ::).
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

// has reports whether the Host of a request is a name of the server. Other names may come from DNS rebinding: an
// attacker's page, loaded under the attacker's name, sends this name as Host after it resolves to this machine.
func (h Hosts) has(hostPort string) bool {
	host := hostOf(hostPort)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return host == "localhost" || h[host]
}

// hostOf returns the host of "host", "host:port", "[v6]" or "[v6]:port", in lower case; IP addresses in canonical
// form.
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

// Guard returns a handler that passes requests to h, except those that a page of another site may have caused. A
// request is refused with 403 if its Host is not in hosts, or if Sec-Fetch-Site or Origin names another site. Headers
// of all responses forbid other sites to embed them.
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

// foreign returns the reason why a request may come from a page of another site; nil: it does not. Browsers send
// Sec-Fetch-Site to loopback and over TLS (https://www.w3.org/TR/fetch-metadata/), and Origin if a page may read the
// response. Other clients send neither header.
func foreign(hosts Hosts, r *http.Request) error {
	if !hosts.has(r.Host) {
		return fmt.Errorf("host %.200q is not a name of this server: it is asked as localhost, by a loopback address, or by a name "+
			"that it was given", r.Host)
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" { // none: a direct action of the user
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
