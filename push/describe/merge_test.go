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
