package main

import (
	"fmt"
	"strings"
	"time"
)

// warmingLimit is the longest time for which warming listeners and clusters keep a gateway unready. A tenant's
// Secret or name that never comes must not keep the others' traffic away.
const warmingLimit = 10 * time.Second

const (
	listenersWarming = "listener_manager.total_listeners_warming"
	listenersActive  = "listener_manager.total_listeners_active"
	// of the updates of listeners
	listenersAccepted = "listener_manager.lds.update_success"
	listenersRefused  = "listener_manager.lds.update_rejected"
	clustersWarming   = "cluster_manager.warming_clusters"
	// gatewayStats are configStats and these three.
	gatewayStats = `^(listener_manager\.total_listeners_(warming|active)|cluster_manager\.warming_clusters|` +
		`(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected))$`
)

// configStats returns the pattern of the statistics that readiness needs.
func (a *agent) configStats() string {
	if a.cfg.bye.gateway {
		return gatewayStats
	}
	return configStats
}

// warming waits for the listeners and clusters that Envoy got after its first ones. Envoy is LIVE once its first
// listeners have their route configurations and an answer for each Secret. A listener of a later response warms until
// then and accepts nothing meanwhile. The zero warming is ready for use, by one goroutine at a time.
type warming struct {
	start int64     // of Envoy (envoyState.Starts)
	since time.Time // the first call for this start
}

// wait describes what still warms at that start of Envoy; empty: nothing, or the limit is over.
func (w *warming) wait(start int64, stats map[string]int, now time.Time) string {
	if w.start != start {
		w.start, w.since = start, now
	}
	var waits []string
	for _, of := range []struct{ stat, name string }{{listenersWarming, "listeners"}, {clustersWarming, "clusters"}} {
		if n := stats[of.stat]; n > 0 {
			waits = append(waits, fmt.Sprintf("%d %s", n, of.name))
		}
	}
	if len(waits) == 0 || now.Sub(w.since) >= warmingLimit {
		return ""
	}
	return "Envoy waits for routes, Secrets or endpoints of " + strings.Join(waits, " and ")
}

// over reports whether the limit is over since the first call for this start of Envoy.
func (w *warming) over(start int64, now time.Time) bool {
	if w.start != start {
		w.start, w.since = start, now
	}
	return now.Sub(w.since) >= warmingLimit
}

// withoutRefused makes a gateway that has a listener go on without those that Envoy refused: a tenant's server with an
// address that nobody can bind must not keep the others' traffic away.
func (c *condition) withoutRefused() {
	if c.updates[listenersActive] == 0 {
		return
	}
	c.refused = nil
	c.updates[listenersAccepted] += c.updates[listenersRefused]
}
