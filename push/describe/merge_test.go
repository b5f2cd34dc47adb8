package describe

import (
	"fmt"
	"slices"
	"testing"
)

// Groups of several replicas with equal facts are one group with the sum of their proxies; other groups stay apart.
func TestMerge(t *testing.T) {
	group := func(side, text string, total int, proxies ...string) Group {
		facts := []Fact{{"x", text, []string{"Service a/b spec.x"}}}
		return Group{Side: side, Proxies: proxies, Total: total, Sections: []Section{{"s", facts}}}
	}
	object := Object{"Service a/b", []Fact{{"hosts", "b", []string{"Service a/b"}}}}
	got := Merge([]Part{
		{[]Object{object}, []Group{group(Outbound, "1", 2, "b.a", "c.a"), group(Inbound, "1", 1, "a.a")}, []string{"more"}},
		{[]Object{object}, []Group{group(Outbound, "1", 1, "a.a"), group(Outbound, "2", 1, "d.a")}, []string{"more"}},
	})
	var groups []string
	for _, g := range got.Groups {
		groups = append(groups, fmt.Sprint(g.Side, g.Total, g.Proxies))
	}
	if want := []string{"inbound1 [a.a]", "outbound3 [a.a b.a c.a]", "outbound1 [d.a]"}; !slices.Equal(groups, want) {
		t.Errorf("%q, want %q", groups, want)
	}
	for by, want := range map[string]string{"Service a/b": "Service a/b", "VirtualService a/spec spec": "VirtualService a/spec",
		"MeshConfig data.mesh.defaultTrafficPolicy": "MeshConfig", "Gateway a/b in cluster c spec.servers[0]": "Gateway a/b in cluster c"} {
		if object := withoutField(by); object != want {
			t.Errorf("%q is of %q, want %q", by, object, want)
		}
	}
	if len(got.Objects) != 1 || len(got.More) != 1 || !slices.Equal(got.Named(), []string{"Service a/b"}) {
		t.Errorf("%+v, %q", got, got.Named())
	}
}

// Gateways are not joined with other proxies: a request begins at another proxy than at a gateway.
func TestGatewaysStayApart(t *testing.T) {
	group := func(gateway bool, proxy string) Group {
		return Group{Side: Outbound, Gateway: gateway, Total: 1, Proxies: []string{proxy}, Sections: []Section{{Name: "host b.a"}}}
	}
	got := Merge([]Part{{Groups: []Group{group(true, "gw.a"), group(false, "web-0.a")}}, {Groups: []Group{group(false, "web-1.a")}}})
	if len(got.Groups) != 2 || got.Groups[0].Gateway == got.Groups[1].Gateway {
		t.Errorf("%+v", got.Groups)
	}
}

// A workload is described by the proxies of its Pods, also if they state neither the workload nor its labels.
func TestWorkloadByItsPods(t *testing.T) {
	planner := meshOf(t, []string{"mesh.yaml"}, [4]string{"api-1.shop", "sidecar", "10.1.2.1", `"x": "y"`})
	part, err := Of(planner, planner.Snapshot(), Query{Noun: Workload, Namespace: "shop", Name: "api"}, all)
	if err != nil || !slices.ContainsFunc(part.Groups, func(g Group) bool { return g.Side == Itself && g.Proxies[0] == "api-1.shop" }) {
		t.Errorf("%v: %s", err, textOf(part))
	}
}
