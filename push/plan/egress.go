package plan

import (
	"fmt"
	"slices"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// egress is one egress listener of a Sidecar, or the one that stands for all where there is none.
type egress struct {
	order    int // among the scope's; a listener belongs to the first that makes it
	hosts    []hostPattern
	port     uint32 // 0: the ports of the services
	protocol model.Protocol
	bind     string // empty: chosen by the kind of traffic
	direct   bool   // captureMode NONE: nothing is redirected, so the listener is bound
	// pulls counts, by host, the VirtualServices that are seen here and send there: their destinations are seen too.
	pulls map[string]int
}

type hostPattern struct{ namespace, host string }

// unixSocket says whether the listener is a Unix socket.
func (e *egress) unixSocket() bool { return strings.HasPrefix(e.bind, "unix://") }

// everything says whether all that is exported is imported.
func (e *egress) everything() bool {
	return len(e.hosts) == 1 && e.hosts[0] == hostPattern{"*", "*"}
}

// importsNothing says whether "~/*" (no namespace) is among the hosts: whatever stands beside it, the listener sees no
// service and no route. Istio's control plane reads it so (reference: IstioEgressListener.hosts in sidecar.proto, "~" is no
// namespace).
func (e *egress) importsNothing() bool {
	return slices.ContainsFunc(e.hosts, func(p hostPattern) bool { return p.namespace == "~" })
}

// compileEgress reads the Sidecar's egress listeners; what makes no sense is left out, with a problem.
func compileEgress(sidecar *model.Sidecar, key view.Scope) (out []*egress, found []Problem) {
	direct := key.Mode == view.None
	if sidecar == nil || len(sidecar.Spec.GetEgress()) == 0 {
		return []*egress{{hosts: []hostPattern{{"*", "*"}}, direct: direct}}, nil
	}
	for i, l := range sidecar.Spec.GetEgress() {
		e := &egress{order: len(out), bind: l.GetBind(), direct: direct, pulls: map[string]int{}}
		bad := func(field, format string, args ...any) {
			found = append(found, Problem{Key: sidecar.Key, Field: fmt.Sprintf("spec.egress[%d].%s", i, field), Code: problem.Invalid,
				Severity: problem.Error, Message: fmt.Sprintf(format, args...)})
		}
		switch l.GetCaptureMode() {
		case networkingv1.CaptureMode_NONE:
			e.direct = true
		}
		if e.unixSocket() {
			e.direct = true
		}
		if p := l.GetPort(); p != nil {
			e.port = p.GetNumber()
			known := false
			if e.protocol, known = protocolOf(p.GetProtocol()); !known {
				bad("port.protocol", "%q is not supported; the listener is left out", p.GetProtocol())
				continue
			}
		}
		for _, h := range l.GetHosts() {
			namespace, host, ok := strings.Cut(h, "/")
			if !ok {
				namespace, host = "*", h
			}
			if namespace == "." {
				namespace = key.Namespace
			}
			e.hosts = append(e.hosts, hostPattern{namespace, host})
		}
		if e.importsNothing() {
			e.hosts = nil
		}
		out = append(out, e)
	}
	return out, found
}

// imports says whether the listener's hosts name this host of this namespace.
func (e *egress) imports(namespace, host string) bool {
	for _, p := range e.hosts {
		if (p.namespace == "*" || p.namespace == namespace) && covers(p.host, host) {
			return true
		}
	}
	return false
}

// sees says whether the listener's hosts and those of a VirtualService overlap.
func (e *egress) sees(vs *model.VirtualService) bool {
	for _, p := range e.hosts {
		if p.namespace != "*" && p.namespace != vs.Key.Namespace {
			continue
		}
		for _, h := range vs.Spec.GetHosts() {
			if covers(p.host, h) || covers(h, p.host) {
				return true
			}
		}
	}
	return false
}

// has says whether a service of the scope is seen at this listener.
func (e *egress) has(svc *model.Service, host string) bool {
	return e.imports(svc.Key.Namespace, host) || e.pulls[host] > 0
}

// imports says whether any egress listener sees a host of a service.
func (s *scope) imports(svc *model.Service, host string) bool {
	for _, e := range s.egress {
		if e.has(svc, host) {
			return true
		}
	}
	return false
}

// pull counts the destinations of a VirtualService in or out, and reports the hosts that are seen from now on or no
// longer.
func (s *scope) pull(vs *model.VirtualService, by int, changed func(host string)) {
	if vs == nil || !s.sees(vs) {
		return
	}
	for _, e := range s.egress {
		if e.everything() || !e.sees(vs) {
			continue
		}
		for h := range destinationHosts(vs) {
			before := e.pulls[h]
			if e.pulls[h] += by; e.pulls[h] == 0 {
				delete(e.pulls, h)
			}
			if (before == 0) != (e.pulls[h] == 0) {
				changed(h)
			}
		}
	}
}

// routed is the egress listener whose hosts stand in the route configuration of a port: the first with that port, else
// the first without one. Nil: there is none.
func (s *scope) routed(port uint32) *egress {
	var general *egress
	for _, e := range s.egress {
		switch {
		case e.unixSocket():
		case e.port == port:
			return e
		case e.port == 0 && general == nil:
			general = e
		}
	}
	return general
}
