package analysis

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
)

// listed is a mesh that counts the records by host that it yields.
type listed struct {
	Known
	records []model.Record
}

func (l listed) ByHost(kind model.Kind, host string) iter.Seq[model.Record] {
	return func(yield func(model.Record) bool) {
		for _, r := range l.records {
			if r.Meta().Key.Kind == kind && !yield(r) {
				return
			}
		}
	}
}

// The facts of a record are read once, not for each host that it has in common with the examined record.
func TestFactsOfACandidateAreReadOnce(t *testing.T) {
	const hosts = 20_000
	spec := &model.ServiceSpec{ExportTo: []string{"*"}}
	for i := range hosts {
		spec.Hosts = append(spec.Hosts, fmt.Sprintf("h%d.test", i))
	}
	other, err := model.New(model.Key{Kind: model.KindServiceEntry, Namespace: "b", Name: "older"}, 1, spec)
	if err != nil {
		t.Fatal(err)
	}
	mine := &model.ServiceSpec{ExportTo: []string{"*"}, Hosts: spec.Hosts, Resolution: model.Resolution_RESOLUTION_DNS}
	own, err := model.New(model.Key{Kind: model.KindServiceEntry, Namespace: "a", Name: "new"}, 2, mine)
	if err != nil {
		t.Fatal(err)
	}
	x := &examination{unit: &unit{record: own}, known: listed{records: []model.Record{other}}, gave: map[given]bool{}}
	x.run(examiners[model.KindServiceEntry])
	if len(x.gave) > 8 {
		t.Errorf("the facts of one record were read %d times", len(x.gave))
	}
	if len(x.problems) == 0 {
		t.Error("no warning of hosts that the older ServiceEntry has")
	}
}

// Hosts of a Gateway are found as by a comparison with each.
func TestServedHosts(t *testing.T) {
	var servers []*networkingv1.Server
	names := []string{"a.test", "*.b.test", "x/c.test", "./d.test", "*-e.test", "y/f.test", "a.b.test", "*.g.h.test"}
	for _, n := range names {
		servers = append(servers, &networkingv1.Server{Hosts: []string{n}})
	}
	hosts := []string{"a.test", "*.test", "*", "a.b.test", "b.test", "*.b.test", "*.a.b.test", "c.test", "d.test", "f.test", "x-e.test",
		"*-x-e.test", "e.test", "*.h.test", "g.h.test", "*.g.h.test", "z.g.h.test", "*.none", "est", ""}
	for _, namespace := range []string{"x", "own", "other"} {
		s := servedBy(servers, "own", namespace)
		for _, h := range hosts {
			want := false
			for _, n := range names {
				to, name := model.ServerHost(n, "own")
				want = want || (to == "" || to == namespace) && (name == h || model.Covers(name, h) || model.Covers(h, name))
			}
			if got := s.has(h); got != want {
				t.Errorf("host %q for namespace %s: served %v, want %v", h, namespace, got, want)
			}
		}
	}
}

// A Gateway and a VirtualService of many hosts are not compared host by host.
func BenchmarkAttackGatewayHosts(b *testing.B) {
	server, hosts := &networkingv1.Server{}, []string{}
	for i := range 20_000 {
		server.Hosts = append(server.Hosts, fmt.Sprintf("g%d.test", i))
		hosts = append(hosts, fmt.Sprintf("*.v%d.test", i))
	}
	for b.Loop() {
		s := servedBy([]*networkingv1.Server{server}, "a", "a")
		for _, h := range hosts {
			if s.has(h) {
				b.Fatal(h)
			}
		}
	}
}

// Lists of namespaces are compared as each name with each.
func TestCommonNamespaces(t *testing.T) {
	lists := [][]string{nil, {"*"}, {"~"}, {"a"}, {"a", "b", "c"}, {"b", "d"}, {"c", "d"}, {"e"}}
	for _, a := range lists {
		for _, b := range lists {
			for _, ignored := range [][]string{nil, {"a"}, {"b", "c"}} {
				want := false
				out := " ~ " + strings.Join(ignored, " ") + " "
				for _, x := range a {
					for _, y := range b {
						want = want || !strings.Contains(out, " "+x+" ") && !strings.Contains(out, " "+y+" ") && (x == y || x == "*" || y == "*")
					}
				}
				if got := common(a, b, ignored...); got != want {
					t.Errorf("%v and %v without %v: %v", a, b, ignored, got)
				}
			}
		}
	}
}
