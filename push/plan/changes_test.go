package plan

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// panicking is a resolver that panics, before or after it has done half of its work.
type panicking struct {
	resolver
	at func(mirror.Change) bool
}

func (p panicking) Step(c mirror.Change) mirror.Change {
	out := p.resolver.Step(c)
	if p.at(c) {
		panic("the resolver cannot take it")
	}
	return out
}

// A change with which the resolver panics ends no replica. If a new resolver can resolve the change, the loop replaces
// the resolver and resolves all records again. If that panics too, the last plan stays, and the change is planned
// together with the next change that can be resolved.
func TestChangeThatPanics(t *testing.T) {
	for name, c := range map[string]struct {
		fresh bool // resolving from scratch panics too
	}{"the step": {false}, "the configuration": {true}} {
		t.Run(name, func(t *testing.T) {
			bad := func(s *mirror.Snapshot) bool {
				_, there := s.Get(model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "poison"})
				return there
			}
			withFault(t, nil, func(t *testing.T, l *Loop, src *testSource, log *bytes.Buffer) {
				make := l.resolver
				l.resolver = func() resolver {
					return panicking{make(), func(change mirror.Change) bool { return bad(change.New) && (c.fresh || change.Old.Revision() != 0) }}
				}
				l.resolve = l.resolver()
				src.put(shop(t)...)
				p := joins(t, l, "shop", "a", nil)
				has := func(cluster string) bool {
					return p.Set().Types[xds.Cluster].Get("outbound|81||"+cluster+".shop.svc.cluster.local") != nil
				}
				src.put(vsOf(t, "shop/poison", web, "db.shop.svc.cluster.local", ""), svc(t, "shop/one", "10.97.1.1", "http:81:HTTP"))
				pass(time.Second)
				if has("one") == c.fresh {
					t.Errorf("planned: %t", !c.fresh)
				}
				src.put(svc(t, "shop/two", "10.97.1.2", "http:81:HTTP"))
				pass(time.Second)
				if has("two") == c.fresh {
					t.Errorf("the next is planned: %t", !c.fresh)
				}
				if text := log.String(); !strings.Contains(text, "the resolver cannot take it") {
					t.Errorf("log:\n%s", text)
				}
				src.apply(nil, model.Key{Kind: model.KindVirtualService, Namespace: "shop", Name: "poison"})
				pass(time.Second)
				if !has("one") || !has("two") {
					t.Error("what was left out is not planned")
				}
				if bad := compare(p.Set(), Fresh(l.Newest(), p.View(), "")); len(bad) > 0 || l.Newest().Revision() != 4 {
					t.Errorf("it differs in %v; revision %d", bad, l.Newest().Revision())
				}
			})
		})
	}
}

// When sorting an edit into the paths of the plan panics, all other edits are planned.
func TestSortThatPanics(t *testing.T) {
	withFault(t, nil, func(t *testing.T, l *Loop, src *testSource, log *bytes.Buffer) {
		src.put(shop(t)...)
		p := joins(t, l, "shop", "a", nil)
		// The namespace is noisy: its endpoints wait for configuration, and hosts are looked up by record.
		l.inspect(func() {
			l.noisy.spaces = map[string]*bucket{"shop": {left: -noisyBurst, at: time.Now().Add(time.Hour)}}
			l.planner.fastHosts.hosts = []string{web}
		})
		bad := mirror.Edit{Old: (*model.Endpoints)(nil), New: eps(t, "shop/bad-1", "{name: http, number: 8080}", "10.1.0.7")}
		sortsBadly := l.guarded(func() { (&fastHosts{hosts: []string{web}}).drop(bad) }) != nil
		c := src.now.Apply(src.now.Revision()+1, []model.Record{svc(t, "shop/one", "10.97.1.1", "http:81:HTTP")}, nil)
		c.Edits = append([]mirror.Edit{bad}, c.Edits...)
		src.now = c.New
		src.box.Put(c)
		pass(time.Second)
		if p.Set().Types[xds.Cluster].Get("outbound|81||one.shop.svc.cluster.local") == nil || !sortsBadly || strings.Count(log.String(), "the process goes on") != 2 {
			t.Errorf("sorting panics: %t; log:\n%s", sortsBadly, log)
		}
	})
}
