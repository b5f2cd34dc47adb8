package main

import (
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

// hooks count what the xDS server does under the names that dashboards know.
func hooks(commits *commits, changes *changeLog, tracer *obs.Tracer) serve.Hooks {
	rejected := map[xds.Type]*prometheus.CounterVec{
		xds.Cluster: obs.Rejects.CDS, xds.Endpoint: obs.Rejects.EDS, xds.Listener: obs.Rejects.LDS, xds.Route: obs.Rejects.RDS,
	}
	label := func(t xds.Type) string { return strings.ToLower(t.String()) }
	return serve.Hooks{
		Streams: func(change int) {
			obs.Proxies.Add(float64(change))
			obs.Connections.WithLabelValues("").Add(float64(change))
		},
		Sent: func(t xds.Type, _, _, bytes int) {
			obs.Pushes.WithLabelValues(label(t)).Inc()
			obs.ConfigSize.WithLabelValues(label(t)).Observe(float64(bytes))
			obs.SharedBytes.Add(float64(bytes))
		},
		Pushed: func(t xds.Type, took time.Duration) { obs.PushTime.WithLabelValues(label(t)).Observe(took.Seconds()) },
		Queued: func(wait time.Duration) { obs.QueueTime.Observe(wait.Seconds()) },
		Wrote:  func(took time.Duration) { obs.SendTime.Observe(took.Seconds()) },
		Acked: func(t xds.Type, node string, revision int64, took time.Duration) {
			obs.Acks.Observe(took.Seconds())
			changes.acknowledged(t, node, revision)
			if since, ok := commits.since(revision); ok {
				obs.Propagation.Observe(since.Seconds())
				if tracer != nil {
					now := time.Now()
					tracer.Acknowledged(revision, label(t), node, now.Add(-took), now)
				}
			}
		},
		Converged: func(took time.Duration) { obs.Convergence.Observe(took.Seconds()) },
		Refused: func(r serve.Refusal) {
			obs.TotalRejects.WithLabelValues(label(r.Type)).Inc()
			if c := rejected[r.Type]; c != nil {
				c.WithLabelValues("nack").Inc()
			}
		},
		Expired: func(t xds.Type) { obs.ExpiredNonce.WithLabelValues(label(t)).Inc() },
		Timeout: func(write bool) {
			if write {
				obs.WriteTimeout.Inc()
				obs.TooSlow.WithLabelValues("written").Inc()
			} else {
				obs.TooSlow.WithLabelValues("acknowledged").Inc()
			}
		},
		Bounded: func(what string, n int) { obs.Bounded.WithLabelValues(what).Add(float64(n)) },
	}
}

// gauges keeps the metrics that are read off the loops, until the context ends.
func (p *process) gauges(ctx context.Context) error {
	started := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	built, fragments := [xds.NumTypes]int64{}, int64(0)
	for {
		obs.Uptime.Set(time.Since(started).Seconds())
		obs.Problems.Set(float64(len(p.pages.Reported(nil))))
		if p.pool != nil {
			resources, hosts := p.pool.Size()
			obs.Pooled.WithLabelValues("resources").Set(float64(resources))
			obs.Pooled.WithLabelValues("virtual_hosts").Set(float64(hosts))
			for t := range xds.NumTypes {
				now := p.pool.Builds(t)
				obs.Builds.WithLabelValues(strings.ToLower(t.String())).Add(float64(now - built[t]))
				built[t] = now
			}
			now := p.pool.Fragments()
			obs.FragmentBuilds.Add(float64(now - fragments))
			fragments = now
		}
		if p.server != nil {
			p.quarantined()
			p.fleet.Gauges(time.Now())
		}
		p.callers.Gauges(time.Now())
		for _, l := range p.limiters {
			obs.Unauthenticated.WithLabelValues(l.label).Set(float64(l.Open()))
			obs.UnauthenticatedWaiting.WithLabelValues(l.label).Set(float64(l.Waiting()))
		}
		if p.ca != nil {
			p.ca.gauges(time.Now())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// quarantined shows what is held back because proxies refused it, from each and from whole views, by type.
func (p *process) quarantined() {
	counts := resourcesOf(p.server.Refusals())
	var withheld [xds.NumTypes]int
	for _, w := range p.server.Withheld() {
		withheld[w.Type]++
	}
	for t := range xds.NumTypes {
		label := strings.ToLower(t.String())
		obs.Quarantined.WithLabelValues(label).Set(float64(counts[t]))
		obs.WithheldVersions.WithLabelValues(label).Set(float64(withheld[t]))
	}
}

// resourcesOf counts the resources of refusals: one that many proxies refused is one.
func resourcesOf(refusals []serve.Refusal) (counts [xds.NumTypes]int) {
	type resource struct {
		t    xds.Type
		name string
	}
	seen := map[resource]bool{}
	for _, r := range refusals {
		if key := (resource{r.Type, r.Name}); !seen[key] {
			seen[key] = true
			counts[r.Type]++
		}
	}
	return counts
}
