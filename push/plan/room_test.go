package plan

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// entries returns a ServiceEntry with this many hosts and ports, exported to all namespaces.
func entries(t testing.TB, name string, hosts, ports int) model.Record {
	t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	var b strings.Builder
	b.WriteString("exportTo: ['*']\nhosts:\n")
	for i := range hosts {
		fmt.Fprintf(&b, "- h%d.%s.%s.example.com\n", i, short, namespace)
	}
	b.WriteString("ports:\n")
	for i := range ports {
		fmt.Fprintf(&b, "- {name: p%d, number: %d, protocol: PROTOCOL_HTTP, targetNumber: 80}\n", i, 8000+i)
	}
	return rec(t, model.KindServiceEntry, name, b.String())
}

func leftOutOf(l *Loop) (all []string) {
	for _, p := range l.Problems() {
		if strings.Contains(p.Message, "left out by this replica") {
			all = append(all, p.Key.Namespace+"/"+p.Key.Name)
		}
	}
	slices.Sort(all)
	return all
}

// A replica leaves out records for which it has no memory, the largest of the namespace with the most first, whichever
// source admitted them. Planned records stay when more arrive, and records that were left out are planned when there is
// room.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestRoom(t *testing.T) {
	inBubble(t, Config{Room: 2000}, func(t *testing.T, l *Loop, src *testSource) {
		records := shop(t)
		for i := range 5 {
			records = append(records, entries(t, fmt.Sprintf("evil/e%d", i), 256, 256))
		}
		src.put(append(records, entries(t, "evil/small", 2, 2), entries(t, "pay/bank", 4, 4))...)
		p, err := l.Join(t.Context(), node("shop", "a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		has := func(want bool, hosts ...string) {
			t.Helper()
			pass(11 * time.Second)
			if err := p.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, h := range hosts {
				if got := p.Set().Types[xds.Cluster].Get("outbound|8000||"+h) != nil; got != want {
					t.Errorf("%s is planned: %v", h, got)
				}
			}
			if bad := l.planner.Check(p.Handle); len(bad) > 0 {
				t.Error(bad)
			}
		}
		has(true, "h0.small.evil.example.com", "h0.bank.pay.example.com")
		if got := leftOutOf(l); fmt.Sprint(got) != "[evil/e0 evil/e1 evil/e2 evil/e3 evil/e4]" {
			t.Errorf("left out %v", got)
		}
		src.put(entries(t, "evil/small", 256, 256), entries(t, "pay/bank", 5, 5))
		has(true, "h0.small.evil.example.com", "h4.bank.pay.example.com") // the previous version stays
		if p.Set().Types[xds.Cluster].Get("outbound|8000||h100.small.evil.example.com") != nil {
			t.Error("one that has grown is planned")
		}
		var gone []model.Key
		for i := range 5 {
			gone = append(gone, model.Key{Kind: model.KindServiceEntry, Namespace: "evil", Name: fmt.Sprint("e", i)})
		}
		src.apply(nil, gone...)
		src.put(entries(t, "pay/more", 10, 15))
		pass(time.Second)
		src.put(entries(t, "late/one", 10, 10))
		has(true, "h0.more.pay.example.com")
		has(false, "h0.one.late.example.com")
		src.apply(nil, model.Key{Kind: model.KindServiceEntry, Namespace: "pay", Name: "more"})
		has(true, "h0.one.late.example.com")
		if got := leftOutOf(l); fmt.Sprint(got) != "[evil/small]" {
			t.Errorf("left out %v", got)
		}
	})
}

// A loop that started with a smaller room plans what it has left out when the room grows, and keeps what it has
// planned when the room shrinks.
// Promise: tenants.md#after-a-kill-for-memory
func TestRoomGrows(t *testing.T) {
	inBubble(t, Config{Room: 1000}, func(t *testing.T, l *Loop, src *testSource) {
		if err := l.Resize(t.Context(), 1001); err != nil { // before the first snapshot
			t.Fatal(err)
		}
		src.put(append(shop(t), entries(t, "evil/big", 16, 16), entries(t, "pay/bank", 4, 4))...)
		p, err := l.Join(t.Context(), node("shop", "a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			kib  int
			want string
		}{{1002, "[evil/big]"}, {20000, "[]"}, {1000, "[]"}} {
			if err := l.Resize(t.Context(), c.kib); err != nil {
				t.Fatal(err)
			}
			pass(11 * time.Second)
			planned := p.Set().Types[xds.Cluster].Get("outbound|8000||h0.big.evil.example.com") != nil
			if got := fmt.Sprint(leftOutOf(l)); got != c.want || planned != (c.want == "[]") {
				t.Errorf("%d KiB: left out %s, planned %v", c.kib, got, planned)
			}
			if bad := l.planner.Check(p.Handle); len(bad) > 0 {
				t.Error(bad)
			}
		}
	})
}

// Policies are planned even if there is no room: without a policy the traffic that it denies would be allowed.
func TestRoomForPolicies(t *testing.T) {
	s := snapshot(append(shop(t), rec(t, model.KindAuthorizationPolicy, "shop/closed", "closed: true"))...)
	c := newIntake(1).step(mirror.Diff(mirror.Empty(), s), time.Unix(1, 0))
	if c.New.Len(model.KindAuthorizationPolicy) != 1 || c.New.Len(model.KindService) != 0 {
		t.Errorf("%d policies and %d services", c.New.Len(model.KindAuthorizationPolicy), c.New.Len(model.KindService))
	}
}

// A change that is only previewed is measured as one: a heavy record, or many records that are not heavy. The room is
// the same afterwards.
func TestAfford(t *testing.T) {
	inBubble(t, Config{Room: 2000}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(append(shop(t), entries(t, "pay/bank", 4, 4))...)
		p, err := l.Join(t.Context(), node("shop", "a"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := l.intake.room
		sum, weights, spaces := r.sum, maps.Clone(r.weights), maps.Clone(r.spaces)
		afford := func(records ...model.Record) error {
			t.Helper()
			now := src.Current()
			err := l.Afford(t.Context(), now.Apply(now.Revision()+1, records, nil))
			if r.sum != sum || !maps.Equal(r.weights, weights) || !maps.Equal(r.spaces, spaces) {
				t.Errorf("the room has changed: %d %v %v, not %d %v %v", r.sum, r.weights, r.spaces, sum, weights, spaces)
			}
			return err
		}
		var many []model.Record
		for i := range 40 {
			many = append(many, entries(t, fmt.Sprint("evil/m", i), 4, 3))
		}
		if err := afford(many[0], entries(t, "pay/bank", 4, 3)); err != nil {
			t.Error(err)
		}
		if err := afford(many...); !errors.Is(err, ErrNoRoom) {
			t.Errorf("many: %v", err)
		}
		if err := afford(many[0], entries(t, "evil/e", 256, 256)); !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "evil/e ") {
			t.Errorf("a heavy one: %v", err)
		}
		if got := len(leftOutOf(l)); got > 0 {
			t.Errorf("%d are left out", got)
		}
	})
}
