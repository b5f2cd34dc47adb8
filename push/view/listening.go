package view

import (
	"strings"
	"time"

	"navarch.io/navarch/push/xds"
)

// longestIdle bounds IDLE_TIMEOUT of nodes: what is longer is as if it were not there.
const longestIdle = 24 * time.Hour

// listeningOf is how a proxy takes connections; of sidecars alone, since nothing is redirected to others. What of the metadata cannot be
// read is as if it were not there, as with istiod (pilot/pkg/networking/core, listener_builder.go).
func listeningOf(n Node) (l xds.Listening) {
	if n.Kind != Sidecar {
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
