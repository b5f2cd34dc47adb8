package normal

import (
	"fmt"
	"strings"
	"testing"
)

// coversLocality is the definition of an overlap, for each two localities.
func coversLocality(wide, narrow string) bool {
	wide = strings.TrimSuffix(strings.TrimSuffix(wide, "*"), "/")
	return wide == "" || narrow == wide || strings.HasPrefix(narrow, wide+"/")
}

// Localities that overlap are found as by a comparison of each two.
func TestOverlappingLocalities(t *testing.T) {
	all := []string{"", "*", "r", "r/*", "r/z", "r/z/*", "r/z/s", "r-1", "r-1/z", "q/z/s", "q/z/t", "q/y/*", "rr"}
	for _, a := range all {
		for _, b := range all {
			for _, c := range all {
				want := ""
				list := []string{a, b, c}
				for i, l := range list {
					for _, o := range list[:i] {
						if want == "" && (coversLocality(o, l) || coversLocality(l, o)) {
							want = fmt.Sprintf("%q and %q overlap", o, l)
						}
					}
				}
				if got := overlapping(list); got != want {
					t.Errorf("%q: %q, want %q", list, got, want)
				}
			}
		}
	}
	for text, valid := range map[string]bool{"r*/z": false, "r/*/*": false, "r//z": false, "r/": false, "r/z/s/deep": true} {
		if got := overlapping([]string{text}); (got == "") != valid {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// One DestinationRule of 20,000 localities was compared for 20 s.
func BenchmarkAttackLocalities(b *testing.B) {
	list := make([]string, 20_000)
	for i := range list {
		list[i] = fmt.Sprintf("q/y%d/t", i)
	}
	for b.Loop() {
		if wrong := overlapping(list); wrong != "" {
			b.Fatal(wrong)
		}
	}
}

// A list of more namespaces than are compared is refused.
func TestManyNamespaces(t *testing.T) {
	names := make([]string, mostNamespaces+1)
	for i := range names {
		names[i] = fmt.Sprint("n", i)
	}
	for n, spoiled := range map[int]bool{mostNamespaces: false, mostNamespaces + 1: true} {
		r := &report{}
		if r.exportTo("spec.exportTo", names[:n], nil, "shop"); r.spoiled != spoiled {
			t.Errorf("%d namespaces: %v", n, r.problems)
		}
	}
}

// A VirtualService of very many labels is refused: each wildcard above its hosts is remembered.
func TestManyLabels(t *testing.T) {
	spec := func(hosts, labels int) string {
		var all []string
		for i := range hosts {
			all = append(all, fmt.Sprintf("h%d%s", i, strings.Repeat(fmt.Sprintf(".x%d", i), labels-1)))
		}
		return "{hosts: [" + strings.Join(all, ", ") + "], http: [{route: [{destination: {host: a}}]}]}"
	}
	for labels, spoiled := range map[int]bool{10: false, 40: true} {
		o := read(t, "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: a, namespace: shop}\nspec: "+spec(2000, labels))
		if r := New(Options{}).Object(o, &fake{}); r.Spoiled != spoiled || len(r.Refs) > mostLabels+10 {
			t.Errorf("2,000 hosts of %d labels: spoiled %v, %d lookups", labels, r.Spoiled, len(r.Refs))
		}
	}
}
