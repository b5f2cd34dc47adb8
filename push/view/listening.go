package view

import (
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// longestIdle is the maximum IDLE_TIMEOUT of a node. Longer timeouts, and timeouts of less than 1 ms, are ignored.
const longestIdle = 24 * time.Hour

// listeningOf returns the properties of an Envoy's listeners that follow from its metadata and addresses. The result
// for an application without a proxy (Proxyless) is zero. Malformed metadata is ignored, as in istiod
// (pilot/pkg/networking/core, listener_builder.go).
func listeningOf(n Node) (l xds.Listening) {
	if n.Kind == Proxyless {
		return l
	}
	v4, v6 := false, false
	for _, address := range n.Addresses {
		if strings.Contains(address, ":") {
			v6 = true
		} else {
			v4 = true
		}
	}
	switch {
	case v4 && v6:
		l.Families = xds.BothFamilies
	case v6:
		l.Families = xds.IPv6Only
	}
	l.HTTP10 = n.Metadata["HTTP10"] == "1"
	stated := n.Metadata["IDLE_TIMEOUT"]
	if stated == "" {
		return l
	}
	if d, err := time.ParseDuration(stated); err == nil && d >= time.Millisecond && d <= longestIdle {
		l.Idle = d
	}
	return l
}
