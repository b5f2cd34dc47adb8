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

// SameMachine reports whether a request was made on this machine, for example through kubectl port-forward. RemoteAddr
// must be a loopback address with a port. The result is false if a proxy may have forwarded the request. The signs of a
// proxy are the address 127.0.0.6, and a header that proxies add, for example X-Forwarded-For or X-Request-Id. The
// header counts even if its value is empty.
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

// Hosts are the names by which a server may be requested: host names in lower case and IP addresses, without ports.
// Loopback addresses and localhost are always permitted, even if Hosts is nil.
type Hosts map[string]bool

// NewHosts makes Hosts of names and IP addresses, each with or without a port. It converts names to lower case. It
// omits empty names and unspecified addresses (0.0.0.0, ::). The result is never nil.
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

// has reports whether the Host of a request is a name of the server. Another name may come from DNS rebinding: a
// browser loads a page from the attacker's server, and then the attacker's name resolves to this machine. Requests of
// that page have the attacker's name as Host.
func (h Hosts) has(hostPort string) bool {
	host := hostOf(hostPort)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return host == "localhost" || h[host]
}

// hostOf returns the host of "host", "host:port", "[v6]" or "[v6]:port". The result is in lower case, and an IP address
// is in canonical form.
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

// Guard returns a handler that passes requests to h, except those that a page of another site may have caused. It
// refuses a request with 403 if the argument hosts does not permit the request's Host. The check of the Host applies to
// all clients, not only to browsers. It also refuses a Sec-Fetch-Site other than same-origin and none, and an Origin
// whose host and port are not those of Host. All responses have headers that forbid other sites to embed them.
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

// foreign returns the reason why a request may come from a page of another site, or nil if it does not. Browsers send
// Sec-Fetch-Site to loopback addresses and over TLS (https://www.w3.org/TR/fetch-metadata/). They send Origin with CORS
// requests, and with methods other than GET and HEAD. Other clients usually send neither header.
func foreign(hosts Hosts, r *http.Request) error {
	if !hosts.has(r.Host) {
		return fmt.Errorf("host %.200q is not a name of this server: use localhost, a loopback address, or a "+
			"configured name", r.Host)
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "same-origin" && site != "none" { // none: a direct action of the user
			return fmt.Errorf("the request comes from a page of another site (Sec-Fetch-Site: %.50q)", site)
		}
	}
	for _, origin := range r.Header["Origin"] {
		if at, err := url.Parse(origin); err != nil || !strings.EqualFold(at.Host, r.Host) {
			return fmt.Errorf("the request comes from a page of another site (Origin: %.200q)", origin)
		}
	}
	return nil
}
