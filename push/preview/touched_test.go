package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
)

// rule is a DestinationRule for the Service shop/web.
func rule(t *testing.T, namespace string, connections int32) model.Record {
	return record(t, model.KindDestinationRule, namespace, "web", &networkingv1.DestinationRule{Host: web,
		TrafficPolicy: &networkingv1.TrafficPolicy{ConnectionPool: &networkingv1.ConnectionPoolSettings{
			Tcp: &networkingv1.ConnectionPoolSettings_TCPSettings{MaxConnections: connections}}}})
}

// planOf returns the report of a plan with the named objects.
func planOf(t *testing.T, has []model.Record, sees Sees, puts ...model.Record) *Report {
	t.Helper()
	b := baseOf(t, has, "a.shop", "a.pay")
	source := b.Resolver.Source()
	p, err := Of(t.Context(), b, source.Apply(5, puts, nil), sees)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range puts {
		var was []model.Record
		if old, is := source.Get(r.Meta().Key); is {
			was = append(was, old)
		}
		p.Objects = append(p.Objects, Object{ID: normal.SourceObject(r.Meta().Key), Act: Changed, Hash: HashOf(was)})
	}
	return p.Report(Usual)
}

// Touched records are those from which the resources that differ are made. The objects of the change, endpoints and
// records that the caller may not see are left out.
func TestTouched(t *testing.T) {
	endpoints := func(address string) model.Record {
		return record(t, model.KindEndpoints, "shop", "web", &model.EndpointsSpec{Hosts: []string{web},
			Endpoints: []*model.Endpoint{{Address: address, Ports: map[string]uint32{"http": 8080}}}})
	}
	other := record(t, model.KindService, "shop", "other", &model.ServiceSpec{Hosts: []string{"other.shop.svc.cluster.local"},
		Addresses: []string{"10.96.0.2"}, ExportTo: []string{"*"}, Ports: []*model.ServicePort{{Number: 80, Name: "http",
			Protocol: model.Protocol_PROTOCOL_HTTP}}})
	has := []model.Record{service(t, "*"), other, rule(t, "shop", 10), endpoints("10.0.0.1")}
	names := func(r *Report) string {
		var out []string
		for _, one := range r.Touched {
			out = append(out, one.Object+strings.Repeat("!", len(one.Hash)/33))
		}
		return strings.Join(out, " ")
	}
	for _, c := range []struct {
		name string
		put  model.Record
		sees Sees
		want string
	}{
		{"a route", route(t, "nowhere.shop.svc.cluster.local"), nil, "Service shop/web"},
		{"a rule", rule(t, "shop", 20), nil, "Service shop/web"},
		{"a Service", service(t, "shop", "pay"), nil, ""},
		{"a tenant", rule(t, "pay", 20), func(namespace string) bool { return namespace == "pay" }, ""},
		{"nothing", rule(t, "shop", 10), nil, ""},
	} {
		if got := names(planOf(t, has, c.sees, c.put)); got != c.want {
			t.Errorf("%s touches %q, want %q", c.name, got, c.want)
		}
	}
}

// A plan no longer holds once one of its objects or a touched record differs, which is named. It holds if other objects
// or endpoints differ.
// Promise: plan.md#apply-what-was-planned
func TestStale(t *testing.T) {
	has := []model.Record{service(t, "*"), rule(t, "shop", 10)}
	edited := func(r ...model.Record) []model.Record { return append(slices.Clone(has), r...) }
	another := record(t, model.KindService, "shop", "web", &model.ServiceSpec{Hosts: []string{web}, Addresses: []string{"10.96.0.7"},
		ExportTo: []string{"*"}, Ports: []*model.ServicePort{{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP}}})
	put := route(t, "nowhere.shop.svc.cluster.local")
	pool := record(t, model.KindEndpoints, "shop", "web", &model.EndpointsSpec{Hosts: []string{web},
		Endpoints: []*model.Endpoint{{Address: "10.0.0.9", Ports: map[string]uint32{"http": 8080}}}})
	saved := planOf(t, has, nil, put)
	for name, c := range map[string]struct {
		has  []model.Record
		want string
	}{
		"nothing":                   {has, ""},
		"an unrelated object":       {edited(record(t, model.KindService, "pay", "x", &model.ServiceSpec{Hosts: []string{"x.pay"}})), ""},
		"endpoints":                 {edited(pool), ""},
		"a rule of other resources": {edited(rule(t, "shop", 30)), ""},
		"the Service":               {edited(another), "Service shop/web has changed"},
		"the object, by another":    {edited(route(t, web)), "VirtualService shop/web has been created"},
		"the Service is gone":       {[]model.Record{rule(t, "shop", 10)}, "Service shop/web is deleted, or is no longer behind what changes"},
	} {
		if got := strings.Join(saved.Stale(planOf(t, c.has, nil, put)), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	with := func(touched ...Touched) *Report { return &Report{Touched: touched} }
	a, b, changed := Touched{"A x/a", "", "1"}, Touched{"B x/b", "", "1"}, Touched{"A x/a", "", "2"}
	for name, c := range map[string]struct {
		was, is *Report
		want    string
	}{
		"new":                      {with(a), with(a, b), "B x/b is new behind what changes"},
		"gone":                     {with(a, b), with(a), "B x/b is deleted, or is no longer behind what changes"},
		"more than the bound":      {&Report{Touched: []Touched{a}, MoreTouched: true}, with(b), ""},
		"changed, and the bound":   {&Report{Touched: []Touched{a}, MoreTouched: true}, with(changed), "A x/a has changed"},
		"a replica without answer": {with(a, b), &Report{Touched: []Touched{a}, Partial: []string{"x"}}, ""},
		"an object that is gone": {&Report{Objects: []Reported{{Object: "A x/a", Hash: "1"}}}, &Report{Objects: []Reported{{Object: "A x/a"}}},
			"A x/a has been deleted"},
		"an object that is refused, because it is gone": {&Report{Touched: []Touched{b}, Objects: []Reported{{Object: "A x/a", Hash: "1"}}},
			&Report{Objects: []Reported{{Object: "A x/a", Act: Refused}}}, "A x/a has been deleted"},
	} {
		if got := strings.Join(c.was.Stale(c.is), "; "); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	first, second := with(a), with(changed, b)
	first.Revision, second.Revision = 3, 4
	if got := fmt.Sprint(Merge([]*Report{first, second}).Touched); got != fmt.Sprint([]Touched{changed, b}) {
		t.Errorf("merged: %v", got)
	}
}

// A plan of a scope is about its proxies alone, and shares of the fleet are no risk.
func TestScope(t *testing.T) {
	for text, want := range map[string]Scope{"": {}, "mesh": {}, "namespace shop": {Namespace: "shop"}, "proxy a.b.shop": {Proxy: "a.b.shop"}} {
		if got, err := ParseScope(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"shop", "namespace", "namespace a b", "proxy web", "proxy .shop", "proxy web.", "mesh shop", "namespace a.b"} {
		if got, err := ParseScope(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
	for text, want := range map[string]string{"mesh": "3 of 3: NP502", "namespace shop": "2 of 2: ", "proxy b.shop": "1 of 1: ", "proxy c.shop": "0 of 0: "} {
		s, err := ParseScope(text)
		if err != nil {
			t.Fatal(err)
		}
		b := baseOf(t, []model.Record{service(t, "*")}, "a.shop", "b.shop", "a.pay")
		p, err := s.Of(t.Context(), b, b.Resolver.Source().Apply(5, []model.Record{rule(t, "shop", 3)}, nil), nil)
		if err != nil {
			t.Fatal(err)
		}
		var codes []string
		for _, r := range p.Report(Usual).Risks {
			codes = append(codes, string(r.Code))
		}
		if got := fmt.Sprintf("%d of %d: %s", p.Affected(), p.Proxies, strings.Join(codes, " ")); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// A report names all affected proxies if its bounds say so, and so does the merged report.
func TestAllNames(t *testing.T) {
	var proxies []string
	for i := range 30 {
		proxies = append(proxies, fmt.Sprintf("p%d.shop", i))
	}
	b := baseOf(t, []model.Record{service(t, "*")}, proxies...)
	p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, []model.Record{rule(t, "shop", 3)}, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for within, want := range map[Bounds]int{Usual: 20, BoundsOf(true, false): 30} {
		r := p.Report(within)
		if got := len(r.Affected[0].Names); got != want {
			t.Errorf("%d names, want %d", got, want)
		}
		if got := len(Merge([]*Report{r, r}).Affected[0].Names); got != map[int]int{20: 20, 30: 60}[want] {
			t.Errorf("merged: %d names", got)
		}
	}
}

// Proxies that get the same route configuration may have had different ones. The virtual hosts that differ for any of
// them are examined.
func TestTouchedOfEachDifference(t *testing.T) {
	sidecar := record(t, model.KindSidecar, "shop", "a", &networkingv1.Sidecar{
		WorkloadSelector: &networkingv1.WorkloadSelector{Labels: map[string]string{"app": "a"}},
		Egress:           []*networkingv1.IstioEgressListener{{Hosts: []string{"./" + web}}}})
	d := &networkingv1.HTTPRouteDestination{Destination: &networkingv1.Destination{Host: web}}
	const other = "other.shop.svc.cluster.local"
	has := []model.Record{service(t, "*"), sidecar,
		record(t, model.KindService, "shop", "other", &model.ServiceSpec{Hosts: []string{other}, Addresses: []string{"10.96.0.2"},
			ExportTo: []string{"*"}, Ports: []*model.ServicePort{{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP}}}),
		record(t, model.KindVirtualService, "shop", "other", &networkingv1.VirtualService{Hosts: []string{other},
			Http: []*networkingv1.HTTPRoute{{Route: []*networkingv1.HTTPRouteDestination{d}}}})}
	b := baseWith(t, has, func(n *view.Node) { n.Labels = map[string]string{"app": n.Name} }, "a.shop", "b.shop", "c.shop")
	c := b.Resolver.Source().Apply(5, []model.Record{route(t, "nowhere.shop.svc.cluster.local")}, []model.Key{sidecar.Meta().Key})
	p, err := Of(t.Context(), b, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.Touched, func(one Touched) bool { return one.Object == "VirtualService shop/other" }) {
		t.Errorf("%d views touch %+v", len(p.Views), p.Touched)
	}
}
