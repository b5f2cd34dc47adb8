package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"navarch.io/navarch/cmd/navarchd/delivered"
	"navarch.io/navarch/push/acknowledged"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/shard/member"
	"navarch.io/navarch/store/kv"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
	"navarch.io/navarch/store/status"
	"navarch.io/navarch/store/tenants"
)

// routesAPI is an API server with one VirtualService, which accepts any status of it.
type routesAPI struct {
	mu     sync.Mutex
	object *unstructured.Unstructured
	writes []string // the condition in each write
}

var cartKey = status.Key{Namespace: "shop", Name: "cart"}

func (a *routesAPI) found() status.Found[unstructured.Unstructured] {
	return status.Found[unstructured.Unstructured]{Object: a.object.DeepCopy(), Version: status.Version(len(a.writes) + 1)}
}

func (a *routesAPI) Follow(ctx context.Context, s status.Seen[unstructured.Unstructured], failed func(error)) error {
	failed(nil)
	a.mu.Lock()
	s.Replace(map[status.Key]status.Found[unstructured.Unstructured]{cartKey: a.found()})
	a.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (a *routesAPI) Get(context.Context, status.Key) (status.Found[unstructured.Unstructured], error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.found(), nil
}

func (a *routesAPI) Write(_ context.Context, _ status.Key, o *unstructured.Unstructured) (status.Found[unstructured.Unstructured], error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.object = o.DeepCopy()
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	condition := conditions[0].(map[string]any)
	a.writes = append(a.writes, fmt.Sprint(condition["status"], " ", condition["reason"], " ", condition["observedGeneration"]))
	return a.found(), nil
}

// says waits until exactly these writes have happened.
func (a *routesAPI) says(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); time.Sleep(5 * time.Millisecond) { // a poll, not a guess of when
		a.mu.Lock()
		got = slices.Clone(a.writes)
		a.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
	}
	t.Fatalf("the status was written as %q, want %q", got, want)
}

// settled is an ingester that writes everything at once; looks counts its queries.
type settled struct{ looks atomic.Int64 }

func (s *settled) Settle(context.Context) error { s.looks.Add(1); return nil }
func (s *settled) Settled() bool                { return true }

// A leader reports an object as delivered once all replicas have answered for its revision, and later refusals by
// replicas; the next leader does not repeat existing statuses.
func TestObjectStatusFollowsReplicas(t *testing.T) {
	etcd, log := kvtest.Start(t), slog.New(slog.DiscardHandler)
	id := object.ID{Origin: origin.New("", "kube"), Group: "networking.istio.io", Kind: "VirtualService", Namespace: "shop", Name: "cart"}
	api := &routesAPI{object: &unstructured.Unstructured{Object: map[string]any{}}}
	api.object.SetUID(types.UID("u"))
	api.object.SetGeneration(3)

	lease, err := etcd.Connect().Lease(t.Context(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lease.Put(t.Context(), "members/a", member.Record{Name: "a", Address: "a:1", State: member.Ready, Weight: 1}.Encode()); err != nil {
		t.Fatal(err)
	}
	var notified atomic.Int64
	var refused atomic.Pointer[[]acknowledged.Refusal]
	refused.Store(&[]acknowledged.Refusal{})
	replica := acknowledged.New(acknowledged.Config{Name: "a", Every: time.Millisecond, Log: log, Notified: notified.Load,
		Unsettled: func() func() int { return func() int { return 0 } }, Refused: func() []acknowledged.Refusal { return *refused.Load() }})
	runs(t, func(ctx context.Context) { _ = replica.Run(ctx, etcd.Connect()) })

	lead := func(epoch kv.Epoch) (s *objectStatus, stop func()) {
		s = &objectStatus{store: etcd.Connect(), ingest: &settled{}, listed: func(context.Context) ([]object.Problem, error) { return nil, nil }, found: problems.NewCollector(log),
			acks: acknowledged.NewCollector(log), log: log, objects: delivered.New()}
		s.writers = map[status.Kind]*status.Writer[unstructured.Unstructured]{{Group: id.Group, Kind: id.Kind}: status.New(status.Config[unstructured.Unstructured]{
			API: api, Kind: id.Kind, Deadline: time.Millisecond, Log: log,
			Until: func(context.Context) (time.Time, error) { return time.Now().Add(time.Minute), nil }})}
		s.observe([]object.Event{{Op: object.Put, ID: id, Object: &object.Object{ID: id, UID: "u", Generation: 3}}})
		s.wrote(epoch.Revision + 50)
		s.wrote(epoch.Revision)
		collecting := runs(t, func(ctx context.Context) { _ = s.found.Run(ctx, s.store) })
		leading := runs(t, func(ctx context.Context) { s.lead(ctx, epoch) })
		return s, func() { leading(); collecting() }
	}
	epoch := etcd.Elect("first")
	s, stop := lead(epoch)
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until it waits for the replica
		s.mu.Lock()
		awaited := s.objects.Awaited()
		s.mu.Unlock()
		if awaited == epoch.Revision+50 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("it waits for revision %d", awaited)
		}
	}
	notified.Store(epoch.Revision + 50)
	api.says(t, "True Acknowledged 3")
	route := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "cart", Origin: id.Origin}
	refused.Store(&[]acknowledged.Refusal{{Object: route, Text: "no"}})
	api.says(t, "True Acknowledged 3", "False Refused 3")
	stop()
	etcd.Depose(epoch)
	notified.Store(epoch.Revision + 1000)
	second := etcd.Elect("second")
	next, stopNext := lead(second)
	defer stopNext()
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until it knows all that the first one knew
		if answers := next.acks.Now(); answers != nil {
			if reached, _ := answers.Acknowledged([]string{"a"}, 0); reached >= second.Revision+50 {
				break
			}
		}
		if time.Now().After(limit) {
			t.Fatal("the replica does not answer the next leader")
		}
	}
	api.says(t, "True Acknowledged 3", "False Refused 3")
	refused.Store(&[]acknowledged.Refusal{{Object: route, Text: "for another reason"}})
	api.says(t, "True Acknowledged 3", "False Refused 3", "False Refused 3")
}

// A leader that does not maintain statuses deletes the question of an earlier leader that did.
func TestLeaderWithoutStatusAsksNothing(t *testing.T) {
	etcd := kvtest.Start(t)
	store := etcd.Connect()
	first := etcd.Elect("first")
	if err := acknowledged.NewCollector(quiet).Await(t.Context(), store, first, 7); err != nil {
		t.Fatal(err)
	}
	etcd.Depose(first)
	i := leastIngester(t, store)
	second := etcd.Elect("second")
	runs(t, func(ctx context.Context) { _ = i.loop.Run(ctx) })
	runs(t, func(ctx context.Context) { _ = i.leads(ctx, second) })
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { // a poll, not a guess of when
		asked, _, err := store.Blobs(t.Context(), "awaited/", 0)
		if err == nil && len(asked) == 0 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("the replicas are still asked: %v, %v", asked, err)
		}
	}
}

// leastIngester returns a role ingest without its optional parts: a key encryption key, a keyring, Kubernetes.
func leastIngester(t *testing.T, store *kv.Store) *ingester {
	t.Helper()
	c := &config{configDir: t.TempDir(), trustDomain: "cluster.local", lease: 10 * time.Second, env: environment{podName: "a"}}
	i, err := newIngester(ingesterConfig{config: c, log: quiet, store: store, seen: func() kv.Place { return kv.Place{} }, tenants: tenants.New(),
		committed: func(int64, time.Time, time.Time, kv.Batch) {}, read: func() time.Time { return time.Time{} }})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// runs runs something until the test or the returned function ends it.
func runs(t *testing.T, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// A quorum of identities can blame any object, several workloads of one identity only those of its namespace.
func TestBlamed(t *testing.T) {
	withheld := func(identity, name, of string) quarantine.Withheld {
		key := model.Key{Kind: model.KindEnvoyFilter, Namespace: of, Name: name}
		return quarantine.Withheld{Key: quarantine.Key{Identity: identity}, Namespace: "shop", Objects: []model.Place{{Key: key}}, Text: "no"}
	}
	const web = "spiffe://mesh/ns/shop/sa/web"
	var names []string
	for _, r := range blamed([]quarantine.Withheld{withheld("", "a", "istio-system"), withheld(web, "b", "istio-system"), withheld(web, "c", "shop"), {}}) {
		names = append(names, r.Object.Name)
	}
	if !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("%v", names)
	}
}

// One proxy cannot blame objects of other namespaces.
func TestCulprits(t *testing.T) {
	of := func(namespace string) []model.Place {
		return []model.Place{{Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: namespace, Name: "f"}}, {Key: model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "g"}}}
	}
	got := *culprits([]serve.Refusal{{Namespace: "shop", Objects: of("shop"), Text: "a"}, {Namespace: "shop", Objects: of("bank"), Text: "b"}, {Namespace: "shop"}})
	if len(got) != 1 || got[0].Object.Name != "f" || got[0].Text != "a" {
		t.Errorf("%v", got)
	}
}
