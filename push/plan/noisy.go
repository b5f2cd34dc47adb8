package plan

import (
	"slices"
	"time"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// The endpoints of a namespace that change more often than noisyRate a second, noisyBurst aside, wait like configuration: what
// changes without end for everybody is most of what is sent, and endpoints of other namespaces would wait behind it.
const (
	noisyRate  = 50
	noisyBurst = 50
)

// pathOf says on which path an edit is planned.
func (l *Loop) pathOf(e mirror.Edit, now time.Time) Path {
	key := e.Key()
	switch {
	case !key.Kind.FollowsWorkloads() || l.cfg.DebounceEndpoints:
		return Slow
	case key.Kind == model.KindWorkload: // its endpoints are counted
		return Fast
	case l.noisy.edit(key.Namespace, now), large(e, l.newest):
		l.planner.fastHosts.drop(e)
		return Slow
	}
	return Fast
}

// noisy counts edits of endpoints by namespace. It has no clock: the caller says what time it is.
type noisy struct{ spaces map[string]*bucket }

// bucket is how many edits a namespace may still make; below 0 it is a noisy neighbour, until it has been quiet for a while. It is not a
// rate.Limiter of golang.org/x/time: that forgets what it refuses, so a namespace that never stops would still have noisyRate edits a second on
// the fast path; here what is refused counts too, up to noisyBurst.
type bucket struct {
	left float64
	at   time.Time
}

// edit takes one edit in; true: the namespace is a noisy neighbour.
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

func (b *bucket) fill(now time.Time) {
	b.left = min(noisyBurst, b.left+now.Sub(b.at).Seconds()*noisyRate)
	b.at = now
}

// forget drops the namespaces that may do all that a new one may.
func (l *noisy) forget(now time.Time) {
	for namespace, b := range l.spaces {
		if b.fill(now); b.left == noisyBurst {
			delete(l.spaces, namespace)
		}
	}
}

// maxFastHosts is how many hosts are remembered as planned by the fast path; of one that is forgotten, endpoints wait for configuration where some
// waits.
const maxFastHosts = 256

// fastHosts is the hosts whose endpoints the fast path planned last.
type fastHosts struct {
	hosts  []string // oldest first
	sorted []string // the same; replaced, never changed
}

// add takes hosts as the newest.
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

// drop forgets the hosts of an edit that waits for configuration.
func (f *fastHosts) drop(e mirror.Edit) {
	of := func(h string) bool {
		return slices.ContainsFunc(records(e), func(r model.Record) bool { return slices.Contains(input.HostsOf(r), h) })
	}
	if slices.ContainsFunc(f.hosts, of) {
		f.hosts = slices.DeleteFunc(f.hosts, of)
		f.sorted = slices.Sorted(slices.Values(f.hosts))
	}
}
