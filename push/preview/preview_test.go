package preview

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/resolve"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"

	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"
)

const web = "web.shop.svc.cluster.local"

func record(t *testing.T, kind model.Kind, namespace, name string, body proto.Message) model.Record {
	t.Helper()
	r, err := model.New(model.Key{Kind: kind, Namespace: namespace, Name: name}, 1, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// service is a Service that some namespaces see.
func service(t *testing.T, exportTo ...string) model.Record {
	return record(t, model.KindService, "shop", "web", &model.ServiceSpec{Hosts: []string{web},
		Addresses: []string{"10.96.0.1"}, ExportTo: exportTo,
		Ports: []*model.ServicePort{{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP, TargetNumber: 8080}}})
}

// route is a VirtualService that leads to a host.
func route(t *testing.T, to string) model.Record {
	d := &networkingv1.HTTPRouteDestination{Destination: &networkingv1.Destination{Host: to}}
	return record(t, model.KindVirtualService, "shop", "web", &networkingv1.VirtualService{Hosts: []string{web},
		Http: []*networkingv1.HTTPRoute{{Route: []*networkingv1.HTTPRouteDestination{d}}}})
}

// baseOf is the plan of records for proxies, named "name.namespace".
func baseOf(t *testing.T, records []model.Record, proxies ...string) *plan.Base {
	t.Helper()
	return baseWith(t, records, func(*view.Node) {}, proxies...)
}

// baseWith is baseOf for nodes with further settings.
func baseWith(t *testing.T, records []model.Record, set func(*view.Node), proxies ...string) *plan.Base {
	t.Helper()
	r := resolve.New(nil)
	s := r.Step(mirror.Diff(mirror.Empty(), mirror.Empty().Apply(4, records, nil).New)).New
	p := plan.New(plan.Settings{Snapshot: s})
	for _, of := range proxies {
		name, namespace, _ := strings.Cut(of, ".")
		n := view.Node{ID: of, Name: name, Namespace: namespace, Domain: view.DefaultDomain, Caps: xds.StockCaps | xds.CapIdentity}
		if strings.HasPrefix(name, "edge") {
			n.Kind = view.Router
		}
		set(&n)
		p.Join(n)
	}
	return &plan.Base{Planner: p, Resolver: r}
}

// Proxies that are affected alike are one view. Views with more proxies come first. Proxies without a difference are in
// none, and a caller who may not see a namespace gets no view, number or problem of it.
func TestViews(t *testing.T) {
	proxies := []string{"a.shop", "b.shop", "c.shop", "a.pay", "edge.shop"}
	change := func(b *plan.Base) mirror.Change {
		return b.Resolver.Source().Apply(5, []model.Record{service(t, "shop"), route(t, "nowhere.shop.svc.cluster.local")}, nil)
	}
	lines := func(sees Sees) string {
		b := baseOf(t, []model.Record{service(t, "*")}, proxies...)
		p, err := Of(t.Context(), b, change(b), sees)
		if err != nil {
			t.Fatal(err)
		}
		out := []string{fmt.Sprintf("revision %d, %d of %d proxies, %d views", p.Revision, p.Affected(), p.Proxies, p.AllViews)}
		for _, v := range p.Views {
			var changed []string
			for _, pair := range v.Changed {
				changed = append(changed, fmt.Sprintf("%v %s %v %v", pair.Type, pair.Name, pair.Old != nil, pair.New != nil))
			}
			out = append(out, fmt.Sprintf("%s: %v: %s", v.Label, v.Proxies, strings.Join(changed, ", ")))
		}
		for _, one := range p.Problems.New {
			out = append(out, fmt.Sprintf("new: %v", one.Key))
		}
		return strings.Join(out, "\n")
	}
	all := `revision 4, 4 of 5 proxies, 3 views
shop/sidecar, such as a: [a.shop b.shop c.shop]: RDS 80 true true
pay/sidecar, such as a: [a.pay]: CDS outbound|80||web.shop.svc.cluster.local true false, EDS outbound|80||web.shop.svc.cluster.local true false, LDS 0.0.0.0_80 true false, RDS 80 true false
new: VirtualService shop/web`
	if got := lines(nil); got != all {
		t.Errorf("%s\nwant\n%s", got, all)
	}
	pay := `revision 4, 1 of 1 proxies, 1 views
pay/sidecar, such as a: [a.pay]: CDS outbound|80||web.shop.svc.cluster.local true false, EDS outbound|80||web.shop.svc.cluster.local true false, LDS 0.0.0.0_80 true false, RDS 80 true false`
	if got := lines(func(namespace string) bool { return namespace == "pay" }); got != pay {
		t.Errorf("%s\nwant\n%s", got, pay)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	b := baseOf(t, []model.Record{service(t, "*")}, proxies...)
	if _, err := Of(ended, b, change(b), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of the context: %v", err)
	}
}

// A report is bounded, and counts what it leaves out. Reports of replicas add up, the most severe risk first.
func TestReports(t *testing.T) {
	b := baseOf(t, []model.Record{service(t, "*")}, "a.shop", "b.shop", "a.pay")
	p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, nil, []model.Key{service(t).Meta().Key}), nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Objects = []Object{{ID: object.ID{Kind: "Service", Namespace: "shop", Name: "web"}, Act: Deleted,
		Problems: []object.Problem{{Severity: problem.Warning}, {Severity: problem.Warning}}}}
	r := p.Report(Bounds{Groups: 1, Names: 1, Resources: 2, Problems: 1})
	g := r.Affected[0]
	one := len(r.Affected) == 1 && len(g.Names) == 1 && len(r.Objects[0].Problems) == 1
	if !one || g.Proxies != 3 || len(g.Resources) != 2 || g.More == 0 || g.Label != "others" {
		t.Errorf("%+v", r)
	}
	first, two := p.Report(Usual), p.Report(Usual)
	first.Partial, two.Revision = []string{"replica-3 (no answer)"}, 3
	risk := Risk{Code: "NP101", Level: "high", Count: Count{Views: 1, Proxies: 2}}
	first.Risks, two.Risks = []Risk{risk}, []Risk{risk, {Code: "NP102", Level: "medium"}}
	sum := Merge([]*Report{first, two})
	proxies, views, bytes := sum.Count()
	single, _, each := first.Count()
	if proxies != 2*single || views != 2 || bytes != 2*each || sum.Proxies != 6 || sum.Revision != 3 || len(sum.Partial) != 1 {
		t.Errorf("%+v", sum)
	}
	added := len(sum.Risks) == 2 && sum.Risks[0].Proxies == 4 && first.Risks[0].Proxies == 2
	if !added || sum.Worst() != meaning.High || two.Worst() != meaning.High {
		t.Errorf("%+v", sum.Risks)
	}
	first.Risks, two.Risks = []Risk{{Code: "NP102", Level: "medium"}}, []Risk{risk, {Code: "NP001", Level: "medium"}}
	first.Facts = []Fact{{Area: "routes", Subjects: []string{"b"}}, {Area: "policies", Subjects: []string{"a"}}}
	two.Facts = []Fact{{Area: "routes", Subjects: []string{"a"}}, {Area: "clusters", Subjects: []string{"c"}}}
	sum = Merge([]*Report{first, two})
	var order []string
	for _, one := range sum.Risks {
		order = append(order, string(one.Code))
	}
	for _, one := range sum.Facts {
		order = append(order, one.Area+" "+one.Subjects[0])
	}
	if want := "NP101 NP001 NP102 routes a routes b clusters c policies a"; strings.Join(order, " ") != want {
		t.Errorf("in order %q, want %q", order, want)
	}
	if worst := (&Report{}).Worst(); worst != 0 {
		t.Errorf("without risks: %v", worst)
	}
}

// A report that names all proxies has a group for each view, and resources in no more groups than usual.
func TestManyGroups(t *testing.T) {
	p := &Plan{}
	for i := range Usual.Groups + 2 {
		v := View{Proxies: []string{fmt.Sprintf("p%d.shop", i)}}
		v.Changed = make([]Pair, Usual.Resources+1)
		p.Views = append(p.Views, v)
	}
	r := p.Report(BoundsOf(true, false))
	for i, g := range r.Affected {
		want := Usual.Resources
		if i >= Usual.Groups {
			want = 0
		}
		if len(g.Names) != 1 || len(g.Resources) != want || g.More != Usual.Resources+1-want || g.Resources == nil {
			t.Fatalf("group %d has %d names, %d resources and %d more", i, len(g.Names), len(g.Resources), g.More)
		}
	}
	if len(r.Affected) != len(p.Views) {
		t.Errorf("%d groups of %d views", len(r.Affected), len(p.Views))
	}
}

// A tenant reads the problems that planning its own proxies finds. Problems that planning other proxies finds may name
// what those alone see.
// Promise: plan.md#what-is-asked-of-a-running-mesh
func TestProblemsOfOwnProxies(t *testing.T) {
	entry := func(namespace, host string, exportTo string) model.Record {
		port := &model.ServicePort{Number: 443, Name: "tls", Protocol: model.Protocol_PROTOCOL_TCP}
		return record(t, model.KindServiceEntry, namespace, "e", &model.ServiceSpec{Hosts: []string{host}, External: true,
			Addresses: []string{"10.99.0.9"}, ExportTo: []string{exportTo}, Ports: []*model.ServicePort{port}})
	}
	hidden, probe := entry("victim", "hidden.example.com", "victim"), entry("evil", "probe.example.com", "*")
	hidden.Meta().Created, probe.Meta().Created = 1, 2
	for name, c := range map[string]struct {
		sees Sees
		want bool
	}{"a tenant": {func(namespace string) bool { return namespace == "evil" }, false}, "an operator": {nil, true}} {
		b := baseOf(t, []model.Record{hidden}, "a.evil", "b.victim")
		p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, []model.Record{probe}, nil), c.sees)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(fmt.Sprint(p.Problems.New), "hidden.example.com"); got != c.want {
			t.Errorf("%s reads the other entry: %v, %v", name, got, p.Problems.New)
		}
	}
}
