package gateways

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Conflict reports a server, or hosts of a server, that a router does not serve as the Gateway states. A conflict may
// also report all later servers and hosts of a Gateway that exceeds the bounds of one Gateway. Only the first
// problem.MostOfObject errors of a Gateway are listed. If there are more, the last conflict gives the number of the
// others. The Problem has the Key of Loser's Gateway. The Severity is Error if the server or the hosts are not served,
// else Warning.
type Conflict struct {
	Loser  Server
	Winner *Server // the server that takes precedence; nil if the reason is not another server
	model.Problem
}

// reason states why a server or a part of it is not served, or is served differently than the Gateway states.
type reason struct {
	winner   *Server
	field    string // below spec.servers[i]; empty: the whole server
	code     problem.Code
	analyzer problem.Analyzer
	severity problem.Severity // empty: Error
	message  string
}

// lose appends a conflict. It keeps the first problem.MostOfObject errors of a Gateway, and as many warnings, because
// lists of problems do not show more of one object. The method omitted reports the number of further errors.
func (m *merger) lose(s Server, r reason) {
	r.severity = cmp.Or(r.severity, problem.Error)
	m.lost[r.severity]++
	if m.lost[r.severity] > problem.MostOfObject {
		if r.severity == problem.Error {
			m.last = s
		}
		return
	}
	p := model.Problem{Key: s.Gateway.Key, Field: s.field(), Code: r.code, Analyzer: r.analyzer, Severity: r.severity, Message: r.message}
	if r.field != "" {
		p.Field += "." + r.field
	}
	m.conflicts = append(m.conflicts, Conflict{Loser: s, Winner: r.winner, Problem: p})
}

// omitted appends a conflict with the number of a Gateway's errors that lose did not keep, and resets the counts.
func (m *merger) omitted() {
	if more := m.lost[problem.Error] - problem.MostOfObject; more > 0 {
		p := model.Problem{Key: m.last.Gateway.Key, Field: "spec.servers", Code: problem.Duplicate, Severity: problem.Error,
			Message: fmt.Sprintf("%d more servers, or hosts of servers, are not served, beside those of the first %d problems", more,
				problem.MostOfObject)}
		m.conflicts = append(m.conflicts, Conflict{Loser: m.last, Problem: p})
	}
	clear(m.lost)
}

// field returns the path of the server in its Gateway.
func (s Server) field() string { return fmt.Sprintf("spec.servers[%d]", s.Index) }

// hostField returns the path of the host h below the server. If several stated hosts mean h, the path is that of the
// first one.
func (s Server) hostField(h Host) string {
	index := slices.IndexFunc(s.Spec().GetHosts(), func(text string) bool { return hostOf(text, s.namespace()) == h })
	return hostPath(index)
}

// hostFields returns the result of hostField for all hosts of the server.
func (s Server) hostFields() func(Host) string {
	indices := make(map[Host]int, len(s.Hosts))
	for i, text := range s.Spec().GetHosts() {
		h := hostOf(text, s.namespace())
		if _, earlier := indices[h]; !earlier {
			indices[h] = i
		}
	}
	return func(h Host) string { return hostPath(indices[h]) }
}

func hostPath(index int) string { return fmt.Sprintf("hosts[%d]", max(index, 0)) }

// where returns the Gateway and the field of the server, for messages.
func (s Server) where() string { return fmt.Sprintf("Gateway %s (%s)", s.Name(), s.field()) }

// family returns the kind of traffic of the server, for messages.
func (s Server) family() string {
	switch {
	case s.Passes():
		return "TLS that is passed through"
	case s.TLS():
		return "TLS"
	case s.plainHTTP():
		return "HTTP without TLS"
	}
	return "TCP without TLS"
}

// meanwhile is the end of messages about a server that loses to another one.
const meanwhile = "; this server is not served, and that Gateway is unchanged"

// against returns the reason why a server is not served because the server w takes precedence.
func against(w *Server, field, format string, args ...any) *reason {
	return &reason{winner: w, field: field, code: problem.Duplicate, analyzer: problem.ConflictingGateways,
		message: fmt.Sprintf(format, args...) + meanwhile}
}

// PortText returns the port of the server for messages, with the Pod's port if a Service translates it.
func (s Server) PortText() string {
	if stated := s.Spec().GetPort().GetNumber(); stated != s.Bound {
		return fmt.Sprintf("port %d (%d of the Pod)", stated, s.Bound)
	}
	return fmt.Sprintf("port %d", s.Bound)
}

func duplicateHost(s Server, i int, w *Server) *reason {
	return against(w, s.hostField(s.Hosts[i]), "host %s on %s belongs to %s, which takes precedence", s.Hosts[i], s.PortText(), w.where())
}

func otherProtocol(s Server, w *Server) *reason {
	return against(w, "port.protocol", "%s: %s takes precedence and serves %s, which excludes %s on the same port", s.PortText(), w.where(),
		w.family(), s.family())
}

func secondPlain(s Server, w *Server) *reason {
	return against(w, "port.protocol", "%s: %s takes precedence, and only one server of a port with TLS may serve HTTP without TLS",
		s.PortText(), w.where())
}

func afterTLS(s Server, w *Server) *reason {
	return against(w, "port.protocol", "%s: %s takes precedence, and a server without TLS may only be the second one of a port with TLS",
		s.PortText(), w.where())
}

// besideTLS returns the reason why a TCP server without TLS is not served beside servers with TLS of another namespace.
// Envoy inspects connections for TLS only if the port has servers with TLS. So edits in the other namespace could
// replace the whole listener.
func besideTLS(s Server, w *Server) *reason {
	return against(w, "port.protocol", "%s: %s serves %s there and is of another namespace, whose edits could end the connections of "+
		"%s on the same port", s.PortText(), w.where(), w.family(), s.family())
}

func sameRoute(s Server, w *Server) *reason {
	return against(w, "port.name", "the name of the route configuration, %s, belongs to %s, which takes precedence", s.RouteName(), w.where())
}

func catchAll(s Server, w *Server) *reason {
	return against(w, "port.protocol", "%s: %s takes precedence and serves every host name (*), so connections without TLS reach it too",
		s.PortText(), w.where())
}

func moreSpecific(s Server, w *Server) *reason {
	return against(w, "bind", "%s: %s takes precedence and listens at all addresses: a server at %s would take its connections",
		s.PortText(), w.where(), s.Spec().GetBind())
}

// lostHosts returns the reason why the server s does not serve the hosts in the parameter lost. The parameter field is
// the path of the first of them. Their SNI selects a filter chain of the server w already. If w is nil, the hosts are
// not valid as SNI. The parameter whole states that no other host of the server is served.
func lostHosts(s Server, field string, lost []Host, w *Server, whole bool) reason {
	r := reason{winner: w, field: field, code: problem.Duplicate, analyzer: problem.ConflictingGateways}
	if w != nil {
		r.message = fmt.Sprintf("%s on %s: %s takes precedence and has the name already", list(lost), s.PortText(), w.where())
	} else {
		r.code, r.analyzer = problem.NotSupported, ""
		r.message = fmt.Sprintf("%s: TLS supports only wildcards of whole labels (*.example.com)", list(lost))
	}
	if whole {
		r.message += "; this server is not served"
	} else {
		r.message += "; the other hosts of this server are served"
	}
	return r
}

// list returns the first three hosts and the number of the rest, for messages.
func list(hosts []Host) string {
	const shown = 3
	var texts []string
	for _, h := range hosts[:min(shown, len(hosts))] {
		texts = append(texts, h.String())
	}
	text := "host " + strings.Join(texts, ", ")
	if more := len(hosts) - len(texts); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func badBind(err error) reason {
	return reason{field: "bind", code: problem.Invalid, message: err.Error() + "; this server is not served"}
}

func incomplete() reason {
	return reason{code: problem.Invalid, message: "a server needs a host and a port of 1 to 65535; this server is not served"}
}

func reservedPort(s Server, use string) reason {
	return reason{field: "port.number", code: problem.NotAllowed,
		message: fmt.Sprintf("port %d of the Pod is reserved for %s; this server is not served: choose another port or targetPort", s.Bound, use)}
}

func privilegedPort(s Server) reason {
	return reason{field: "port.number", code: problem.NotAllowed,
		message: fmt.Sprintf("the Pod may not bind port %d, which is below 1024 (UNPRIVILEGED_POD), and no Service translates the port; "+
			"this server is not served", s.Bound)}
}

func undefinedPort(s Server) reason {
	return reason{field: "port.number", code: problem.NotFound, analyzer: problem.GatewayPortNotDefinedOnService, severity: problem.Warning,
		message: fmt.Sprintf("no Service of the gateway's Pod has port %d: the server is reachable only at the Pod's own address", s.Bound)}
}

// exceptAt returns the warning for a server at all addresses whose port has an older server at one address. The kernel
// passes connections to that address only to the listener of the older server.
func exceptAt(s Server, w *Server) reason {
	return reason{winner: w, field: "bind", code: problem.Duplicate, analyzer: problem.ConflictingGateways, severity: problem.Warning,
		message: fmt.Sprintf("%s: %s takes precedence and listens at %s: this server gets no connections to that address", s.PortText(),
			w.where(), w.Spec().GetBind())}
}

// withoutHTTP3 returns the warning for a server that requests client certificates, and is therefore served over TCP
// only.
func withoutHTTP3(s Server) reason {
	return reason{field: "tls.mode", code: problem.NotSupported, severity: problem.Warning,
		message: fmt.Sprintf("mode %v: HTTP/3 does not support client certificates, so the server is served over TCP only",
			s.Spec().GetTls().GetMode())}
}

// manyAuto returns the reason why a server of mode AUTO_PASSTHROUGH beyond the bound of its namespace is not served.
func manyAuto(s Server) reason {
	return reason{code: problem.NotAllowed, field: "tls.mode", message: fmt.Sprintf(
		"the Gateways of namespace %s may have %d servers of mode AUTO_PASSTHROUGH on a router, because each has a filter chain for "+
			"each service; this one is not served", s.namespace(), mostAuto)}
}

// beyond returns the reason why a Gateway's servers and hosts beyond the bounds of one Gateway are not served. The
// first of them is the host that a server states at the index keep. All later hosts and servers follow.
func beyond(keep int) reason {
	r := reason{code: problem.NotAllowed}
	if keep > 0 {
		r.field = hostPath(keep)
	}
	r.message = fmt.Sprintf("a Gateway may have %d servers and %d hosts; hosts and servers from here on are not served", mostServers,
		mostHosts)
	return r
}
