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

// configStats matches Envoy's counters of accepted and rejected updates of clusters and listeners.
const configStats = `^(cluster_manager\.cds|listener_manager\.lds)\.update_(success|rejected)$`

// listenerURL is the type URL of listeners.
const listenerURL = "type.googleapis.com/envoy.config.listener.v3.Listener"

// condition contains the facts that decide readiness.
type condition struct {
	draining       bool
	mustHave, have bool  // whether a certificate is required, and whether it is present
	noCertificate  error // the error of the newest certificate request; nil if it succeeded
	noNames        bool  // DNS of the Pod is captured, and no name table has arrived
	envoy          error // nil: Envoy reports LIVE
	// configured is set if the counters of this Envoy process show that it has accepted clusters and listeners. updates
	// has the counters by name. They are read only while configured is false.
	configured bool
	updates    map[string]int
	warming    string          // listeners and clusters of a gateway that are still warming; may be empty
	refused    []relay.Refused // configuration that Envoy rejected and that was neither accepted nor removed since
	xds        relay.Stats
}

// missing returns the reasons why the proxy cannot serve traffic. If the result is empty, the proxy is ready. The
// connection to the control plane matters only until Envoy has its first configuration. Later the proxy serves its
// configuration even while the control plane is away.
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
		out = append(out, "the control plane has not sent the names for the Pod's DNS yet")
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
	case clusters > 0 && listeners > 0 && c.warming != "":
		out = append(out, c.warming)
	case clusters > 0 && listeners > 0:
	case refused > 0:
		out = append(out, "Envoy refused the first configuration, see its log and the control plane's")
	case clusters > 0 || listeners > 0:
		out = append(out, "Envoy has only a part of its first configuration")
	case c.xds.Connects == 0 && c.xds.LastError != "":
		out = append(out, fmt.Sprintf("the control plane at %s is not reached: %s", c.xds.Address, c.xds.LastError))
	case c.xds.Connects == 0:
		out = append(out, fmt.Sprintf("not connected to the control plane at %s yet", c.xds.Address))
	// the stream was accepted and then closed, for example because the agent has no credential yet
	case c.xds.LastError != "":
		out = append(out, fmt.Sprintf("the control plane at %s closes the stream: %s", c.xds.Address, c.xds.LastError))
	default:
		out = append(out, "Envoy has no configuration yet")
	}
	return out
}

// isListener reports whether the rejected resources are listeners. Envoy reports LIVE even if it could not bind a
// listener, but refuses connections to that listener's port.
func isListener(r relay.Refused) bool { return r.Type == listenerURL }

// refreshEvery is the shortest time between two reads of the facts in condition. The rate of readiness requests is not
// limited, and each read uses Envoy's main thread, which also applies configuration.
const refreshEvery = 50 * time.Millisecond

// readinessCache stores the newest result about readiness for refreshEvery. The zero value is ready for use. Safe for
// concurrent use.
type readinessCache struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

// get returns the result of refresh, or the stored result if it is younger than refreshEvery.
func (l *readinessCache) get(refresh func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) >= refreshEvery {
		l.err = refresh()
		l.at = time.Now()
	}
	return l.err
}

// ready returns nil when the proxy can serve traffic, else an error that lists what is missing.
func (a *agent) ready(ctx context.Context) error {
	if a.draining.Load() {
		return asError(condition{draining: true}.missing())
	}
	return a.readiness.get(func() error {
		var c condition
		a.readFacts(context.WithoutCancel(ctx), &c) // the result is shared with other requests
		return asError(c.missing())
	})
}

// asError returns the reasons as one error, or nil if there are no reasons.
func asError(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	return errors.New(strings.Join(missing, "; "))
}

// readFacts fills c from the certificate agent, the DNS server, Envoy's admin port and the relay.
func (a *agent) readFacts(ctx context.Context, c *condition) {
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
	// The relay is read after Envoy's counters. So each rejection that came before a counted success is in the relay's
	// statistics.
	c.updates, _ = a.admin.stats(ctx, a.configStats())
	c.xds = a.relay.Stats()
	c.refused = c.xds.Rejected
	if a.cfg.bye.gateway && start > 0 && slices.ContainsFunc(c.refused, isListener) && a.warming.over(start, time.Now()) {
		c.withoutRefused()
	}
	if c.envoy == nil && start > 0 && !slices.ContainsFunc(c.refused, isListener) &&
		c.updates["cluster_manager.cds.update_success"] > 0 && c.updates["listener_manager.lds.update_success"] > 0 {
		if c.warming = a.warming.wait(start, c.updates, time.Now()); c.warming == "" {
			a.configured.Store(start)
		}
	}
}
