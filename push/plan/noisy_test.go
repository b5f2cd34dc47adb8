package plan

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/push/plan/input"
)

// Endpoints of a namespace that change continuously wait as configuration does; endpoints of other namespaces do not
// wait for them.
// Promise: security-tenants.md#stop-or-slow-the-control-plane
func TestNoisyNamespace(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		src.put(append(shop(t), svc(t, "pay/bank", "10.96.1.1", "http:80:HTTP"), eps(t, "pay/bank-1", "{name: http, number: 8080}", "10.2.0.1"))...)
		var m moves
		p, err := l.Join(t.Context(), node("shop", "a"), m.moved)
		if err != nil {
			t.Fatal(err)
		}
		pass(time.Second)
		edit := func(slice, network string, i int) {
			src.put(eps(t, slice, "{name: http, number: 8080}", fmt.Sprintf("10.%s.%d.1", network, i%200)))
			synctest.Wait()
		}
		noisy := 0
		for ; noisy <= 2*noisyBurst; noisy++ {
			edit("shop/web-1", "1", noisy)
			pass(time.Millisecond)
		}
		pass(10 * time.Millisecond)
		m.reset()
		edit("shop/web-1", "1", noisy+1)
		if got := m.get(); len(got.at) != 0 {
			t.Errorf("endpoints of a noisy namespace went at once: %v", got)
		}
		edit("pay/bank-1", "2", 7)
		bank := "bank.pay.svc.cluster.local"
		if got := m.get(); !slices.Equal(got.paths, []Path{Fast}) || !slices.Equal(p.Set().FastHosts, []string{bank}) {
			t.Errorf("another's endpoints: %v, by the fast path %v", got, p.Set().FastHosts)
		}
		if got := addresses(t, p.Set(), "outbound|80||"+bank); got != "10.2.7.1:8080" {
			t.Errorf("another's endpoints: %s", got)
		}
		pass(time.Second)
		if got := m.get(); !slices.Equal(got.paths, []Path{Fast, Slow}) {
			t.Errorf("endpoints of a noisy namespace, later: %v", got)
		}
		if got, want := addresses(t, p.Set(), "outbound|80||"+web), fmt.Sprintf("10.1.%d.1:8080", (noisy+1)%200); got != want {
			t.Errorf("endpoints of a noisy namespace: %s, want %s", got, want)
		}
		pass(2 * time.Second)
		m.reset()
		edit("shop/web-1", "1", 3)
		if got := m.get(); !slices.Equal(got.paths, []Path{Fast}) || !slices.Equal(p.Set().FastHosts, []string{bank, web}) {
			t.Errorf("when it is quiet again: %v, by the fast path %v", got, p.Set().FastHosts)
		}
	})
}

func TestNoisyForgets(t *testing.T) {
	var l noisy
	now := time.Unix(100, 0)
	for i := range 1001 {
		l.edit(fmt.Sprint(i), now)
	}
	for range noisyBurst {
		l.edit("busy", now)
	}
	l.edit("another", now.Add(noisyBurst*time.Second/noisyRate/2))
	if n := len(l.spaces); n > 3 {
		t.Errorf("%d namespaces are remembered", n)
	}
	if !l.edit("busy", now) {
		t.Error("a busy one was forgotten")
	}
}

// The hosts of the fast path are remembered once each, up to a limit, the newest; a list that was returned before does
// not change.
func TestFastHosts(t *testing.T) {
	var f fastHosts
	for i := range maxFastHosts + 2 {
		f.add(map[string]input.Types{fmt.Sprintf("%03d", i): input.EDS})
	}
	before := f.sorted
	f.add(map[string]input.Types{"002": input.EDS})
	f.add(nil)
	if len(before) != maxFastHosts || before[0] != "002" || !slices.IsSorted(before) {
		t.Errorf("%d hosts from %s", len(before), before[0])
	}
	f.add(map[string]input.Types{"new": input.EDS})
	if len(f.sorted) != maxFastHosts || f.sorted[0] != "002" || f.sorted[1] != "004" || len(before) != maxFastHosts || before[1] != "003" {
		t.Errorf("%d hosts from %s, %s; before %s", len(f.sorted), f.sorted[0], f.sorted[1], before[1])
	}
}
