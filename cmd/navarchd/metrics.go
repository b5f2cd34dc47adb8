package main

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"navarch.io/navarch/cmd/navarchd/changes"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/obs"
)

// hooks returns hooks that count the xDS server's actions in metrics. They also report acknowledgements to log, and to
// tracer unless tracer is nil. The function left is called when a stream that had joined has ended.
func hooks(commits *changes.Commits, log *changes.Log, tracer *obs.Tracer, left func(serve.Client, serve.Proxy)) serve.Hooks {
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
			log.Acknowledged(t, node, revision)
			if since, ok := commits.Since(revision); ok {
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
		Left:    left,
	}
}

// quarantined sets two metrics for each type: the number of resources that proxies refuse, and the number of versions
// that are withheld from proxies. It also stores the likely causes of the refusals in r.refused.
func (r *replica) quarantined(time.Time) {
	refusals := r.server.Refusals()
	r.refused.Store(culprits(refusals))
	counts := resourcesOf(refusals)
	var withheld [xds.NumTypes]int
	for _, w := range r.server.Withheld() {
		withheld[w.Type]++
	}
	for t := range xds.NumTypes {
		label := strings.ToLower(t.String())
		obs.Quarantined.WithLabelValues(label).Set(float64(counts[t]))
		obs.WithheldVersions.WithLabelValues(label).Set(float64(withheld[t]))
	}
}

// resourcesOf counts the refused resources by type. A resource that several proxies refuse counts once.
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
