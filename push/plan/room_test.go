package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// entries is a ServiceEntry of hosts by ports, exported to all.
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

// What a replica reads from the store and has no memory for it leaves out, the largest of the heaviest namespace first, whoever took it. What is planned
// stands when more comes, and what was left out is planned once there is room.
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
		has(true, "h0.small.evil.example.com", "h4.bank.pay.example.com") // an older version stands
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

// Policies are planned whatever there is room for: without one what it closes would be open.
func TestRoomForPolicies(t *testing.T) {
	s := snapshot(append(shop(t), rec(t, model.KindAuthorizationPolicy, "shop/closed", "closed: true"))...)
	c := newIntake(1).step(mirror.Diff(mirror.Empty(), s), time.Unix(1, 0))
	if c.New.Len(model.KindAuthorizationPolicy) != 1 || c.New.Len(model.KindService) != 0 {
		t.Errorf("%d policies and %d services", c.New.Len(model.KindAuthorizationPolicy), c.New.Len(model.KindService))
	}
}
