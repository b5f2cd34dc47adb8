package plan

import (
	"bytes"
	"testing"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// A request that makes the planner panic causes a new planner. For a while further panics of the same identity end its
// stream instead; requests of other identities are answered.
func TestRequestThatPanics(t *testing.T) {
	armed := false
	fault := func(*input.Input, view.Scope) {
		if armed {
			armed = false
			panic("the plan cannot take what is asked for")
		}
	}
	withFault(t, fault, func(t *testing.T, l *Loop, src *testSource, _ *bytes.Buffer) {
		src.put(append(shop(t), rec(t, model.KindSecret, "shop/cert", "{chain: 'eA==', trust: 'eA=='}"))...)
		identified := func(account string) *Proxy {
			n := node("shop", account)
			n.Verified = view.Identity{Namespace: "shop", Account: account}
			p, err := l.Join(t.Context(), n, nil)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		bad, good := identified("bad"), identified("good")
		panics := func(p *Proxy) bool { // whether the planner was replaced
			var before, after *Planner
			l.inspect(func() { before, armed = l.planner, true })
			p.SubscribeSecrets(t.Context(), []string{"kubernetes://cert-cacert"}, nil)
			l.inspect(func() { after, armed = l.planner, false })
			return before != after
		}
		if !panics(bad) {
			t.Fatal("the planner does not panic")
		}
		if panics(bad) {
			t.Fatal("the same identity has a planner made again at once")
		}
		if bad.Err() == nil {
			t.Error("the stream of who was not answered stays, and nobody asks again")
		}
		good.SubscribeSecrets(t.Context(), []string{"kubernetes://cert-cacert"}, nil)
		if good.Set().Types[xds.Secret].Get("kubernetes://cert-cacert") == nil {
			t.Error("another identity is not answered")
		}
		pass(searchEvery)
		bad = identified("bad")
		bad.SubscribeSecrets(t.Context(), []string{"kubernetes://cert-cacert"}, nil)
		if bad.Set().Types[xds.Secret].Get("kubernetes://cert-cacert") == nil {
			t.Error("the identity is not answered later")
		}
	})
}
