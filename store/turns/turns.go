// Package turns does work for many hosts, a bounded amount at a time and the hosts in turn, so that a host which asks for much does not keep
// others waiting (leaf).
//
// Owns: whose turn is next.  Reads: nothing.  Never: believes what a client says.
package turns

import (
	"container/list"
	"net/netip"
	"runtime"
	"sync"
)

// Line gives turns: hosts have theirs one after the other, and what is of one host in the order in which it came. Safe for concurrent use.
type Line struct {
	perHost int

	mu      sync.Mutex // a leaf
	free    int
	waiting int
	running map[netip.Prefix]int           // turns that each host has
	hosts   map[netip.Prefix]*list.Element // in order
	order   list.List                      // of *queue, that whose turn is next first; none is empty
}

// queue is what waits of one host.
type queue struct {
	host netip.Prefix
	wait list.List // of chan struct{}, closed when its turn has come
}

// New lets atOnce have a turn at once, of these perHost of one host; 0: one for each processor, and as many as there are.
func New(atOnce, perHost int) *Line {
	if atOnce == 0 {
		atOnce = runtime.GOMAXPROCS(0)
	}
	if perHost == 0 {
		perHost = atOnce
	}
	return &Line{perHost: perHost, free: atOnce, running: map[netip.Prefix]int{}, hosts: map[netip.Prefix]*list.Element{}}
}

// Enter waits for a turn of a host (remote.Host), which Leave ends, until gone is closed: false. first: it goes before what waits of the same host.
func (l *Line) Enter(host netip.Prefix, first bool, gone <-chan struct{}) bool {
	l.mu.Lock()
	if l.free > 0 && l.running[host] < l.perHost {
		l.begin(host)
		l.mu.Unlock()
		return true
	}
	at := l.hosts[host]
	if at == nil {
		at = l.order.PushBack(&queue{host: host})
		l.hosts[host] = at
	}
	turn, own := make(chan struct{}), at.Value.(*queue)
	var place *list.Element
	if first {
		place = own.wait.PushFront(turn)
	} else {
		place = own.wait.PushBack(turn)
	}
	l.waiting++
	l.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-gone:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-turn: // it came first
		l.end(host)
	default:
		own.wait.Remove(place)
		l.waiting--
		l.tidy(own)
	}
	return false
}

// Waiting is how many wait for a turn.
func (l *Line) Waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// Leave ends a turn of a host.
func (l *Line) Leave(host netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end(host)
}

// begin takes a turn that is free. Called with the lock held.
func (l *Line) begin(host netip.Prefix) {
	l.free--
	l.running[host]++
}

// end gives a turn back, and to whoever is next. Called with the lock held.
func (l *Line) end(host netip.Prefix) {
	l.free++
	if l.running[host]--; l.running[host] == 0 {
		delete(l.running, host)
	}
	for at := l.order.Front(); at != nil; at = at.Next() {
		own := at.Value.(*queue)
		if l.running[own.host] >= l.perHost {
			continue
		}
		l.begin(own.host)
		l.waiting--
		close(own.wait.Remove(own.wait.Front()).(chan struct{}))
		l.order.MoveToBack(at)
		l.tidy(own)
		return
	}
}

// tidy forgets a host of which nobody waits. Called with the lock held.
func (l *Line) tidy(own *queue) {
	if own.wait.Len() == 0 {
		l.order.Remove(l.hosts[own.host])
		delete(l.hosts, own.host)
	}
}
