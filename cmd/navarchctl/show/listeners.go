package show

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

func takesListener(f Filter, _ string, m proto.Message) bool {
	l, _ := m.(*listenerv3.Listener)
	host, port := hostPort(l.GetAddress())
	return (f.Address == "" || strings.EqualFold(host, f.Address)) && (f.Port == 0 || port == f.Port) &&
		(f.Type == "" || strings.EqualFold(kind(l), f.Type))
}

// hostPort divides an address into host and port. The port is 0 for Unix sockets and internal addresses. Without an
// address, the host is "-" and the port 0.
func hostPort(a *corev3.Address) (host string, port uint32) {
	switch a := a.GetAddress().(type) {
	case *corev3.Address_SocketAddress:
		return a.SocketAddress.GetAddress(), a.SocketAddress.GetPortValue()
	case *corev3.Address_Pipe:
		return "unix://" + a.Pipe.GetPath(), 0
	case *corev3.Address_EnvoyInternalAddress:
		return "envoy://" + a.EnvoyInternalAddress.GetServerListenerName() + "/" + a.EnvoyInternalAddress.GetEndpointId(), 0
	}
	return "-", 0
}

func portText(port uint32) string {
	if port == 0 {
		return "-"
	}
	return strconv.Itoa(int(port))
}

// chains returns the filter chains of a listener; the default filter chain is last.
func chains(l *listenerv3.Listener) []*listenerv3.FilterChain {
	out := slices.Clone(l.GetFilterChains())
	if l.GetDefaultFilterChain() != nil {
		out = append(out, l.GetDefaultFilterChain())
	}
	return out
}

// kind returns HTTP, TCP or HTTP+TCP, according to the filters that terminal returns for the filter chains. It ignores
// chains to the cluster BlackHoleCluster. If terminal finds no filter in the other chains, kind returns UNKNOWN.
func kind(l *listenerv3.Listener) string {
	var http, tcp bool
	for _, chain := range chains(l) {
		switch last, name := terminal(chain); {
		case last == nil:
		case name == xds.BlackHole:
		default:
			_, isHTTP := last.(*hcmv3.HttpConnectionManager)
			http, tcp = http || isHTTP, tcp || !isHTTP
		}
	}
	switch {
	case http && tcp:
		return "HTTP+TCP"
	case http:
		return "HTTP"
	case tcp:
		return "TCP"
	}
	return "UNKNOWN"
}

// terminal returns the first filter of a chain that is an HTTP connection manager or a TCP proxy. For a TCP proxy it
// also returns the name of the cluster. The filter is nil if the chain has neither.
func terminal(chain *listenerv3.FilterChain) (proto.Message, string) {
	for _, filter := range chain.GetFilters() {
		m, err := filter.GetTypedConfig().UnmarshalNew()
		if err != nil {
			continue
		}
		switch m := m.(type) {
		case *hcmv3.HttpConnectionManager:
			return m, ""
		case *tcpv3.TcpProxy:
			return m, m.GetCluster()
		}
	}
	return nil, ""
}

// listenerRows returns one row for each filter chain, or a single row if the listener has no chain.
func listenerRows(_ Filter, m proto.Message) (rows [][]string) {
	l, _ := m.(*listenerv3.Listener)
	host, port := hostPort(l.GetAddress())
	for _, chain := range chains(l) {
		rows = append(rows, []string{host, portText(port), chainMatch(chain.GetFilterChainMatch()), destination(chain)})
	}
	if rows == nil {
		if l.GetAddress() == nil {
			host = l.GetName()
		}
		rows = [][]string{{host, portText(port), "-", "-"}}
	}
	return rows
}

// chainMatch describes the connections that a chain accepts.
func chainMatch(m *listenerv3.FilterChainMatch) string {
	var said []string
	add := func(what string, list []string) {
		if len(list) > 0 {
			said = append(said, what+": "+strings.Join(list, ","))
		}
	}
	one := func(text string) []string {
		if text == "" {
			return nil
		}
		return []string{text}
	}
	add("SNI", m.GetServerNames())
	add("Trans", one(m.GetTransportProtocol()))
	add("App", m.GetApplicationProtocols())
	port := ""
	if m.GetDestinationPort() != nil {
		port = fmt.Sprintf(":%d", m.GetDestinationPort().GetValue())
	}
	switch ranges := prefixes(m.GetPrefixRanges()); {
	case len(ranges) > 0:
		add("Addr", one(strings.Join(ranges, ",")+port))
	case port != "":
		add("Addr", one("*"+port))
	}
	add("Source", prefixes(m.GetSourcePrefixRanges()))
	if len(said) == 0 {
		return "ALL"
	}
	return strings.Join(said, "; ")
}

func prefixes(ranges []*corev3.CidrRange) (out []string) {
	for _, r := range ranges {
		out = append(out, fmt.Sprintf("%s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue()))
	}
	return out
}

// destination describes the destination of the connections of a chain.
func destination(chain *listenerv3.FilterChain) string {
	switch m, _ := terminal(chain); m := m.(type) {
	case *hcmv3.HttpConnectionManager:
		if name := m.GetRds().GetRouteConfigName(); name != "" {
			return "Route: " + name
		}
		return inline(m.GetRouteConfig())
	case *tcpv3.TcpProxy:
		return tcpDestination(m)
	}
	return "Non-HTTP/Non-TCP"
}

func tcpDestination(m *tcpv3.TcpProxy) string {
	if m.GetCluster() != "" {
		return "Cluster: " + m.GetCluster()
	}
	var weighted []string
	for _, c := range m.GetWeightedClusters().GetClusters() {
		weighted = append(weighted, fmt.Sprintf("%s (%d)", c.GetName(), c.GetWeight()))
	}
	return "Clusters: " + orDash(strings.Join(weighted, ", "))
}

// inline describes a route configuration within a listener. If the only route matches all paths and leads to one
// cluster, the text names the cluster. In all other cases, the text has the domains and matches.
func inline(rc *routev3.RouteConfiguration) string {
	var hosts []string
	for _, vh := range rc.GetVirtualHosts() {
		var matches []string
		for _, r := range vh.GetRoutes() {
			to := r.GetRoute().GetCluster()
			if to != "" && len(rc.GetVirtualHosts()) == 1 && len(vh.GetRoutes()) == 1 && match(r.GetMatch()) == "/*" {
				return "Cluster: " + to
			}
			matches = append(matches, match(r.GetMatch()))
		}
		hosts = append(hosts, strings.TrimSpace(domains(vh.GetDomains())+" "+strings.Join(matches, " or ")))
	}
	return "Inline Route: " + orDash(strings.Join(hosts, "; "))
}
