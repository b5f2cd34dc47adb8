package mirror_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func record(t testing.TB, kind model.Kind, name string, body proto.Message) model.Record {
	t.Helper()
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 1, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func service(t testing.TB, name string, port uint32) model.Record {
	return record(t, model.KindService, name, &model.ServiceSpec{Hosts: []string{name + ".shop.svc.cluster.local"}, Ports: []*model.ServicePort{{Number: port}}})
}

func endpoints(t testing.TB, name string, addresses ...string) model.Record {
	spec := &model.EndpointsSpec{Hosts: []string{name + ".shop.svc.cluster.local"}}
	for _, a := range addresses {
		spec.Endpoints = append(spec.Endpoints, &model.Endpoint{Address: a})
	}
	return record(t, model.KindEndpoints, name, spec)
}

func services(t testing.TB, from, to int, port uint32) (all []model.Record) {
	for i := from; i < to; i++ {
		all = append(all, service(t, fmt.Sprintf("s%03d", i), port))
	}
	return all
}

func keys(records ...model.Record) (all []model.Key) {
	for _, r := range records {
		all = append(all, r.Meta().Key)
	}
	return all
}

// randomRecord is a record of any of the kinds, small enough that edits meet again.
func randomRecord(t testing.TB, r *rand.Rand) model.Record {
	name, n := fmt.Sprintf("n%d", r.IntN(12)), uint32(r.IntN(4)+1)
	host := name + ".shop.svc.cluster.local"
	switch r.IntN(6) {
	case 0:
		return service(t, name, n)
	case 1:
		return endpoints(t, name, "10.0.0.1", fmt.Sprintf("10.0.1.%d", n))
	case 2:
		return record(t, model.KindVirtualService, name, &networkingv1.VirtualService{Hosts: []string{host, fmt.Sprint(n)}})
	case 3:
		return record(t, model.KindDestinationRule, name, &networkingv1.DestinationRule{Host: host, ExportTo: []string{fmt.Sprint(n)}})
	case 4:
		return record(t, model.KindSidecar, name, &networkingv1.Sidecar{WorkloadSelector: &networkingv1.WorkloadSelector{Labels: map[string]string{"n": fmt.Sprint(n), "a": "b"}}})
	default:
		return record(t, model.KindAuthorizationPolicy, name, &model.PolicySpec{Selector: map[string]string{"x": fmt.Sprint(n)}})
	}
}

// running is a mirror with its loop, and the calls of its hooks.
type running struct {
	*mirror.Mirror
	t        testing.TB
	box      *loop.Box[mirror.Change]
	changes  chan mirror.Change
	relisted chan struct{}
	alarms   chan error
	contact  chan error
	problems chan []mirror.Problem
	held     chan []mirror.Held
	log      bytes.Buffer // read it after pause alone
	pause    func()       // ends the loop, until resume
}

func start(t testing.TB, source mirror.Source) *running {
	t.Helper()
	return startWith(t, source, nil)
}

func startWith(t testing.TB, source mirror.Source, disk *mirror.Disk) *running {
	t.Helper()
	r := &running{t: t, changes: make(chan mirror.Change, 1000), relisted: make(chan struct{}, 100), alarms: make(chan error, 100),
		contact: make(chan error, 100), problems: make(chan []mirror.Problem, 100), held: make(chan []mirror.Held, 100)}
	m, err := mirror.New(mirror.Config{Source: source, Disk: disk, Logger: slog.New(slog.NewTextHandler(&r.log, nil)), CheckEvery: 50 * time.Millisecond, Timeout: 200 * time.Millisecond, Hooks: mirror.Hooks{
		Published: func(c mirror.Change) { r.changes <- c },
		Relisted:  func() { r.relisted <- struct{}{} },
		Alarm:     func(err error) { r.alarms <- err },
		Contact:   func(err error) { r.contact <- err },
		Held:      func(h []mirror.Held) { r.held <- h },
		Problems:  func(p []mirror.Problem) { r.problems <- p },
	}})
	if err != nil {
		t.Fatal(err)
	}
	r.Mirror = m
	r.box, _ = m.Subscribe()
	r.resume()
	t.Cleanup(func() { r.pause() })
	return r
}

func (r *running) resume() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.pause = func() {
		cancel()
		if err := receive(r.t, "the loop to end", done); err != nil && !errors.Is(err, context.Canceled) {
			r.t.Errorf("Run: %v", err)
		}
		done <- context.Canceled // to be requested again
	}
}

// reach waits until the subscriber has received a revision, and returns all its changes as one.
func (r *running) reach(revision int64) mirror.Change {
	r.t.Helper()
	var all *mirror.Change
	for {
		c, err := r.box.Get(within(r.t))
		if err != nil {
			r.t.Fatalf("revision %d was not published, the mirror is at %+v: %v", revision, r.Status(), r.Ready())
		}
		if all != nil {
			c = all.Merge(c)
		}
		if all = &c; c.New.Revision() >= revision {
			return c
		}
	}
}

func receive[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(time.Minute):
		t.Fatalf("waited for %s", what)
		panic("unreachable")
	}
}

// dump is all that a snapshot holds, byte for byte.
func dump(t testing.TB, s *mirror.Snapshot) []string {
	t.Helper()
	all := []string{fmt.Sprint("revision ", s.Revision())}
	for _, kind := range model.Kinds() {
		n := 0
		for r := range s.All(kind) {
			b, err := model.Encode(r)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%v %x %x", r.Meta().Key, r.Meta().Hash, b))
			n++
		}
		if n != s.Len(kind) {
			t.Errorf("%d of kind %v, counted %d", n, kind, s.Len(kind))
		}
	}
	return all
}

func wantSame(t testing.TB, what string, a, b *mirror.Snapshot) {
	t.Helper()
	if x, y := dump(t, a), dump(t, b); !slices.Equal(x, y) {
		t.Fatalf("%s:\n%v\n%v", what, x, y)
	}
}

func pointer(t testing.TB, s *mirror.Snapshot, key model.Key) model.Record {
	t.Helper()
	r, ok := s.Get(key)
	if !ok {
		t.Fatalf("%v is not in the snapshot of revision %d", key, s.Revision())
	}
	return r
}

// etcd is a store with a leader.
func etcd(t testing.TB) (*kvtest.Server, kv.Epoch) {
	t.Helper()
	s := kvtest.Start(t)
	return s, s.Elect("a")
}
