package scene

import (
	"context"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// scripted is a fleet with the measurements of a test, which records its calls.
type scripted struct {
	stats   func(since time.Duration) (proxy.Stats, error)
	outcome func(n int) (proxy.Outcome, error) // of the n-th probe that ends, from 0
	began   time.Time

	mu    sync.Mutex
	did   []string
	ended int
}

func (f *scripted) do(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.did = append(f.did, what)
	return nil
}

// done returns all recorded calls, in order.
func (f *scripted) done() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.did, " ")
}

func (f *scripted) Stats() (proxy.Stats, error)             { return f.stats(time.Since(f.began)) }
func (f *scripted) Add([]proxy.Identity) error              { return f.do("add") }
func (f *scripted) Remove(Select) error                     { return f.do("remove") }
func (f *scripted) WaitJoined(context.Context) error        { return nil }
func (f *scripted) Reconnect(Select, proxy.Reconnect) error { return f.do("reconnect") }
func (f *scripted) Behave(Select, proxy.Behaviour) error    { return f.do("behave") }
func (f *scripted) CheckEqual() (int, error)                { return 0, f.do("compare") }
func (f *scripted) Footprint() (uint64, error)              { return 0, f.do("weigh") }
func (f *scripted) PIDs() []int                             { return nil }
func (f *scripted) Trusting() (int, error)                  { return 0, f.do("ask for roots") }
func (f *scripted) Certified() (map[string]int, error)      { return nil, f.do("ask for certificates") }
func (f *scripted) Renew() error                            { return f.do("renew") }
func (f *scripted) Close() error                            { return nil }
func (f *scripted) Watch([]Watch) (Probe, error)            { return f, f.do("watch") }
func (f *scripted) Await(context.Context) error             { return nil }

func (f *scripted) Outcome(time.Time) (proxy.Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended++
	return f.outcome(f.ended - 1)
}
