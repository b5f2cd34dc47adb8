package scene

import (
	"context"
	"strings"
	"sync"
	"time"

	"navarch.io/navarch/loadtest/proxy"
)

// told is a fleet that tells what a test wants, and keeps what it was asked to do.
type told struct {
	stats   func(since time.Duration) (proxy.Stats, error)
	outcome func(n int) (proxy.Outcome, error) // of the n-th probe that ends, from 0
	began   time.Time

	mu    sync.Mutex
	did   []string
	ended int
}

func (f *told) do(what string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.did = append(f.did, what)
	return nil
}

// done is all that it was asked to do, in order.
func (f *told) done() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.did, " ")
}

func (f *told) Stats() (proxy.Stats, error)             { return f.stats(time.Since(f.began)) }
func (f *told) Add([]proxy.Identity) error              { return f.do("add") }
func (f *told) Remove(Select) error                     { return f.do("remove") }
func (f *told) WaitJoined(context.Context) error        { return nil }
func (f *told) Reconnect(Select, proxy.Reconnect) error { return f.do("reconnect") }
func (f *told) Behave(Select, proxy.Behaviour) error    { return f.do("behave") }
func (f *told) CheckEqual() (int, error)                { return 0, f.do("compare") }
func (f *told) Footprint() (uint64, error)              { return 0, f.do("weigh") }
func (f *told) PIDs() []int                             { return nil }
func (f *told) Trusting() (int, error)                  { return 0, f.do("ask for roots") }
func (f *told) Certified() (map[string]int, error)      { return nil, f.do("ask for certificates") }
func (f *told) Renew() error                            { return f.do("renew") }
func (f *told) Close() error                            { return nil }
func (f *told) Watch([]Watch) (Probe, error)            { return f, f.do("watch") }
func (f *told) Await(context.Context) error             { return nil }

func (f *told) Outcome(time.Time) (proxy.Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended++
	return f.outcome(f.ended - 1)
}
