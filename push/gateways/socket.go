package gateways

import (
	"cmp"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"unicode"

	"navarch.io/navarch/store/model"
)

const (
	unixPrefix = "unix://"
	// longestPath is Envoy's limit: sun_path has 108 bytes with the final zero.
	longestPath = 107
	// tunnelPort is the port of HBONE. Neither the agent nor the Envoy of a gateway binds it by default. A server may
	// use it, as Istio's east-west gateways do.
	tunnelPort = 15008
	// lowestUnprivileged is the first port that a process without CAP_NET_BIND_SERVICE may bind.
	lowestUnprivileged = 1024
)

// agentFolders lists the folders in which no server may bind a Unix socket. They contain sockets of the agent, tokens
// of the Pod, or files of the system. Envoy removes the file at the path of a Unix socket before it binds. So a server
// there could take over the agent's socket for xDS or SDS.
var agentFolders = []string{"/etc/istio", "/var/run/secrets", "/run/secrets", "/var/lib/istio", "/proc", "/sys", "/dev"}

// socket identifies a listener, which all servers with this bind and port share.
type socket struct {
	bind string // canonical; empty: all addresses of the Pod
	port uint32
}

// canonicalBind returns the same text for all binds that mean one address, because Envoy refuses two listeners at one
// address. The text is empty for a bind that means all addresses of the Pod. The error reports that the bind is neither
// an IP address nor a Unix socket that Envoy may bind.
func (r Router) canonicalBind(stated string) (string, error) {
	if file, is := strings.CutPrefix(stated, unixPrefix); is {
		return canonicalPath(file)
	}
	if stated == "" {
		return "", nil
	}
	addr, err := netip.ParseAddr(stated)
	if err != nil {
		return "", fmt.Errorf("%q is neither an IP address nor %s and a path", stated, unixPrefix)
	}
	if addr.Zone() != "" { // Envoy refuses a zone that the Pod does not have
		return "", fmt.Errorf("%q has a zone: state the address without it", stated)
	}
	text := addr.Unmap().String()
	if len(r.Wildcards) == 0 && addr.Unmap().IsUnspecified() || slices.Contains(r.Wildcards, text) {
		return "", nil
	}
	return text, nil
}

func canonicalPath(file string) (string, error) {
	switch {
	case len(file) > longestPath:
		return "", fmt.Errorf("the path has %d bytes: want at most %d", len(file), longestPath)
	case strings.ContainsFunc(file, unicode.IsControl): // Envoy refuses a path with NUL
		return "", fmt.Errorf("%q has a control character", file)
	case strings.HasPrefix(file, "@"): // an abstract socket has no file
		return unixPrefix + file, nil
	case !strings.HasPrefix(file, "/"):
		return "", fmt.Errorf("%q is not an absolute path", file)
	}
	file = path.Clean(file)
	for _, folder := range agentFolders {
		if file == folder || strings.HasPrefix(file, folder+"/") {
			return "", fmt.Errorf("%s is a folder of the agent or of the system", folder)
		}
	}
	return unixPrefix + file, nil
}

// bound translates the port of a server to a port of the Pod. The result is the target port of the first Service that
// has the port. TCP ports precede UDP ports. If no Service has the port, the result is the stated port. The result
// defined reports whether one of the Services reaches the resulting port (istio: resolvePorts).
func (r Router) bound(stated uint32) (port uint32, defined bool) {
	udp := uint32(0)
	for _, svc := range r.Services {
		for _, p := range svc.Spec.GetPorts() {
			target := r.target(svc, p)
			defined = defined || target == stated || target == 0 && p.GetNumber() == stated
			if p.GetNumber() != stated || svc.Spec.GetUntranslatedPorts() || target == 0 {
				continue
			}
			if p.GetProtocol() != model.Protocol_PROTOCOL_UDP {
				return target, true
			}
			udp = cmp.Or(udp, target)
		}
	}
	if udp != 0 {
		return udp, true
	}
	return stated, defined
}

func (r Router) target(svc *model.Service, p *model.ServicePort) uint32 {
	switch {
	case r.Target != nil:
		return r.Target(svc, p)
	case p.GetTargetNumber() != 0:
		return p.GetTargetNumber()
	case p.GetTargetName() != "":
		return 0
	}
	return p.GetNumber()
}

// hasUDP reports whether a Service has a UDP port with the number.
func (r Router) hasUDP(stated uint32) bool {
	return slices.ContainsFunc(r.Services, func(svc *model.Service) bool {
		return slices.ContainsFunc(svc.Spec.GetPorts(), func(p *model.ServicePort) bool {
			return p.GetNumber() == stated && p.GetProtocol() == model.Protocol_PROTOCOL_UDP
		})
	})
}

// use states how the agent or Envoy uses a port. The result is empty if servers may bind the port.
func (r Router) use(port uint32) string {
	if own := OwnPort(port); own != "" {
		return own
	}
	if slices.Contains(r.Reserved, port) {
		return "the agent or Envoy itself"
	}
	return ""
}
