package analysis

import (
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// served contains the hosts of a Gateway's servers for one namespace. The method has finds a host without a comparison
// with all of these hosts.
type served struct {
	names   map[string]bool
	endings model.Endings // of the names; nil before the first wildcard is looked up
}

// servedBy returns the hosts of servers to which VirtualServices of a namespace may bind
// (https://istio.io/latest/docs/reference/config/networking/gateway/#Server, hosts). The argument own is the Gateway's
// namespace.
func servedBy(servers []*networkingv1.Server, own, namespace string) *served {
	s := &served{names: map[string]bool{}}
	for _, server := range servers {
		for _, text := range server.GetHosts() {
			if to, name := model.ServerHost(text, own); to == "" || to == namespace {
				s.names[name] = true
			}
		}
	}
	return s
}

// has reports whether a server has a host of a VirtualService, a wildcard that covers the host, or a host that the
// VirtualService's wildcard covers.
func (s *served) has(host string) bool {
	for of := range model.Covering(host) {
		if s.names[of] {
			return true
		}
	}
	if !strings.HasPrefix(host, "*") {
		return false
	}
	if s.endings == nil {
		s.endings = model.EndingsOf(s.names)
	}
	for range s.endings.Covered(host) {
		return true
	}
	return false
}
