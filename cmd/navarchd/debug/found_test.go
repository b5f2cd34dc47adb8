package debug

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/problems"
	"navarch.io/navarch/store/kv/kvtest"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// The leader's page lists the replicas' problems, except those that this process found itself, and shows tenants their
// own.
func TestLeaderListsWhatReplicasFound(t *testing.T) {
	etcd := kvtest.Start(t)
	at := func(namespace string) model.Problem {
		return model.Problem{Key: model.Key{Kind: model.KindDestinationRule, Namespace: namespace, Name: "r"}, Field: "spec.trafficPolicy.tls",
			Code: problem.Required, Severity: problem.Error, Message: "is missing"}
	}
	log := slog.New(slog.DiscardHandler)
	p := &Objects{Found: problems.NewCollector(log)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = p.Found.Run(ctx, etcd.Connect()) }()
	for _, name := range []string{"a", "b"} {
		replica := problems.New(problems.Config{Name: name, Every: 2 * time.Millisecond, Max: 2 * time.Millisecond,
			Log: log, Revision: func() int64 { return 1 },
			Find: func() []model.Problem { return []model.Problem{at("shop"), at("bank")} }})
		go func() { _ = replica.Run(ctx, etcd.Connect()) }()
	}
	own := map[model.Problem]bool{at("bank"): true}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(2 * time.Millisecond) { // a poll, not a guess of when
		got := p.found(nil, own)
		if len(got) == 1 && got[0].Location == "replica a and 1 more" && got[0].Object == "DestinationRule shop/r" && got[0].Code == problem.Required &&
			got[0].Field == "spec.trafficPolicy.tls" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the leader lists %+v", got)
		}
	}
	if got := p.found(func(namespace string) bool { return namespace == "bank" }, nil); len(got) != 1 || got[0].Object != "DestinationRule bank/r" {
		t.Errorf("a tenant sees %+v", got)
	}
	// The counts of the replicas' problems are separate from those of objects, unlisted ones included.
	p.Sources = func() []object.Problem { return nil }
	p.Loop = func() []object.Problem {
		return []object.Problem{{Severity: problem.Error}, {Severity: problem.Warning}}
	}
	p.Total = func() problem.Count { return problem.Count{Errors: 7, Warnings: 5} }
	pages := New(Pages{Objects: p, Store: func() []inspect.Problem { return []inspect.Problem{{Severity: problem.Warning}} }})
	if got, want := pages.Count(), (problem.Count{Errors: 7 + 2, Warnings: 5 + 1}); got != want {
		t.Errorf("%+v are counted, want %+v", got, want)
	}
}

// A tenant reads the message without private objects of others; callers who see everything read all names. The same
// holds for problems of objects, of this process's plan and of other replicas'.
// Promise: security-tenants.md#what-a-tenant-reads-of-others
func TestProblemsNameNoPrivateObjects(t *testing.T) {
	const shown, whole = "belongs to an object of another namespace", "belongs to VirtualService victim/secret"
	key := model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "v"}
	planned := model.Problem{Key: key, Code: problem.Duplicate, Severity: problem.Warning, Message: shown, Whole: whole}
	o := &Objects{Sources: func() []object.Problem { return nil }, Loop: func() []object.Problem {
		return []object.Problem{{ID: object.ID{Kind: "VirtualService", Namespace: "shop", Name: "v"}, Severity: problem.Warning,
			Message: shown, Whole: whole}}
	}}
	for name, c := range map[string]struct {
		sees authz.Visible
		want string
	}{"a tenant": {func(namespace string) bool { return namespace == "shop" }, shown}, "an operator": {nil, whole}} {
		all := append(o.reported(c.sees), planning([]model.Problem{planned}, c.sees)...)
		if len(all) != 2 || all[0].Message != c.want || all[1].Message != c.want {
			t.Errorf("%s reads %+v, want %q", name, all, c.want)
		}
	}
}
