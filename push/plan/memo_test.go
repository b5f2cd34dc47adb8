package plan

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"navarch.io/navarch/store/model"
)

// A memo returns its value until the plan changes. Then the value is computed once for all callers, but only after
// three times the duration of the last computation.
func TestKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k memo[string]
		made, edition := 0, int64(1)
		find := func() (string, int64) {
			made++
			at := edition
			time.Sleep(time.Second)
			return strings.Repeat("x", made), at
		}
		began := time.Now()
		ask := func(callers int, want string, took time.Duration) {
			t.Helper()
			for range callers {
				if got := k.get(edition, find); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
			if got := time.Since(began); got != took {
				t.Errorf("%q took until %v, want %v", want, got, took)
			}
		}
		ask(5, "x", time.Second)
		ask(1, "x", time.Second)
		edition = 2
		ask(5, "xx", 5*time.Second)
		time.Sleep(time.Minute)
		began, edition = time.Now(), 3
		ask(5, "xxx", time.Second)
	})
}

// The problems of the plan and the effects of patches are computed again only after a change.
func TestProblemsAndPatchesAreKept(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, l *Loop, src *testSource) {
		rule := func(mode string) model.Record {
			return rec(t, model.KindDestinationRule, "shop/web", "host: "+web+"\ntrafficPolicy: {tls: {mode: "+mode+"}}\n")
		}
		src.put(append(shop(t), rule("ISTIO_MUTUAL"),
			rec(t, model.KindEnvoyFilter, "shop/f", "configPatches: [{applyTo: CLUSTER, match: {}, patch: {operation: MERGE, value: {alt_stat_name: x}}}]"),
			rec(t, model.KindVirtualService, "shop/v", "hosts: ["+web+"]\nhttp: [{match: [{uri: {regex: '(('}}], route: [{destination: {host: "+web+"}}]}]"))...)
		pass(time.Second)
		problems := func(what string, of ...string) []Problem {
			t.Helper()
			all := l.Problems()
			if len(all) != len(of) {
				t.Fatalf("%s: %v", what, all)
			}
			for i, one := range all {
				if one.Key.String() != of[i] {
					t.Errorf("%s: %v", what, all)
				}
			}
			return all
		}
		changed := func(what string) int {
			t.Helper()
			all := l.Patches()
			if len(all) != 1 {
				t.Fatalf("%s: %v", what, all)
			}
			return all[0].Changed
		}
		const route, mutual = "VirtualService shop/v", "DestinationRule shop/web"
		before := problems("nobody has joined", route)
		if changed("nobody has joined") != 0 {
			t.Error("a patch changes what nobody has")
		}
		pass(time.Minute)
		if _ = l.Stats(); &problems("nothing has changed", route)[0] != &before[0] {
			t.Error("what is wrong was found again, and nothing has changed")
		}
		if _, err := l.Join(t.Context(), node("shop", "a"), nil); err != nil {
			t.Fatal(err)
		}
		problems("somebody has joined", route, mutual)
		if changed("somebody has joined") == 0 {
			t.Error("a patch changes nothing of what somebody has")
		}
		src.put(rule("DISABLE"))
		pass(time.Second)
		problems("a rule was put right", route)
		src.apply(nil, model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "v"})
		pass(time.Second)
		problems("a route has gone")
	})
}
