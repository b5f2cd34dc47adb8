package proxy

import (
	"context"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/push/xds"
)

// Change names what a probe waits for: a resource that gets another version, appears, or goes.
type Change struct {
	Type xds.Type
	Name string
	// Marker is text that the body of the new version contains; empty: any version other than the one held when the watch
	// began. With churn on the same resource only a marker tells the versions apart.
	Marker string
	// Gone waits for the removal instead of a version.
	Gone bool
	// Among limits the probe to some proxies; nil: all.
	Among func(Identity) bool
	// New says that nobody holds the resource yet: every proxy (of Among) is expected to get it. Otherwise those that hold
	// the name when the watch begins are.
	New bool
}

// Outcome is what came of a probe. Times are from the moment given to Committed.
type Outcome struct {
	Expected int `json:"expected"` // proxies that should have got it
	Received int `json:"received"`
	Acked    int `json:"acked"`
	// Missing are some of those that did not, by name.
	Missing []string `json:"missing,omitempty"`
	// Receive and Ack are the times until the complete response had come, and until its ACK was written.
	Receive *gauge.Histogram `json:"receive"`
	Ack     *gauge.Histogram `json:"ack"`
}

// Merge adds the Outcome of another process.
func (o *Outcome) Merge(p Outcome) {
	o.Expected += p.Expected
	o.Received += p.Received
	o.Acked += p.Acked
	o.Missing = append(o.Missing, p.Missing...)
	o.Missing = o.Missing[:min(len(o.Missing), maxMissing)]
	if o.Receive == nil {
		o.Receive, o.Ack = &gauge.Histogram{}, &gauge.Histogram{}
	}
	o.Receive.Merge(p.Receive)
	o.Ack.Merge(p.Ack)
}

// maxMissing is how many proxies of Outcome.Missing are named.
const maxMissing = 10

// Probe is one watch. It is made before the change is committed, so that no proxy can be faster than it.
type Probe struct {
	fleet  *Fleet
	change Change

	mu        sync.Mutex
	committed time.Time
	old       map[int]uint32 // expected proxies: the version that they held; 0: none
	received  map[int]time.Time
	acked     map[int]time.Time
	marked    map[uint32]bool // versions whose body was searched for the marker
	done      chan struct{}
	closed    bool
}

// Committed says when the change was committed, or was meant to be: where a schedule drives the probes, the scheduled time
// is the honest one, because a load generator that was held up would otherwise hide the wait (coordinated omission).
func (p *Probe) Committed(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = at
}

// Done is closed when every expected proxy has acknowledged.
func (p *Probe) Done() <-chan struct{} { return p.done }

// Wait waits until every expected proxy has acknowledged, or the context ends, and gives the result; the probe is over
// then. A removal that has not come by then is counted as a violation (LostRemoval).
func (p *Probe) Wait(ctx context.Context) Outcome {
	select {
	case <-p.done:
	case <-ctx.Done():
	}
	p.fleet.unwatch(p)
	return p.outcome()
}

func (p *Probe) outcome() Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := Outcome{Expected: len(p.old), Received: len(p.received), Acked: len(p.acked),
		Receive: &gauge.Histogram{}, Ack: &gauge.Histogram{}}
	for _, at := range p.received {
		o.Receive.Record(at.Sub(p.committed))
	}
	for _, at := range p.acked {
		o.Ack.Record(at.Sub(p.committed))
	}
	for i := range p.old {
		if _, ok := p.acked[i]; ok {
			continue
		}
		name := p.fleet.identity(i).String()
		if len(o.Missing) < maxMissing {
			o.Missing = append(o.Missing, name)
		}
		if p.change.Gone {
			p.fleet.count.violation(LostRemoval, Example{Proxy: name, Type: p.change.Type.String(), Name: p.change.Name,
				Detail: "still there when the probe ended"})
		}
	}
	return o
}

// Watch begins a probe. The caller then commits the change, says so with Committed, and calls Wait.
func (f *Fleet) Watch(c Change) *Probe {
	p := &Probe{fleet: f, change: c, committed: time.Now(), old: map[int]uint32{}, received: map[int]time.Time{},
		acked: map[int]time.Time{}, marked: map[uint32]bool{}, done: make(chan struct{})}
	rec := f.names.name(c.Type, c.Name)
	rec.addProbe(p)
	for _, s := range f.all() {
		if c.Among != nil && !c.Among(s.id) {
			continue
		}
		s.mu.Lock()
		held := s.held[c.Type].get(rec.index)
		s.mu.Unlock()
		if held != 0 || c.New {
			p.expect(s.index, held)
		}
	}
	if len(p.old) == 0 {
		p.closed = true
		close(p.done)
	}
	return p
}

func (f *Fleet) unwatch(p *Probe) { f.names.name(p.change.Type, p.change.Name).dropProbe(p) }

// expect adds a proxy; what it may already have told stands.
func (p *Probe) expect(i int, held uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.old[i] = held
}

// see is told of every resource of the watched name that a proxy is sent, and of its removal (version 0). It says whether
// this is what the probe waits for.
func (p *Probe) see(i int, version uint32, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, already := p.received[i]; already {
		return false
	}
	if p.change.Gone || version == 0 {
		return p.change.Gone && version == 0
	}
	if old, expected := p.old[i]; expected && old == version {
		return false
	}
	if p.change.Marker == "" {
		return true
	}
	is, known := p.marked[version]
	if !known {
		is = contains(body, p.change.Marker)
		p.marked[version] = is
	}
	return is
}

// got and ack are told of the response that see was right about: complete, and acknowledged.
func (p *Probe) got(i int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, expected := p.old[i]; expected {
		p.received[i] = at
	}
}

func (p *Probe) ack(i int, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, expected := p.old[i]; !expected {
		return
	}
	p.acked[i] = at
	p.check()
}

// gone is told of a proxy that was removed: what it has not acknowledged by now it never will.
func (p *Probe) gone(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.acked[i]; !ok {
		delete(p.old, i)
		delete(p.received, i)
		p.check()
	}
}

// check ends the wait once all have acknowledged.
func (p *Probe) check() {
	if len(p.acked) == len(p.old) && !p.closed {
		p.closed = true
		close(p.done)
	}
}
