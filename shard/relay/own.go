package relay

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/agentapi"
)

// taker passes the resources of one Subscription to the subscription's function Take. Its state outlives Envoy's
// streams and the connections to the control plane.
type taker struct {
	sub   Subscription
	count func(error) // called after each Take, with its result

	mu      sync.Mutex
	running bool
	waiting map[string]*discoveryv3.Resource // newest version of each waiting resource, by name
	answer  []func(error)                    // functions to call after Take, one for each response that waits
	held    map[string]string                // last accepted version of each resource, by name
}

func newTaker(sub Subscription, count func(error)) *taker {
	return &taker{sub: sub, count: count, held: map[string]string{}}
}

// ask returns the first request of the subscription on a new connection, with the versions that Take accepted.
func (t *taker) ask() mem.BufferSlice {
	t.mu.Lock()
	defer t.mu.Unlock()
	var held []named
	for _, name := range slices.Sorted(maps.Keys(t.held)) {
		held = append(held, named{name, t.held[name]})
	}
	return encodeFirst(nil, t.sub.Type, t.sub.Names, held)
}

// submit queues a response and frees data. The function done is called once, possibly before submit returns. The
// argument of done is nil if Take has accepted all waiting resources, those of other responses included. If Take has
// failed, the argument joins the errors of Take. If the response does not decode, the argument is the error of
// decoding.
func (t *taker) submit(data mem.BufferSlice, done func(error)) {
	var response discoveryv3.DeltaDiscoveryResponse
	err := proto.Unmarshal(data.Materialize(), &response)
	data.Free()
	if err != nil {
		done(err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting == nil {
		t.waiting = map[string]*discoveryv3.Resource{}
	}
	for _, r := range response.Resources {
		t.waiting[r.GetName()] = r
	}
	for _, name := range response.RemovedResources {
		delete(t.waiting, name) // the agent keeps its last accepted version
	}
	t.answer = append(t.answer, done)
	if !t.running {
		t.running = true
		go t.run()
	}
}

// run passes the waiting resources to Take, sorted by name, until no response waits.
func (t *taker) run() {
	for {
		t.mu.Lock()
		batch, answer := t.waiting, t.answer
		t.waiting, t.answer = nil, nil
		if len(answer) == 0 {
			t.running = false
			t.mu.Unlock()
			return
		}
		t.mu.Unlock()
		var errs []error
		for _, name := range slices.Sorted(maps.Keys(batch)) {
			if err := t.take(batch[name]); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", name, err))
			}
		}
		err := errors.Join(errs...)
		for _, done := range answer {
			done(err)
		}
	}
}

// take calls Take for a resource, unless the version that Take last accepted is the same. An empty version never counts
// as the same.
func (t *taker) take(r *discoveryv3.Resource) error {
	name, version := r.GetName(), r.GetVersion()
	t.mu.Lock()
	last, is := t.held[name]
	t.mu.Unlock()
	if is && last == version && version != "" {
		return nil
	}
	err := t.sub.Take(r)
	t.count(err)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.held[name] = version
	t.mu.Unlock()
	return nil
}

// checkOwn validates Config.Own, and returns the first error. Each subscription needs a function Take and a type. The
// type must be unique, and must not be agentapi.OwnerURL.
func checkOwn(own []Subscription) error {
	seen := map[string]bool{agentapi.OwnerURL: true}
	for _, s := range own {
		switch {
		case s.Type == "" || s.Take == nil:
			return fmt.Errorf("own subscription %q: a type and a Take are needed", s.Type)
		case seen[s.Type]:
			return fmt.Errorf("own subscription %q: the type is repeated or reserved", s.Type)
		}
		seen[s.Type] = true
	}
	return nil
}
