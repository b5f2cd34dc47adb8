package gateways

import (
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
)

// Host is one host of a server: a name, and the namespace whose VirtualServices may bind to it.
type Host struct {
	Namespace string // namespace; empty for all namespaces, "~" for no namespace
	Name      string // lower case: a name, a wildcard "*.example.com", or "*"
}

// String returns the host in the notation of Gateways: NAMESPACE/NAME, or NAME for all namespaces.
func (h Host) String() string {
	if h.Namespace == "" {
		return h.Name
	}
	return h.Namespace + "/" + h.Name
}

// Allows reports whether VirtualServices of a namespace may bind to the host.
func (h Host) Allows(namespace string) bool { return h.Namespace == "" || h.Namespace == namespace }

// hostsOf parses the hosts of a server, each once, in the stated order. The namespace in "./h" is the parameter
// namespace, which is the Gateway's own. "*/h" means "h". If one host is "*/*", the result is only "*", as in istiod.
func hostsOf(stated []string, namespace string) (hosts []Host) {
	seen := make(map[Host]bool, len(stated))
	for _, text := range stated {
		if text == "*/*" {
			return []Host{{Name: "*"}}
		}
		if h := hostOf(text, namespace); h.Name != "" && !seen[h] {
			seen[h] = true
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// hostOf parses one host of a server.
func hostOf(stated, namespace string) Host {
	of, name := model.ServerHost(stated, namespace)
	return Host{of, name}
}

// Names returns the SNI names of the filter chain of a server that terminates TLS: the names of its hosts, sorted, each
// once. If one of the hosts is "*", the chain matches every SNI, and the result is nil. Without hosts the result is
// empty but not nil.
func Names(hosts []Host) []string {
	names := make([]string, 0, len(hosts))
	for _, h := range hosts {
		if h.Name == "*" {
			return nil
		}
		names = append(names, h.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// PartialWildcard reports whether a name has a wildcard that is only a part of a label. Envoy refuses such names as
// SNI.
func PartialWildcard(name string) bool {
	return name != "*" && strings.Contains(strings.TrimPrefix(name, "*."), "*")
}

// Intersect returns the domains under which a server serves a VirtualService's host. It compares vsHost with each host
// of the server that admits the VirtualService's namespace. If one of the two equals or covers the other, the domain is
// the more specific one. The case of vsHost is ignored. Domains are in lower case, each once, in the order of the
// server's hosts. Without an overlap the result is nil.
func Intersect(serverHosts []Host, namespace string, vsHost string) (domains []string) {
	vsHost = strings.ToLower(vsHost)
	var seen map[string]bool
	for _, h := range serverHosts {
		domain := h.Name
		switch {
		case !h.Allows(namespace):
			continue
		case h.Name == vsHost, model.Covers(vsHost, h.Name):
		case model.Covers(h.Name, vsHost):
			domain = vsHost
		default:
			continue
		}
		if seen == nil {
			seen = map[string]bool{}
		}
		if !seen[domain] {
			seen[domain] = true
			domains = append(domains, domain)
		}
	}
	return domains
}

// States reports whether a domain, in lower case, is itself a host of the server, for any namespace. Wildcards are not
// applied.
func (s Server) States(domain string) bool {
	return slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Name == domain })
}

// StatesFor is like States, but considers only hosts that admit VirtualServices of a namespace.
func (s Server) StatesFor(namespace, domain string) bool {
	return slices.ContainsFunc(s.Hosts, func(h Host) bool { return h.Name == domain && h.Allows(namespace) })
}

// Allows reports whether VirtualServices of a namespace may serve a domain at the server. The case of domain is
// ignored. A wildcard is allowed if one host of the server is equal to the wildcard or covers it.
func (s Server) Allows(namespace, domain string) bool {
	domain = strings.ToLower(domain)
	return slices.ContainsFunc(s.Hosts, func(h Host) bool {
		return h.Allows(namespace) && (h.Name == domain || model.Covers(h.Name, domain))
	})
}
