package main

import (
	"fmt"
	"strings"
	"time"
)

// warmingLimit limits the time for which listeners and clusters keep a gateway unready, because they are warming (not
// yet in use by Envoy) or refused. A Secret, name or address that one tenant lacks must not block the traffic of the
// other tenants. A new gateway must be ready within ten seconds. The limit leaves two of these seconds for the starts
// of the agent and of Envoy.
const warmingLimit = 8 * time.Second

const (
	listenersWarming = "listener_manager.total_listeners_warming"
	listenersActive  = "listener_manager.total_listeners_active"
	// listenersAccepted and listenersRefused count the accepted and refused updates of listeners.
	listenersAccepted = "listener_manager.lds.update_success"
	listenersRefused  = "listener_manager.lds.update_rejected"
	clustersWarming   = "cluster_manager.warming_clusters"
	// gatewayStats matches the statistics of configStats, and the gauges of active listeners, warming listeners and
	// warming clusters.
	gatewayStats = `^(listener_manager\.total_listeners_(warming|active)|cluster_manager\.warming_clusters|` +
		`(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected))$`
)

// configStats returns the pattern of the statistics that decide readiness, for a gateway or a sidecar.
func (a *agent) configStats() string {
	if a.cfg.bye.gateway {
		return gatewayStats
	}
	return configStats
}

// warming limits the wait for refused listeners, and for listeners and clusters that Envoy received after its first
// ones. Envoy reports LIVE once its first listeners have their route configurations and a response for each Secret. A
// listener of a later response accepts no connection until it has its own route configurations and Secrets. The zero
// value is ready for use, by one goroutine at a time.
type warming struct {
	start int64     // number of Envoy's start (envoyState.Starts)
	since time.Time // time of the first call of wait or over for this start
}

// wait returns a text with the numbers of listeners and clusters that are still warming (not yet in use by Envoy). The
// text is empty if nothing is warming, or if warmingLimit has passed since the first call for this start of Envoy.
func (w *warming) wait(start int64, stats map[string]int, now time.Time) string {
	over := w.over(start, now)
	var waits []string
	for _, of := range []struct{ stat, name string }{{listenersWarming, "listeners"}, {clustersWarming, "clusters"}} {
		if n := stats[of.stat]; n > 0 {
			waits = append(waits, fmt.Sprintf("%d %s", n, of.name))
		}
	}
	if len(waits) == 0 || over {
		return ""
	}
	return "Envoy waits for routes, Secrets or endpoints of " + strings.Join(waits, " and ")
}

// over reports whether warmingLimit has passed since the first call of over or wait for this start of Envoy.
func (w *warming) over(start int64, now time.Time) bool {
	if w.start != start {
		w.start, w.since = start, now
	}
	return now.Sub(w.since) >= warmingLimit
}

// withoutRefused makes a gateway ready although Envoy refused listeners. One tenant's listener with an address that
// cannot be bound must not block the traffic of other tenants. It clears c.refused and counts refused updates of
// listeners as accepted. It does nothing if the gateway has no active listener.
func (c *condition) withoutRefused() {
	if c.updates[listenersActive] == 0 {
		return
	}
	c.refused = nil
	c.updates[listenersAccepted] += c.updates[listenersRefused]
}
