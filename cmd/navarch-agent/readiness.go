package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/shard/relay"
)

// configStats are what Envoy says of the configuration that the control plane sent.
const configStats = `^(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected)$`

// listenerURL is the type URL of listeners.
const listenerURL = "type.googleapis.com/envoy.config.listener.v3.Listener"

// condition is what readiness is decided from.
type condition struct {
	draining       bool
	mustHave, have bool  // a certificate
	noCertificate  error // why the newest request for one failed; nil: none has
	noNames        bool  // DNS of the Pod is captured, and there is no name table yet
	envoy          error // nil: it says LIVE
	// configured: this Envoy has taken clusters and listeners, by its own counters; asked for until it once has.
	configured bool
	updates    map[string]int
	refused    []relay.Refused // configuration that Envoy has refused, and neither accepted nor lost since
	xds        relay.Stats
}

// missing says what keeps traffic away; empty: nothing. The control plane is asked for only until the first configuration
// is there: a proxy serves what it has when the control plane goes.
func (c condition) missing() []string {
	if c.draining {
		return []string{"draining"}
	}
	var out []string
	if c.mustHave && !c.have {
		text := "no certificate of the mesh yet"
		if c.noCertificate != nil {
			text += ": " + c.noCertificate.Error()
		}
		out = append(out, text)
	}
	if c.noNames {
		out = append(out, "no names for the DNS of the Pod from the control plane yet")
	}
	if c.envoy != nil {
		out = append(out, c.envoy.Error())
	}
	if c.configured {
		return out
	}
	if i := slices.IndexFunc(c.refused, isListener); i >= 0 {
		r := c.refused[i]
		text := "Envoy refused listeners " + strings.Join(r.Names, ", ")
		if more := r.Total - len(r.Names); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		return append(out, text+": "+r.Error)
	}
	clusters, listeners := c.updates["cluster_manager.cds.update_success"], c.updates["listener_manager.lds.update_success"]
	refused := c.updates["cluster_manager.cds.update_rejected"] + c.updates["listener_manager.lds.update_rejected"]
	switch {
	case clusters > 0 && listeners > 0:
	case refused > 0:
		out = append(out, "Envoy refused the first configuration, see its log and the control plane's")
	case clusters > 0 || listeners > 0:
		out = append(out, "Envoy has only a part of its first configuration")
	case c.xds.Connects == 0 && c.xds.LastError != "":
		out = append(out, fmt.Sprintf("the control plane at %s is not reached: %s", c.xds.Address, c.xds.LastError))
	case c.xds.Connects == 0:
		out = append(out, fmt.Sprintf("not connected to the control plane at %s yet", c.xds.Address))
	case c.xds.LastError != "": // it was let in and turned away, for one because it has no credential yet
		out = append(out, fmt.Sprintf("the control plane at %s does not serve it: %s", c.xds.Address, c.xds.LastError))
	default:
		out = append(out, "Envoy has no configuration yet")
	}
	return out
}

// isListener says whether it is listeners that were refused. Envoy goes LIVE without those that it could not bind, for one, and
// traffic to them would find nobody.
func isListener(r relay.Refused) bool { return r.Type == listenerURL }

// lookEvery is the least time between two looks at what readiness is decided from: anybody may ask, as often as they like, and Envoy answers the agent in its main thread, which
// takes in configuration.
const lookEvery = 50 * time.Millisecond

// lookout is what was seen last, for all who ask in the same moment. The zero lookout is ready for use, by any goroutine.
type lookout struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// ask is what look says, or said a moment ago.
func (l *lookout) ask(look func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) >= lookEvery {
		l.err = look()
		l.at = time.Now()
	}
	return l.err
}

// ready is nil when the proxy can take traffic, else what is missing.
func (a *agent) ready(ctx context.Context) error {
	if a.draining.Load() {
		return asError(condition{draining: true}.missing())
	}
	return a.lookout.ask(func() error {
		var c condition
		a.look(context.WithoutCancel(ctx), &c) // others may wait for it
		return asError(c.missing())
	})
}

// asError is an error that says what is missing; nil: nothing is.
func asError(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	return errors.New(strings.Join(missing, "; "))
}

// look fills c in from those who know.
func (a *agent) look(ctx context.Context, c *condition) {
	if a.identity != nil {
		c.mustHave, c.have = true, a.identity.Identity() != nil
		_, c.noCertificate = a.identity.LastFailure()
	}
	c.noNames = a.dns != nil && !a.dns.Ready()
	start := int64(a.envoy.State().Starts)
	c.envoy = a.admin.ready(ctx)
	if c.configured = start > 0 && a.configured.Load() == start; c.configured {
		return
	}
	// The relay is asked last: what Envoy has refused before it counted a success is known by then.
	c.updates, _ = a.admin.stats(ctx, configStats)
	c.xds = a.relay.Stats()
	c.refused = c.xds.Rejected
	if c.envoy == nil && start > 0 && !slices.ContainsFunc(c.refused, isListener) &&
		c.updates["cluster_manager.cds.update_success"] > 0 && c.updates["listener_manager.lds.update_success"] > 0 {
		a.configured.Store(start)
	}
}
