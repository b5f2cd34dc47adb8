package join

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/push/machines"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/loop"
	stored "navarch.io/navarch/store/machines"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// still is a mirror with one change, after which its snapshot does not change.
type still struct{ mirror.Change }

func (s still) Current() *mirror.Snapshot { return s.New }

func (s still) Subscribe() (*loop.Box[mirror.Change], func()) {
	box := loop.NewBox(func(_, next mirror.Change) mirror.Change { return next })
	box.Put(s.Change)
	return box, func() {}
}

// A proxy whose node names a WorkloadGroup is registered as a machine, with its proven properties, while it has a view:
// not before it is admitted, not if it cannot be planned, and not after it has left, when its place in the fleet is
// free too.
func TestJoinRegistersMachines(t *testing.T) {
	group, err := model.New(model.Key{Kind: model.KindWorkloadGroup, Namespace: "shop", Name: "vms"}, 1, &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	change := mirror.Empty().Apply(1, []model.Record{group}, nil)
	planner, err := plan.NewLoop(plan.Config{Source: still{change}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- planner.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	registry := machines.New(machines.Config{Replica: "a", Snapshot: func() *mirror.Snapshot { return change.New }})
	join := func(p *parts, identity string) (serve.Proxy, error) {
		planner := p.planner()
		planner.Machines = registry
		return planner.Join(t.Context(), serve.Client{Node: encoded(t, map[string]any{"AUTO_REGISTER_GROUP": "vms"}), Identity: identity}, func(fanout.Lane) {})
	}
	const web = "spiffe://cluster.local/ns/shop/sa/web"
	for what, c := range map[string]struct {
		parts    parts
		identity string
		code     codes.Code
	}{
		"no proof":          {identity: "", code: codes.PermissionDenied},
		"it is not let in":  {parts: parts{admission: status.Error(codes.ResourceExhausted, "too many")}, identity: web, code: codes.ResourceExhausted},
		"it cannot be had":  {parts: parts{planning: errors.New("x")}, identity: web, code: codes.Unavailable},
		"it is not planned": {parts: parts{planning: plan.ErrUnplannable}, identity: web, code: codes.Internal},
	} {
		if _, err := join(&c.parts, c.identity); status.Code(err) != c.code || registry.Connected() != 0 {
			t.Errorf("%s: %v, %d machines are registered", what, err, registry.Connected())
		}
	}
	p := &parts{}
	v, err := join(p, web)
	if err != nil || registry.Connected() != 1 {
		t.Fatalf("%v, %d machines are registered", err, registry.Connected())
	}
	view := v.(*Proxy)
	for limit := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until the loop has its first plan
		if view.Proxy, err = planner.Join(t.Context(), p.node, func(plan.Path) {}); !errors.Is(err, plan.ErrNotReady) || time.Now().After(limit) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Confirm(t.Context()); err != nil {
		t.Errorf("confirmed: %v", err)
	}
	if v.Leave(); registry.Connected() != 0 || !p.left {
		t.Errorf("it has left: %d machines are registered, its seat is free: %v", registry.Connected(), p.left)
	}
	cancel()
	if <-ended; status.Code(v.Confirm(t.Context())) == codes.OK {
		t.Error("what the plan has not made again is as new as any")
	}
	ended <- nil
}

// wanted is the target state for a leader.
type wanted chan map[stored.Name]stored.Wanted

func (w wanted) Want(all map[stored.Name]stored.Wanted)                     { w <- all }
func (w wanted) There() (entries []stored.WorkloadEntry, _ <-chan struct{}) { return nil, nil }

// An agent's report reaches the leader as the health of its machine. Reports of proxies that are not machines are
// dropped.
func TestHealthIsThatOfTheMachine(t *testing.T) {
	group, err := model.New(model.Key{Kind: model.KindWorkloadGroup, Namespace: "shop", Name: "vms"}, 1, &networkingv1.WorkloadGroup{Template: &networkingv1.WorkloadEntry{ServiceAccount: "web"}})
	if err != nil {
		t.Fatal(err)
	}
	snapshot := mirror.Empty().Apply(1, []model.Record{group}, nil).New
	registry := machines.New(machines.Config{Replica: "a", Snapshot: func() *mirror.Snapshot { return snapshot }})
	join := func(metadata map[string]any) serve.HealthReporter {
		planner := (&parts{}).planner()
		planner.Machines = registry
		v, err := planner.Join(t.Context(), serve.Client{Node: encoded(t, metadata), Identity: "spiffe://cluster.local/ns/shop/sa/web"}, func(fanout.Lane) {})
		if err != nil {
			t.Fatal(err)
		}
		return v.(serve.HealthReporter)
	}
	join(nil).ReportHealth(false, "of no machine")
	join(map[string]any{"AUTO_REGISTER_GROUP": "vms"}).ReportHealth(false, "down")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	store, leads := kvtest.Start(t).Connect(), make(wanted, 100)
	leader := &stored.Leader{Grace: time.Hour, Log: slog.New(slog.DiscardHandler)}
	var runs sync.WaitGroup
	defer runs.Wait()
	defer cancel()
	runs.Go(func() { _ = registry.Run(ctx, store, loop.NewBox(mirror.Merge)) }) // their errors are the context's
	runs.Go(func() { _ = leader.Run(ctx, store, leads) })
	for {
		select {
		case all := <-leads:
			for _, one := range all {
				if one.Machine != nil && one.Machine.Health != nil && one.Machine.Health.Message == "down" {
					return
				}
			}
		case <-ctx.Done():
			t.Fatal("the leader is told of no health")
		}
	}
}
