package walk

import (
	"fmt"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// Summary returns one sentence, without a full stop, about the outcome of the request.
func (r Result) Summary() string {
	last := ""
	if n := len(r.Steps); n > 0 {
		last = r.Steps[n-1].Text
	}
	switch r.Outcome {
	case Unserved:
		return "no listener of the proxy takes the connection" + r.elsewhere()
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

// elsewhere returns the end of a sentence, with the ports of the proxy's listeners. It returns "" if the ports are
// unknown. The sentence mentions targetPort, because a gateway listens at the target port of its Service.
func (r Result) elsewhere() string {
	if len(r.listening) == 0 {
		return ""
	}
	ports := strings.ReplaceAll(strings.Trim(fmt.Sprint(r.listening), "[]"), " ", ", ")
	return fmt.Sprintf(", which listens at port %s (the targetPort of a Service in front of it)", ports)
}

// String returns a text with the name of the cluster, its weight if the weight is not 0, and its number of endpoints.
// For a missing or empty cluster, the text states the failure. For a cluster without an endpoint list, the text states
// how the proxy obtains the address.
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

// failure describes the failure that the client gets if no endpoint can receive the request.
func (d Destination) failure() string {
	if d.connection {
		return "the connection is closed"
	}
	return statusText(503, d.grpc)
}

// Deciding returns the type and the name of the resource that decided the outcome. It is the resource of the last step
// with a resource other than a cluster. Without such a step, the type is xds.Unknown and the name is empty.
func (r Result) Deciding() (xds.Type, string) {
	for i := len(r.Steps) - 1; i >= 0; i-- {
		if s := r.Steps[i]; s.Resource != "" && s.Type != xds.Cluster {
			return s.Type, s.Resource
		}
	}
	return xds.Unknown, ""
}

// AddressOf returns the IP address to which a client of a host connects at a port, according to the proxy's listeners.
// The result is the address of the first listener at the port that forwards bytes to the host, as listeners of TCP
// services do. Without such a listener, the result is the address of the last outbound listener at the port. The last
// outbound listener only counts if the proxy has no listener virtualOutbound, which receives redirected traffic. In all
// other cases the result is "". Listeners at 0.0.0.0 or :: are ignored.
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

// isOf reports whether a filter chain of a listener, except the default chain, forwards bytes to a host.
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

// sendsTo reports whether a TCP proxy forwards to a cluster of a host. The host may be a short name. For example,
// db.shop stands for db.shop.svc.cluster.local.
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
