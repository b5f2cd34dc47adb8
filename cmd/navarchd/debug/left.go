package debug

import (
	"slices"
	"sync"
	"time"

	"navarch.io/navarch/push/join"
	"navarch.io/navarch/push/serve"
)

// Bounds of the streams that are remembered after their end. LeftFor is the time for which they are remembered.
// mostLeft is the maximum number of streams, and mostOfSpace is the maximum number for one namespace. When a new stream
// exceeds mostLeft, the oldest stream is forgotten. When it exceeds mostOfSpace, the oldest stream of its namespace is
// forgotten.
const (
	LeftFor     = 10 * time.Minute
	mostLeft    = 2048
	mostOfSpace = 256
)

// Left is a proxy whose stream ended at the time At. Proxy is name.namespace, and Node is the node's id. Zone is
// region/zone/sub-zone, if the node states them. Cluster is "" for the config cluster.
type Left struct {
	Proxy, Node, Namespace, Version, Zone, Cluster string
	At                                             time.Time
}

// departures are the streams that ended within LeftFor, each with its proxy.
type departures struct {
	mu     sync.Mutex // no other lock is taken under it
	all    []Left     // oldest first
	spaces map[string]int
}

// Leaves records that the stream of a proxy has ended. It ignores a stream without a *join.Proxy. Safe for concurrent
// use.
func (p *Proxies) Leaves(c serve.Client, v serve.Proxy) {
	proxy, ok := v.(*join.Proxy)
	if !ok {
		return
	}
	n := proxy.Node
	p.left.add(Left{Proxy: nameOf(proxy), Node: c.ID, Namespace: n.Namespace, Version: n.Version,
		Zone: n.Locality, Cluster: n.Cluster, At: time.Now()})
}

// add records an ended stream, within the bounds.
func (d *departures) add(one Left) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.spaces == nil {
		d.spaces = map[string]int{}
	}
	d.forget(one.At.Add(-LeftFor))
	if d.spaces[one.Namespace] == mostOfSpace {
		d.drop(slices.IndexFunc(d.all, func(l Left) bool { return l.Namespace == one.Namespace }))
	}
	if len(d.all) == mostLeft {
		d.drop(0)
	}
	d.all = append(d.all, one)
	d.spaces[one.Namespace]++
}

// forget drops the streams that ended before a time. The caller holds the lock.
func (d *departures) forget(before time.Time) {
	for len(d.all) > 0 && d.all[0].At.Before(before) {
		d.drop(0)
	}
}

// drop removes the stream with index i. The caller holds the lock.
func (d *departures) drop(i int) {
	namespace := d.all[i].Namespace
	if d.spaces[namespace]--; d.spaces[namespace] == 0 {
		delete(d.spaces, namespace)
	}
	d.all = slices.Delete(d.all, i, i+1)
}

// Departed returns the streams of visible namespaces that ended in the last ten minutes (LeftFor), oldest first. A
// proxy has one element for each of its ended streams, and may be connected again. The result has the newest 2,048
// streams at most, and at most 256 of one namespace. The caller owns the result. Safe for concurrent use.
func (p *Proxies) Departed(sees func(namespace string) bool) []Left {
	p.left.mu.Lock()
	defer p.left.mu.Unlock()
	p.left.forget(time.Now().Add(-LeftFor))
	return slices.DeleteFunc(slices.Clone(p.left.all), func(l Left) bool { return !sees(l.Namespace) })
}
