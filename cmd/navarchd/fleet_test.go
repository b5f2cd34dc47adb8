package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

var quiet = slog.New(slog.DiscardHandler)

// What agents are told of where this replica is comes from the operator, the pod, or the address that it listens on; what
// nobody could dial is not told.
func TestAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		c      config
		want   string
		secure bool
	}{
		"the address it listens on":        {config{grpcAddr: "127.0.0.1:15010"}, "127.0.0.1:15010", false},
		"every address":                    {config{grpcAddr: ":15010"}, "", false},
		"every address, IPv6":              {config{grpcAddr: "[::]:15010"}, "", false},
		"the pod's":                        {config{grpcAddr: ":15010", env: environment{podIP: "10.0.0.7"}}, "10.0.0.7:15010", false},
		"the pod's, IPv6":                  {config{grpcAddr: ":15010", env: environment{podIP: "fd00::7"}}, "[fd00::7]:15010", false},
		"secure first":                     {config{grpcAddr: "127.0.0.1:1", secureGRPCAddr: ":15012", tlsCert: "c", env: environment{podIP: "10.0.0.7"}}, "10.0.0.7:15012", true},
		"secure by our own CA":             {config{roles: []string{"ca"}, secureGRPCAddr: "10.0.0.8:15012"}, "10.0.0.8:15012", true},
		"secure is off":                    {config{grpcAddr: "127.0.0.1:1", secureGRPCAddr: ":15012"}, "127.0.0.1:1", false},
		"the operator's host":              {config{advertise: "a.example", grpcAddr: ":15010", env: environment{podIP: "10.0.0.7"}}, "a.example:15010", false},
		"the operator's port":              {config{advertise: "a.example:99", secureGRPCAddr: ":15012", tlsCert: "c"}, "a.example:99", true},
		"the operator means the plain one": {config{advertise: "a.example:15010", grpcAddr: ":15010", secureGRPCAddr: ":15012", tlsCert: "c"}, "a.example:15010", false},
		"any port":                         {config{grpcAddr: "127.0.0.1:0"}, "", false},
		"nothing":                          {config{}, "", false},
	} {
		if got, secure := c.c.advertised(); got != c.want || secure != c.secure {
			t.Errorf("%s: %q, TLS %v; want %q, %v", name, got, secure, c.want, c.secure)
		}
	}
}

// replica is a fleet's member with a server that has no streams.
func replica(t *testing.T, etcd *kvtest.Server, name string, shutdown time.Duration) *fleet {
	t.Helper()
	store := etcd.Connect()
	m, err := mirror.New(mirror.Config{Source: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	c := &config{grpcAddr: name + ":15010", replicaLease: 3 * time.Second, shutdown: shutdown, env: environment{podName: name}}
	f, err := newFleet(c, store, m, quiet)
	if err != nil {
		t.Fatal(err)
	}
	f.server = serve.New(serve.Config{AgentTypes: []serve.AgentType{f.agentType()}, Log: quiet})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{f.member.Run, f.replica.Run, f.admission.Run} {
		running.Go(func() { _ = run(ctx) })
	}
	t.Cleanup(func() { cancel(); running.Wait() })
	f.member.Ready()
	return f
}

// eventually follows the placements until one is right.
func (f *fleet) eventually(t *testing.T, what string, want func(*place.Placement) bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		p := f.replica.Placement()
		if want(p) {
			return
		}
		select {
		case <-p.Superseded():
		case <-deadline:
			t.Fatalf("%s: %v", what, p)
		}
	}
}

func told(t *testing.T, r *serve.AgentResource) (address string, self bool) {
	t.Helper()
	body := &structpb.Struct{}
	if r == nil || r.Name != "owner" || r.Body().UnmarshalTo(body) != nil {
		t.Fatalf("no owner: %v", r)
	}
	return body.Fields["address"].GetStringValue(), body.Fields["self"].GetBoolValue()
}

// Two replicas tell agents the same owner; the answer is one resource for all that get it; who came by a kind of connection
// that the owner's address does not take is told to stay. One that leaves lets nobody in, waits for what it has to be taken
// over, and hangs up on what is left at the end of its time; one without streams, or alone, goes at once.
func TestFleetOfTwo(t *testing.T) {
	etcd := kvtest.Start(t)
	a, b := replica(t, etcd, "a", time.Hour), replica(t, etcd, "b", 6*time.Second)
	if address, self := told(t, a.answer(a.replica.Placement(), false, "x", "y")); address != "" || self {
		t.Errorf("without a ring: %q %v", address, self)
	}
	epoch := etcd.Elect("leader")
	leading, resign := context.WithCancel(context.Background())
	var leader sync.WaitGroup
	leader.Go(func() { _ = place.Lead(leading, epoch, place.LeaderConfig{Store: etcd.Store, Log: quiet}) })
	t.Cleanup(func() { resign(); leader.Wait() })
	both := func(p *place.Placement) bool { return len(p.Ring().Members()) == 2 && p.Peers() == 1 }
	a.eventually(t, "two replicas", both)
	b.eventually(t, "two replicas", both)
	count, resources := map[string]int{}, map[*serve.AgentResource]bool{}
	for _, namespace := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"} {
		of, by := a.answer(a.replica.Placement(), false, namespace, "w"), b.answer(b.replica.Placement(), false, namespace, "w")
		x, self := told(t, of)
		y, other := told(t, by)
		if x != y || self == other || self != (x == "a:15010") {
			t.Errorf("%s: %s (self %v) and %s (self %v)", namespace, x, self, y, other)
		}
		if stay, is := told(t, a.answer(a.replica.Placement(), true, namespace, "w")); stay != "" || is != self {
			t.Errorf("%s over TLS: %s, self %v", namespace, stay, is)
		}
		count[x]++
		resources[of] = true
	}
	if len(count) != 2 || len(resources) != 2 {
		t.Errorf("%d owners, %d resources", len(count), len(resources))
	}
	if err := a.Admit(t.Context(), serve.Client{}, view.Node{}); err != nil {
		t.Errorf("a join: %v", err)
	}
	leave := b.streams.Join("x", "y") // of a client that does not go
	defer leave()
	patient, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	began := time.Now()
	b.depart(patient)
	if took := time.Since(began); took < time.Second || patient.Err() != nil {
		t.Errorf("a stream that does not go was waited for %v", took)
	}
	if err := b.Admit(t.Context(), serve.Client{}, view.Node{}); status.Code(err) != codes.Unavailable || !errors.Is(b.ready(), errLeaving) {
		t.Errorf("a replica that leaves: %v, %v", err, b.ready())
	}
	a.eventually(t, "the other one has left the ring", func(p *place.Placement) bool { return len(p.Ring().Members()) == 1 && p.Peers() == 0 })
	defer a.streams.Join("x", "y")()
	if a.depart(patient); patient.Err() != nil {
		t.Error("with nobody to take over it waits")
	}
}

// Who waits to be let in is a part of the load that the leader makes rings by: it is to be served by somebody.
func TestWhoWaitsIsLoad(t *testing.T) {
	f := &fleet{admission: place.NewAdmission(place.AdmissionConfig{Pace: place.PaceConfig{Cores: 1, Most: .01}})}
	waiting, over := context.WithCancel(t.Context())
	defer over()
	var joins sync.WaitGroup
	for range 2 { // at one in 100 s nobody is let in by now, and a third would not wait
		joins.Go(func() { _ = f.Admit(waiting, serve.Client{Holds: true}, view.Node{Namespace: "shop", Workload: "web"}) })
	}
	soon(t, "who waits is load", func() bool { return f.streams.Load(nil).Namespaces["shop"].Streams == 2 })
	if f.streams.Total() != 0 {
		t.Errorf("%d streams are served", f.streams.Total())
	}
	over()
	joins.Wait()
	if n := f.streams.Load(nil).Streams(); n != 0 {
		t.Errorf("%d in the load when nobody waits", n)
	}
}

// The page of commits holds the newest, oldest first, and no more than a few.
func TestWrittenIsBounded(t *testing.T) {
	var w written
	hook := w.hook(nil, newChangeLog(quiet))
	began := time.Now()
	for i := range int64(maxCommits + 10) {
		hook(i, began, began, kv.Batch{Deletes: []model.Key{{Name: "x"}}})
	}
	all := w.list()
	if len(all) != maxCommits || all[0].Revision != 10 || all[maxCommits-1].Revision != maxCommits+9 {
		t.Errorf("%d commits from %+v", len(all), all[0])
	}
	if at := all[0].Committed; at.Before(began) || at.After(time.Now()) || !all[0].Event.Equal(began) || all[0].Puts != 0 || all[0].Deletes != 1 ||
		!slices.Equal(all[0].Records, []model.Key{{Name: "x"}}) {
		t.Errorf("%+v", all[0])
	}
}
