package model

import (
	"iter"
	"slices"
	"strings"
)

// Backwards returns the bytes of a host in reverse order, so that hosts with a common ending become neighbours when
// they are sorted.
func Backwards(host string) string {
	b := []byte(host)
	slices.Reverse(b)
	return string(b)
}

// Wildcards yields the wildcards that cover a host or wildcard, the most specific first. For "a.b-c.d" they are
// "*.b-c.d", "*-c.d", "*.d" and "*". The argument itself is not yielded. For "" it yields "*".
func Wildcards(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := 1; i < len(host); i++ {
			if pattern := "*" + host[i:]; (host[i] == '.' || host[i] == '-') && pattern != host && !yield(pattern) {
				return
			}
		}
		if host != "*" {
			yield("*")
		}
	}
}

// Covering yields a host or wildcard, and then the wildcards that cover it (Wildcards).
func Covering(host string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if !yield(host) {
			return
		}
		for pattern := range Wildcards(host) {
			if !yield(pattern) {
				return
			}
		}
	}
}

// Covers reports whether a wildcard covers a host or another wildcard, which means that Wildcards(host) yields it. It
// is false for equal arguments, and if wildcard does not begin with "*".
func Covers(wildcard, host string) bool {
	rest, is := strings.CutPrefix(wildcard, "*")
	switch {
	case !is || wildcard == host:
		return false
	case rest == "":
		return true
	}
	return (rest[0] == '.' || rest[0] == '-') && len(host) > len(rest) && strings.HasSuffix(host, rest)
}

// ServerHost parses a host of a Gateway's server, [NAMESPACE/]HOST. Only VirtualServices of the resulting namespace may
// bind to the host. If the namespace is empty, those of all namespaces may. "." stands for the namespace of the
// Gateway, the parameter gatewayNamespace. Both results are in lower case, except gatewayNamespace
// (https://istio.io/latest/docs/reference/config/networking/gateway/#Server, hosts). The name has no dot at its end, as
// hosts of VirtualServices. The text is not validated.
func ServerHost(text, gatewayNamespace string) (namespace, name string) {
	namespace, name, stated := strings.Cut(strings.TrimSuffix(strings.ToLower(text), "."), "/")
	switch {
	case !stated:
		return "", namespace
	case namespace == "*":
		return "", name
	case namespace == ".":
		return gatewayNamespace, name
	}
	return namespace, name
}

// NamesServer reports whether clients of a protocol name the server, by a host header or by SNI.
func NamesServer(p Protocol) bool {
	switch p {
	case Protocol_PROTOCOL_HTTP, Protocol_PROTOCOL_HTTP2, Protocol_PROTOCOL_GRPC, Protocol_PROTOCOL_GRPC_WEB,
		Protocol_PROTOCOL_HTTPS, Protocol_PROTOCOL_TLS:
		return true
	default:
		return false
	}
}

// HostsOf lists the hosts that a record defines or selects; nil for nil and for kinds without hosts. Snapshots find the
// record by each of these hosts (mirror.Snapshot.ByHost). Callers must not change the list.
func HostsOf(r Record) []string {
	switch t := r.(type) {
	case *Service:
		return t.Spec.GetHosts()
	case *Endpoints:
		return t.Spec.GetHosts()
	case *VirtualService:
		return t.Spec.GetHosts()
	case *DestinationRule:
		return []string{t.Spec.GetHost()}
	}
	return nil
}
