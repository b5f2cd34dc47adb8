package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/store/model"
)

// Risks and facts of a plan name the callers in plain text and the objects that its reader may see, and no others.
// Views with the same difference are one.
func TestJudged(t *testing.T) {
	mode := &securityv1.PeerAuthentication_MutualTLS{Mode: securityv1.PeerAuthentication_MutualTLS_STRICT}
	raw, err := proto.Marshal(&securityv1.PeerAuthentication{Mtls: mode})
	if err != nil {
		t.Fatal(err)
	}
	strict := record(t, model.KindPeerAuthentication, "istio-system", "default", &model.PolicySpec{MeshWide: true, Istio: raw})
	job := func(namespace string, mtls bool) model.Record {
		spec := &model.WorkloadSpec{Endpoint: &model.Endpoint{Address: "10.1.0.1", Mtls: mtls}}
		return record(t, model.KindWorkload, namespace, fmt.Sprintf("job-%v", mtls), spec)
	}
	records := []model.Record{service(t, "*"), job("shop", false), job("shop", true), job("pay", false)}
	risks := func(sees Sees) string {
		b := baseOf(t, records, "a.shop", "b.shop", "a.pay")
		p, err := Of(t.Context(), b, b.Resolver.Source().Apply(5, []model.Record{strict}, nil), sees)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range p.Report(Usual).Risks {
			out = append(out, fmt.Sprintf("%s %s %s: %s %v %d", r.Level, r.Code, strings.Join(r.Subjects, " "), r.Text, r.Objects, r.Proxies))
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
	all := risks(nil)
	for _, want := range []string{"high NP401", "job-false.pay", "job-false.shop", "medium NP501 PeerAuthentication istio-system/default",
		"high NP502 reach: 3 of 3 proxies"} {
		if !strings.Contains(all, want) || strings.Contains(all, "job-true") {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
	own := risks(func(namespace string) bool { return namespace == "shop" })
	if strings.Contains(own, "pay") || !strings.Contains(own, "job-false.shop") || !strings.Contains(own, "2 of 2 proxies") {
		t.Errorf("a tenant reads\n%s", own)
	}
}

// Of a route configuration those virtual hosts are compared that differ, and the facts are those of the whole.
func TestRoutesApart(t *testing.T) {
	records := []model.Record{service(t, "*"), route(t, web)}
	for i := range 300 {
		namespace := "shop"
		if i == 0 {
			namespace = "pay" // whose own proxies have a short name for it
		}
		host := fmt.Sprintf("s%d.%s.svc.cluster.local", i, namespace)
		port := &model.ServicePort{Number: 80, Name: "http", Protocol: model.Protocol_PROTOCOL_HTTP}
		spec := &model.ServiceSpec{Hosts: []string{host}, ExportTo: []string{"*"}, Ports: []*model.ServicePort{port},
			Addresses: []string{fmt.Sprintf("10.97.%d.%d", i/200, 1+i%200)}}
		records = append(records, record(t, model.KindService, namespace, fmt.Sprintf("s%d", i), spec))
	}
	b := baseOf(t, records, "a.pay", "b.bank")
	c := b.Resolver.Source().Apply(5, []model.Record{route(t, "s7.shop.svc.cluster.local")}, nil)
	p, err := Of(t.Context(), b, c, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair := p.Views[0].Changed[0]
	was, is := pair.New.Apart(pair.Old)
	if whole := pair.New.Size(); len(is) > whole/100 || len(was) > whole/100 {
		t.Errorf("%d and %d bytes of %d differ", len(was), len(is), whole)
	}
	j := newJudge(b, c, nil)
	first, second := j.decodePair(pair), j.decodePair(p.Views[1].Changed[0])
	if pair == p.Views[1].Changed[0] || first != second {
		t.Errorf("the same differences of two scopes are decoded twice:\n%q\n%q", first.versions, second.versions)
	}
	r := p.Report(Usual)
	fact := r.Facts[0]
	if len(r.Facts) != 1 || fact.Area != "routes" || !strings.Contains(fact.Text, "web.shop:80 -> s7.shop:80") || fact.Proxies != 2 {
		t.Errorf("%+v", r.Facts)
	}
}
