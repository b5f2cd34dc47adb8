package analysis

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// family is a kind of rules of a VirtualService, named as its field.
type family string

// The kinds of rules.
const (
	httpRules family = "http"
	tlsRules  family = "tls"
	tcpRules  family = "tcp"
)

// matching is the common part of the matches of all kinds of rules.
type matching interface {
	GetPort() uint32
	GetGateways() []string
}

// listener is a server of a Gateway, with the kinds of rules that it reads.
type listener struct {
	port  uint32
	reads []family
	name  string // of the server, for messages
}

// families returns the kinds of rules that a server reads (push/gateways, Server.HTTP, Passes and Ends). It returns all
// kinds for a server with AUTO_PASSTHROUGH, which needs no rules, and for one whose protocol or TLS settings have a
// problem of their own.
func families(s *networkingv1.Server) []family {
	protocol, known := model.ParseProtocol(s.GetPort().GetProtocol())
	tls, mode := s.GetTls() != nil, s.GetTls().GetMode()
	secure := protocol == model.Protocol_PROTOCOL_HTTPS || protocol == model.Protocol_PROTOCOL_TLS
	switch {
	case protocol.IsHTTP():
		return []family{httpRules}
	case !known, protocol == model.Protocol_PROTOCOL_AUTO, secure && !tls, mode == networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH:
		return []family{httpRules, tlsRules, tcpRules}
	case tls && mode == networkingv1.ServerTLSSettings_PASSTHROUGH:
		return []family{tlsRules, tcpRules}
	case protocol == model.Protocol_PROTOCOL_HTTPS:
		return []family{httpRules}
	}
	return []family{tcpRules}
}

// unreadRules warns of rules that no server of the VirtualService's Gateways reads. These are rules of a kind that the
// servers for its hosts do not read, and matches for a port that these servers lack. The first unread rule of each kind
// and each such match have a warning. Rules that also apply to sidecars have no warning, nor have those for a Gateway
// that is missing or lacks the hosts.
func unreadRules(x *examination) {
	vs := x.record.(*model.VirtualService)
	known := map[string][]listener{}
	for _, kind := range []family{httpRules, tlsRules, tcpRules} {
		first, more, by := -1, 0, ""
		for i, matches := range rulesOf(vs, kind) {
			read := false
			for j, m := range matches {
				servers, all := x.listenersOf(vs, m.GetGateways(), known)
				readers := slices.DeleteFunc(slices.Clone(servers), func(l listener) bool { return !slices.Contains(l.reads, kind) })
				read = read || !all || len(readers) > 0
				if len(readers) == 0 {
					by = summary(servers)
				} else if all && m.GetPort() > 0 && !slices.ContainsFunc(readers, func(l listener) bool { return l.port == m.GetPort() }) {
					x.found("", problem.NoEffect, fmt.Sprintf("spec.%s[%d].match[%d].port", kind, i, j), "no server of its Gateways that reads "+
						"%s rules for its hosts has port %d, so the match gets nothing at gateways: state the port of the Gateway's server, not that of "+
						"the Pod or of the destination (here %s)", kind, m.GetPort(), summary(readers))
				}
			}
			switch {
			case read:
			case first < 0:
				first = i
			default:
				more++
			}
		}
		if first >= 0 {
			others := ""
			if more > 0 {
				others = fmt.Sprintf(" (nor %d more)", more)
			}
			x.found("", problem.NoEffect, fmt.Sprintf("spec.%s[%d]", kind, first), "no server of its Gateways reads this %s rule%s: its hosts have "+
				"%s there", kind, others, by)
		}
	}
}

// rulesOf returns the matches of each rule of a kind. A rule without matches has one that matches everything.
func rulesOf(vs *model.VirtualService, kind family) (all [][]matching) {
	switch kind {
	case httpRules:
		for _, r := range vs.Spec.GetHttp() {
			all = append(all, matchings(r.GetMatch()))
		}
	case tlsRules:
		for _, r := range vs.Spec.GetTls() {
			all = append(all, matchings(r.GetMatch()))
		}
	case tcpRules:
		for _, r := range vs.Spec.GetTcp() {
			all = append(all, matchings(r.GetMatch()))
		}
	}
	return all
}

// matchings returns the matches of one rule.
func matchings[M matching](matches []M) (all []matching) {
	for _, m := range matches {
		all = append(all, m)
	}
	if len(all) == 0 {
		all = append(all, &networkingv1.L4MatchAttributes{})
	}
	return all
}

// listenersOf returns the servers with hosts of the VirtualService at the Gateways of a match. The second result is
// false if the match applies to sidecars too, or if a Gateway is missing or has no such server. Each Gateway is read
// once, and stored in known.
func (x *examination) listenersOf(vs *model.VirtualService, gateways []string,
	known map[string][]listener) (all []listener, complete bool) {
	if len(gateways) == 0 {
		gateways = vs.Spec.GetGateways()
	}
	if len(gateways) > maxCompared {
		return nil, false
	}
	complete = len(gateways) > 0
	for _, name := range gateways {
		of, is := known[name]
		if !is {
			of = x.listenersAt(vs, name)
			known[name] = of
		}
		all, complete = append(all, of...), complete && len(of) > 0
	}
	return all, complete
}

// listenersAt returns the servers of a Gateway that have a host of the VirtualService.
func (x *examination) listenersAt(vs *model.VirtualService, gateway string) (all []listener) {
	namespace, short, qualified := strings.Cut(gateway, "/")
	if !qualified {
		return nil // mesh
	}
	for _, r := range x.with(fact{kind: gatewayOfName, namespace: namespace, name: short}) {
		for _, s := range r.(*model.Gateway).Spec.GetServers() {
			if serves(s, namespace, vs) {
				all = append(all, listener{s.GetPort().GetNumber(), families(s), describe(s)})
			}
		}
	}
	return all
}

// serves reports whether a server of a Gateway in namespace own has a host of a VirtualService, a wildcard that covers
// such a host, or a host that the VirtualService's wildcard covers.
func serves(s *networkingv1.Server, own string, vs *model.VirtualService) bool {
	return slices.ContainsFunc(s.GetHosts(), func(stated string) bool {
		to, name := model.ServerHost(stated, own)
		return (to == "" || to == vs.Key.Namespace) && slices.ContainsFunc(vs.Spec.GetHosts(), func(host string) bool {
			return name == host || model.Covers(name, host) || model.Covers(host, name)
		})
	})
}

// describe returns the port, protocol and TLS mode of a server, such as "port 443 (HTTPS, PASSTHROUGH)".
func describe(s *networkingv1.Server) string {
	form := strings.ToUpper(s.GetPort().GetProtocol())
	if slices.Contains(families(s), httpRules) && form != "HTTPS" || s.GetTls() == nil {
		return fmt.Sprintf("port %d (%s)", s.GetPort().GetNumber(), form)
	}
	return fmt.Sprintf("port %d (%s, %s)", s.GetPort().GetNumber(), form, s.GetTls().GetMode())
}

// summary describes the first servers of a list, each description once.
func summary(all []listener) string {
	var names []string
	for _, l := range all {
		if slices.Contains(names, l.name) {
			continue
		}
		if len(names) == 3 {
			return strings.Join(names, ", ") + " and others"
		}
		names = append(names, l.name)
	}
	return strings.Join(names, ", ")
}
