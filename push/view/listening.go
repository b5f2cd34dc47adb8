package view

import (
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// longestIdle is the maximum IDLE_TIMEOUT of a node. A longer one is ignored.
const longestIdle = 24 * time.Hour

// listeningOf derives from the metadata and addresses of an Envoy how it accepts connections. Applications without a
// proxy get the zero value. Malformed metadata is ignored, as in istiod (pilot/pkg/networking/core,
// listener_builder.go).
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
