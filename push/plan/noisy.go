package plan

import (
	"slices"
	"time"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A namespace is noisy if its endpoints change more often than noisyRate times a second, after a burst of noisyBurst
// changes. The edits of its endpoints wait like edits of configuration. On the fast path, endless changes would cause
// most of the traffic to proxies, and would delay endpoints of other namespaces.
const (
	noisyRate  = 50
	noisyBurst = 50
)

// pathOf returns the path on which an edit is planned: Fast or Slow. It counts edits of endpoints by namespace.
func (l *Loop) pathOf(e mirror.Edit, now time.Time) Path {
	key := e.Key()
	switch {
	case !key.Kind.FollowsWorkloads() || l.cfg.DebounceEndpoints:
		return Slow
	case key.Kind == model.KindWorkload: // only edits of Endpoints are counted
		return Fast
	case l.noisy.edit(key.Namespace, now), large(e, l.newest):
		l.planner.fastHosts.drop(e)
		return Slow
	}
	return Fast
}

// noisy counts edits of endpoints by namespace. It has no clock, so callers pass the time.
type noisy struct{ spaces map[string]*bucket }

// bucket counts the edits that a namespace may still make. While the count is below 0, the namespace is noisy. Unlike
// rate.Limiter of golang.org/x/time, a bucket also counts refused edits, up to noisyBurst. So a namespace with endless
// edits stays noisy until it has been quiet for a while.
type bucket struct {
	left float64
	at   time.Time
}

// edit counts one edit, and reports whether the namespace is noisy.
func (l *noisy) edit(namespace string, now time.Time) bool {
	if len(l.spaces) > 1000 {
		l.forget(now)
	}
	b := l.spaces[namespace]
	if b == nil {
		if l.spaces == nil {
			l.spaces = map[string]*bucket{}
		}
		b = &bucket{left: noisyBurst, at: now}
		l.spaces[namespace] = b
	}
	b.fill(now)
	b.left = max(b.left-1, -noisyBurst)
	return b.left < 0
}

// fill adds the edits that are allowed for the time since the last call.
func (b *bucket) fill(now time.Time) {
	b.left = min(noisyBurst, b.left+now.Sub(b.at).Seconds()*noisyRate)
	b.at = now
}

// forget drops the namespaces whose bucket is full.
func (l *noisy) forget(now time.Time) {
	for namespace, b := range l.spaces {
		if b.fill(now); b.left == noisyBurst {
			delete(l.spaces, namespace)
		}
	}
}

// maxFastHosts is the maximum number of hosts in fastHosts. Endpoints of a host that is not in the list wait until
// pending configuration has been sent.
const maxFastHosts = 256

// fastHosts lists the hosts whose endpoints the fast path has planned most recently.
type fastHosts struct {
	hosts  []string // oldest first
	sorted []string // the same hosts, sorted; replaced, never changed
}

// add appends hosts as the newest.
func (f *fastHosts) add(hosts map[string]input.Types) {
	if len(hosts) == 0 {
		return
	}
	f.hosts = slices.DeleteFunc(f.hosts, func(h string) bool { _, is := hosts[h]; return is })
	for h := range hosts {
		f.hosts = append(f.hosts, h)
	}
	f.hosts = slices.Delete(f.hosts, 0, max(0, len(f.hosts)-maxFastHosts))
	f.sorted = slices.Sorted(slices.Values(f.hosts))
}

// drop removes the hosts of an edit that is planned on the configuration path.
func (f *fastHosts) drop(e mirror.Edit) {
	of := func(h string) bool {
		return slices.ContainsFunc(records(e), func(r model.Record) bool { return slices.Contains(model.HostsOf(r), h) })
	}
	if slices.ContainsFunc(f.hosts, of) {
		f.hosts = slices.DeleteFunc(f.hosts, of)
		f.sorted = slices.Sorted(slices.Values(f.hosts))
	}
}
