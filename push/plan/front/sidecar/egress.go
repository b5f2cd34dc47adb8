package sidecar

import (
	"fmt"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/plan/host"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// egress is one egress listener of the Sidecar of a scope (a group of proxies with the same outbound configuration). A
// scope without egress listeners has a single egress that imports all hosts.
type egress struct {
	*host.Imports
	order    int    // the index within the scope; a listener of Envoy belongs to the first egress with traffic for it
	number   int    // the number within the Sidecar, from 1; 0 without an egress listener of a Sidecar
	port     uint32 // 0 means the ports of the services
	protocol model.Protocol
	bind     string // the bind address; if it is empty, each kind of traffic has its own
	direct   bool   // captureMode NONE: no traffic is redirected, so Envoy binds the listener to its port
}

// unixSocket reports whether the listener is a Unix socket.
func (e *egress) unixSocket() bool { return strings.HasPrefix(e.bind, "unix://") }

// egressOf parses the egress listeners of a Sidecar, which may be nil. A listener with an unsupported protocol is left
// out and reported.
func egressOf(sidecar *model.Sidecar, key view.Scope) (out []*egress, found []input.Problem) {
	direct := key.Mode == view.None
	if sidecar == nil || len(sidecar.Spec.GetEgress()) == 0 {
		return []*egress{{Imports: host.ImportAll(), direct: direct}}, nil
	}
	for i, l := range sidecar.Spec.GetEgress() {
		e := &egress{order: len(out), number: i + 1, bind: l.GetBind(), direct: direct}
		bad := func(field, format string, args ...any) {
			found = append(found, input.Problem{Key: sidecar.Key, Field: fmt.Sprintf("spec.egress[%d].%s", i, field), Code: problem.Invalid,
				Severity: problem.Error, Message: fmt.Sprintf(format, args...)})
		}
		if l.GetCaptureMode() == networkingv1.CaptureMode_NONE || e.unixSocket() {
			e.direct = true
		}
		if p := l.GetPort(); p != nil {
			e.port = p.GetNumber()
			known := false
			if e.protocol, known = model.ParseProtocol(p.GetProtocol()); !known {
				bad("port.protocol", "%q is not supported; the listener is left out", p.GetProtocol())
				continue
			}
		}
		e.Imports = host.ImportHosts(l.GetHosts(), key.Namespace, e.port)
		out = append(out, e)
	}
	return out, found
}

// egressFor returns the egress listener whose hosts are in the route configuration of a port. It is the first egress
// listener with that port, or else the first without a port, or nil. Unix sockets are ignored.
func (s *scope) egressFor(port uint32) *egress {
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
