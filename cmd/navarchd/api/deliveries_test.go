package api

import (
	"testing"
	"time"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/ledger"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/store/model"
)

// A wait for an object lists the refusals of its change, and those of what is made of it however old they are. It does
// not list those of other changes.
func TestRefusalsOfADelivery(t *testing.T) {
	d, err := readDelivery(authz.Caller{}, map[string][]string{"revision": {"30"}, "object": {"Service shop/web"}})
	if err != nil {
		t.Fatal(err)
	}
	web, other := model.Place{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "web"}, Field: "spec"},
		model.Place{Key: model.Key{Kind: model.KindService, Namespace: "shop", Name: "other"}}
	for i, one := range []struct {
		objects []model.Place
		want    bool
	}{{nil, false}, {[]model.Place{other, web}, false}, {[]model.Place{web, other}, true}} {
		if d.causes(one.objects) != one.want {
			t.Errorf("objects %d: want %v", i, one.want)
		}
	}
	at := time.Unix(100, 0)
	change := ledger.Target{Span: model.Span{First: 20, Last: 22, Since: at}}
	coalesced := change
	coalesced.Counts.Refused = 1
	for _, one := range []struct {
		target ledger.Target
		since  int64
		want   bool
	}{{ledger.Target{}, 20, false}, {change, 19, false}, {change, 20, true}, {change, 22, true}, {change, 23, false}, {coalesced, 23, true},
		{coalesced, 19, false}} {
		if got := spanOf(one.target).refused(one.since); got != one.want {
			t.Errorf("a refusal since %d for %+v: %v", one.since, one.target, got)
		}
	}
	whole := delivery{}
	for _, one := range []struct {
		of   delivery
		last time.Time
		made []model.Place
		want bool
	}{{d, at, []model.Place{other, web}, true}, {d, at, []model.Place{other}, false}, {d, at, nil, true},
		{d, at.Add(-1), []model.Place{web}, false},
		{whole, at, []model.Place{other}, true}, {whole, at.Add(-1), []model.Place{other}, false}} {
		if got := spanOf(change).withheld(one.of, quarantine.Withheld{Last: one.last, Objects: one.made}); got != one.want {
			t.Errorf("withheld since %v, made of %v: %v", one.last, one.made, got)
		}
	}
}
