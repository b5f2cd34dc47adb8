package main

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"navarch.io/navarch/cmd/navarchd/memory"
	"navarch.io/navarch/store/loop"
)

// part has the tasks, services and functions that a role, or another component, adds to the process. Unused fields are
// empty.
type part struct {
	tasks  []loop.Task
	plain  []func(grpc.ServiceRegistrar) // services of the plain-text address
	secure []func(grpc.ServiceRegistrar) // services of the address over TLS
	ready  []func() error                // readiness checks: the process accepts proxies if all of them return nil
	notes  []func() []string             // remarks for operators about a ready process
	gauges []func(time.Time)             // set metrics; one goroutine calls them with the present time
	leave  []func(context.Context)       // hand work over to other processes, before the tasks end
	counts []func() memory.Counts        // work so far, for cmd/navarchd/memory
}

// add appends another part to p.
func (p *part) add(more part) {
	p.tasks = append(p.tasks, more.tasks...)
	p.plain, p.secure = append(p.plain, more.plain...), append(p.secure, more.secure...)
	p.ready, p.notes = append(p.ready, more.ready...), append(p.notes, more.notes...)
	p.gauges, p.leave = append(p.gauges, more.gauges...), append(p.leave, more.leave...)
	p.counts = append(p.counts, more.counts...)
}

// missing returns the error of the first readiness check that fails. It returns nil if the process is ready.
func (p *part) missing() error {
	for _, ready := range p.ready {
		if err := ready(); err != nil {
			return err
		}
	}
	return nil
}

// workDone returns the sum of the counts of all parts.
func (p *part) workDone() (all memory.Counts) {
	for _, counts := range p.counts {
		c := counts()
		all.Bursts, all.Edits = all.Bursts+c.Bursts, all.Edits+c.Edits
	}
	return all
}

// remarks returns the notes of all parts.
func (p *part) remarks() (all []string) {
	for _, notes := range p.notes {
		all = slices.Concat(all, notes())
	}
	return all
}

// measure calls the functions in p.gauges every second until ctx ends, and returns nil.
func (p *part) measure(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		for _, gauge := range p.gauges {
			gauge(time.Now())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// depart calls the functions in p.leave in order.
func (p *part) depart(ctx context.Context) {
	for _, leave := range p.leave {
		leave(ctx)
	}
}
