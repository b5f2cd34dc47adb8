package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// An edit of one rule among many, or of their order, joins one virtual host and builds one route configuration; a test
// of push/build/vhost counts the encoded rules. A virtual host may have rules of several VirtualServices, in any order.
func TestOneRuleAmongMany(t *testing.T) {
	const host = "web.shop.svc.cluster.local"
	routes := func(name string, timeouts ...int) model.Record {
		var rules []string
		for i, timeout := range timeouts {
			rules = append(rules, fmt.Sprintf("{name: %s-%d, match: [{uri: {prefix: /%d}}], timeout: %ds, route: [{destination: {host: %s}}]}", name, i, i, timeout, host))
		}
		return rec(t, model.KindVirtualService, "shop/"+name, "{hosts: ["+host+"], http: ["+strings.Join(rules, ", ")+"]}")
	}
	many := slices.Repeat([]int{1}, 500)
	shared := &pool.Pool{}
	p := New(Settings{Pool: shared, Snapshot: snapshot(svc(t, "shop/web", "10.96.0.1", "http:80:HTTP"), routes("web", many...))})
	h := p.Join(node("shop", "c-1"))
	for i := range 3 {
		many[200+i] = 2
		got := measure(shared, func() {
			p.Apply(p.Snapshot().Apply(p.Snapshot().Revision()+1, []model.Record{routes("web", many...)}, nil))
		})
		if want := (work{hosts: 1, routes: 1}); got != want {
			t.Errorf("built %+v, want %+v", got, want)
		}
	}
	if bad := p.Check(h); len(bad) > 0 {
		t.Error(bad)
	}
	specs := p.Explain(h, xds.Route, "80")
	i := slices.IndexFunc(specs, func(spec any) bool { v, is := spec.(vhost.Spec); return is && v.Host == host })
	spec := specs[i].(vhost.Spec)
	if spec.Rules.Len() != len(many) {
		t.Errorf("%d rules, want %d", spec.Rules.Len(), len(many))
	}
	var lists intern.Table[vhost.Rule]
	other := routes("other", 3).(*model.VirtualService)
	mine := spec.Rules.All()
	spec.Rules = lists.List(mine[1], vhost.Rule{VirtualService: other}, mine[0])
	f, err := spec.Fragment()
	if err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, name := range []string{"web-1", "other-0", "web-0"} {
		next := strings.Index(string(f.Bytes), name)
		if next <= at {
			t.Errorf("%s is not behind the rule before it", name)
		}
		at = next
	}
}
