package walk

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// Summary returns one sentence on what becomes of the request.
func (r Result) Summary() string {
	last := ""
	if n := len(r.Steps); n > 0 {
		last = r.Steps[n-1].Text
	}
	switch r.Outcome {
	case Unserved:
		return "no listener of the proxy takes the connection"
	case Closed:
		return "the proxy closes the connection: " + last
	case Waiting:
		return "the proxy holds the request until its route configuration comes"
	case Answered:
		if r.GRPC != nil {
			return "the proxy answers " + grpcText(*r.GRPC) + " by itself"
		}
		return fmt.Sprintf("the proxy answers %d by itself", r.Status)
	case Forwarded:
	}
	var to []string
	for _, d := range r.To {
		to = append(to, d.String())
	}
	if len(to) == 0 {
		return "the route has no cluster, so the proxy answers 503"
	}
	return "the proxy sends the request to " + strings.Join(to, ", or to ")
}

// String returns the cluster, its share, and what is behind it.
func (d Destination) String() string {
	text := d.Cluster
	if d.Weight > 0 {
		text += fmt.Sprintf(" (weight %d)", d.Weight)
	}
	switch d.Reach {
	case Missing:
		return text + ", which the proxy does not have: " + d.failure() + " (NC)"
	case Empty:
		return text + ", which has no endpoint: " + d.failure() + " (UH)"
	case Original:
		return text + ", at the address that the client stated"
	case Resolved:
		return text + ", at the address that the host resolves to"
	case Addressed:
	}
	if len(d.Endpoints) == 1 {
		return text + ", which has 1 endpoint"
	}
	return fmt.Sprintf("%s, which has %d endpoints", text, len(d.Endpoints))
}

// failure returns what the client sees if nothing can receive the request.
func (d Destination) failure() string {
	if d.connection {
		return "the connection is closed"
	}
	return statusText(503, d.grpc)
}

// Deciding returns the resource of the last step that names one: what decided the outcome. Empty: no resource did.
func (r Result) Deciding() (xds.Type, string) {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if s := r.Steps[i]; s.Resource != "" && s.Type != xds.Cluster {
			return s.Type, s.Resource
		}
	}
	return xds.Unknown, ""
}

// AddressOf returns the address that a client connects to for a host and a port, as far as listeners tell it: the
// address of the listener that serves the host alone, as those of TCP services do, or, where nothing is redirected to
// the proxy, of the outbound listener at the port. Empty: listeners of all addresses take the connection, or none.
func AddressOf(held Held, host string, port uint32) string {
	redirected, found := false, ""
	for l := range held.Listeners() {
		redirected = redirected || l.GetName() == xds.VirtualOutbound
		a := l.GetAddress().GetSocketAddress()
		if a.GetPortValue() != port || a.GetAddress() == "0.0.0.0" || a.GetAddress() == "::" {
			continue
		}
		if isOf(l, host) {
			return a.GetAddress()
		}
		if l.GetTrafficDirection() == corev3.TrafficDirection_OUTBOUND {
			found = a.GetAddress()
		}
	}
	if redirected {
		return ""
	}
	return found
}

// isOf reports whether a chain of a listener sends bytes to a host.
func isOf(l *listenerv3.Listener, host string) bool {
	for _, c := range l.GetFilterChains() {
		for _, f := range c.GetFilters() {
			tcp := &tcpv3.TcpProxy{}
			if config := f.GetTypedConfig(); config.MessageIs(tcp) && config.UnmarshalTo(tcp) == nil && sendsTo(tcp, host) {
				return true
			}
		}
	}
	return false
}

// sendsTo reports whether bytes are sent to a service with a host, or with a longer name of it.
func sendsTo(tcp *tcpv3.TcpProxy, host string) bool {
	names := []string{tcp.GetCluster()}
	for _, c := range tcp.GetWeightedClusters().GetClusters() {
		names = append(names, c.GetName())
	}
	for _, name := range names {
		if _, _, _, of, ok := xds.ParseCluster(name); ok && (of == host || strings.HasPrefix(of, host+".")) {
			return true
		}
	}
	return false
}
