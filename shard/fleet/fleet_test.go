package fleet

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/serve/servetest"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/shard/place"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

var quiet = slog.New(slog.DiscardHandler)

// replica is a fleet's member with a server that has no streams.
func replica(t *testing.T, etcd *kvtest.Server, name string, grace time.Duration) *Fleet {
	t.Helper()
	store := etcd.Connect()
	m, err := mirror.New(mirror.Config{Source: store, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(Config{Store: store, Name: name, Address: name + ":15010", Revision: func() int64 { return m.Status().Revision }, Lease: 3 * time.Second, Grace: grace, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	f.Serves(serve.New(serve.Config{AgentTypes: []serve.AgentType{f.AgentType()}, Log: quiet}))
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
func (f *Fleet) eventually(t *testing.T, what string, want func(*place.Placement) bool) {
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

func ownerOf(t *testing.T, r *serve.AgentResource) (address string, self bool) {
	t.Helper()
	body := &structpb.Struct{}
	if r == nil || r.Name != "owner" || r.Body().UnmarshalTo(body) != nil {
		t.Fatalf("no owner: %v", r)
	}
	return body.Fields["address"].GetStringValue(), body.Fields["self"].GetBoolValue()
}

// Two replicas notify agents of the same owner, and the response is one shared resource. An agent on a kind of
// connection that the owner's address does not accept receives no owner. A replica that leaves admits no stream, waits
// until its shards are taken over, and closes the remaining streams at the end of its grace. A replica without streams,
// or a single one, leaves at once.
func TestFleetOfTwo(t *testing.T) {
	etcd := kvtest.Start(t)
	a, b := replica(t, etcd, "a", time.Hour), replica(t, etcd, "b", 6*time.Second)
	if address, self := ownerOf(t, a.answer(a.replica.Placement(), false, "x", "y")); address != "" || self {
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
		x, self := ownerOf(t, of)
		y, other := ownerOf(t, by)
		if x != y || self == other || self != (x == "a:15010") {
			t.Errorf("%s: %s (self %v) and %s (self %v)", namespace, x, self, y, other)
		}
		if stay, is := ownerOf(t, a.answer(a.replica.Placement(), true, namespace, "w")); stay != "" || is != self {
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
	b.Depart(patient)
	if took := time.Since(began); took < time.Second || patient.Err() != nil {
		t.Errorf("a stream that does not go was waited for %v", took)
	}
	if err := b.Admit(t.Context(), serve.Client{}, view.Node{}); status.Code(err) != codes.Unavailable || !errors.Is(b.Ready(), errLeaving) {
		t.Errorf("a replica that leaves: %v, %v", err, b.Ready())
	}
	a.eventually(t, "the other one has left the ring", func(p *place.Placement) bool { return len(p.Ring().Members()) == 1 && p.Peers() == 0 })
	defer a.streams.Join("x", "y")()
	if a.Depart(patient); patient.Err() != nil {
		t.Error("with nobody to take over it waits")
	}
}

// A replica whose build does not read the fleet's level serves no proxies before the leader has lowered the level: it
// is not ready, and admits no stream (push/join calls Above).
func TestLevelAboveTheBuild(t *testing.T) {
	etcd := kvtest.Start(t)
	etcd.Put(member.LevelPath, string(member.LevelValue(model.Level+1)))
	f := replica(t, etcd, "a", time.Hour)
	if f.ready(t.Context(), true); f.Ready() == nil || f.Above() == nil {
		t.Error("it is ready before the levels are compared")
	}
	etcd.Put(member.LevelPath, string(member.LevelValue(model.Level)))
	servetest.Soon(t, "the level is lowered, and it serves", func() bool { return f.Ready() == nil && f.Above() == nil })
}

// Proxies that wait for admission count as load when the leader makes rings: a replica has to serve them.
func TestWhoWaitsIsLoad(t *testing.T) {
	f := &Fleet{admission: place.NewAdmission(place.AdmissionConfig{Pace: place.PaceConfig{Cores: 1, Most: .01}})}
	waiting, over := context.WithCancel(t.Context())
	defer over()
	var joins sync.WaitGroup
	for range 2 { // at one in 100 s no stream is admitted by now, and a third would not wait
		joins.Go(func() { _ = f.Admit(waiting, serve.Client{Holds: true}, view.Node{Namespace: "shop", Workload: "web"}) })
	}
	servetest.Soon(t, "who waits is load", func() bool { return f.streams.Load(nil).Namespaces["shop"].Streams == 2 })
	if f.streams.Total() != 0 {
		t.Errorf("%d streams are served", f.streams.Total())
	}
	over()
	joins.Wait()
	if n := f.streams.Load(nil).Streams(); n != 0 {
		t.Errorf("%d in the load when nobody waits", n)
	}
}
