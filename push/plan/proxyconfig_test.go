package plan

import (
	"testing"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/xds"
)

// A proxy whose ProxyConfig differs in headers or connections has listeners of its own and shares all other resources;
// for one whose ProxyConfig equals the mesh's nothing is planned. Settings that routes or clusters read make a scope,
// one for each such setting.
func TestOnlyListenersReadHeaders(t *testing.T) {
	p, shared, handles := bigPlanner(t, 50, 1)
	plain := handles[0]
	join := func(name, config string) *Handle {
		n := node("ns0", name)
		n.ProxyConfig = settings(t, config)
		return p.Join(n)
	}
	const server = `{"proxyHeaders": {"server": {"value": "own"}}}`
	var first, second *Handle
	built := measure(shared, func() { first = join("first", server) })
	count := 0
	for r := range plain.Set().Types[xds.Listener].All() {
		if first.Set().Types[xds.Listener].Get(r.Name) != r {
			count++
		}
	}
	if built.clusters+built.endpoints+built.routes+built.hosts > 0 || count < 2 || len(p.scopes) != 1 {
		t.Errorf("a proxy with a server header of its own: built %+v, %d listeners are its own, %d scopes", built, count, len(p.scopes))
	}
	for _, kind := range []xds.Type{xds.Cluster, xds.Endpoint, xds.Route} {
		if first.Set().Types[kind][manifest.Scope] != plain.Set().Types[kind][manifest.Scope] || len(own(first)) > count {
			t.Errorf("%ss are not those of the scope; its own are %q", kind.Noun(), own(first))
		}
	}
	built = measure(shared, func() { second = join("second", server) })
	if built != (work{}) || second.View() != first.View() {
		t.Errorf("another that says the same: built %+v; the view is the same: %v", built, second.View() == first.View())
	}
	var nothing *Handle
	built = measure(shared, func() { nothing = join("nothing", `{}`) })
	if built != (work{}) || nothing.View() != plain.View() || len(p.scopes) != 1 {
		t.Errorf("one that says what the mesh says: built %+v, %d scopes", built, len(p.scopes))
	}
	for i, config := range []string{`{"proxyHeaders": {"attemptCount": {"disabled": true}}}`, `{"proxyHeaders": {"attemptCount": {"disabled": true}, "server": {"value": "x"}}}`} {
		if join("counting", config); len(p.scopes) != 2 {
			t.Errorf("%d: %d scopes", i, len(p.scopes))
		}
	}
}
