package proxy

import (
	"context"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/push/xds"
)

// Change is the change that a probe waits for: a resource gets another version, appears, or is removed.
type Change struct {
	Type xds.Type
	Name string
	// Marker is a text in the body of the new version; empty: any version other than the one held at the start. If other
	// edits change the same resource, only a marker identifies the version.
	Marker string
	// Gone waits for the removal instead.
	Gone bool
	// Among limits the probe to some proxies; nil: all.
	Among func(Identity) bool
	// New means that no proxy holds the resource yet: every proxy of Among is expected to receive it. Otherwise the
	// holders of the name at the start are expected to.
	New bool
}

// Outcome is the result of a probe. Times are relative to the moment given to Committed.
type Outcome struct {
	Expected int `json:"expected"` // proxies that should receive the change
	Received int `json:"received"`
	Acked    int `json:"acked"`
	// Missing are the names of some proxies that did not.
	Missing []string `json:"missing,omitempty"`
	// Receive and Ack are the times until the complete response had arrived, and until its ACK was written.
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

// maxMissing limits Outcome.Missing.
const maxMissing = 10

// Probe is one watch. It starts before the change is committed, so that it sees every proxy.
type Probe struct {
	fleet  *Fleet
	change Change

	mu        sync.Mutex
	committed time.Time
	old       map[int]uint32 // expected proxies with their version at the start; 0: none held
	received  map[int]time.Time
	acked     map[int]time.Time
	marked    map[uint32]bool // versions whose body was searched for the marker
	done      chan struct{}
	closed    bool
}

// Committed sets the time of the commit. With a schedule, pass the scheduled time: a load generator that is delayed
// would otherwise hide the wait (coordinated omission).
func (p *Probe) Committed(at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.committed = at
}

// Done returns a channel that is closed when every expected proxy has acknowledged.
func (p *Probe) Done() <-chan struct{} { return p.done }

// Wait waits until every expected proxy has acknowledged or ctx ends, ends the probe and returns the result. A removal
// that has not arrived by then is a violation (LostRemoval).
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

// Watch begins a probe. The caller then commits the change, calls Committed, and calls Wait.
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

// expect adds an expected proxy; earlier reports about it stay valid.
func (p *Probe) expect(i int, held uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.old[i] = held
}

// see processes a version of the watched name that a proxy receives, or its removal (version 0). It reports whether the
// probe waits for this version.
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

// got and ack record that the response for which see returned true is complete, and acknowledged.
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

// gone records that a proxy was removed, so it will not acknowledge any more.
func (p *Probe) gone(i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.acked[i]; !ok {
		delete(p.old, i)
		delete(p.received, i)
		p.check()
	}
}

// check closes done once all proxies have acknowledged.
func (p *Probe) check() {
	if len(p.acked) == len(p.old) && !p.closed {
		p.closed = true
		close(p.done)
	}
}
