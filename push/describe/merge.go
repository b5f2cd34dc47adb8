package describe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Merge merges the parts of several replicas. Objects with the same name and equal texts of More appear once. Groups of
// one side with equal facts become one. It does not change parts; the result shares their sections.
func Merge(parts []Part) (out Part) {
	for _, p := range parts {
		for _, o := range p.Objects {
			if !slices.ContainsFunc(out.Objects, func(have Object) bool { return have.Object == o.Object }) {
				out.Objects = append(out.Objects, o)
			}
		}
		for _, text := range p.More {
			if !slices.Contains(out.More, text) {
				out.More = append(out.More, text)
			}
		}
		out.Groups = append(out.Groups, p.Groups...)
	}
	slices.SortFunc(out.Objects, func(a, b Object) int { return strings.Compare(a.Object, b.Object) })
	out.Groups = join(out.Groups)
	return out
}

// sides are the sides of groups in the order of output.
var sides = []string{Itself, Inbound, Outbound}

// join merges groups of one side with equal facts, gateways apart from other proxies, and sorts by side, then by
// proxies. Each result names at most maxNames proxies.
func join(groups []Group) (out []Group) {
	at := map[string]int{}
	for _, g := range groups {
		raw, err := json.Marshal(g.Sections)
		if err != nil {
			continue // cannot happen: strings always encode
		}
		key := fmt.Sprint(g.Side, g.Gateway, "\x00", string(raw))
		i, known := at[key]
		if !known {
			at[key] = len(out)
			g.Proxies = slices.Clone(g.Proxies)
			out = append(out, g)
			continue
		}
		out[i].Total += g.Total
		out[i].Proxies = append(out[i].Proxies, g.Proxies...)
	}
	for i := range out {
		slices.Sort(out[i].Proxies)
		out[i].Proxies = slices.Compact(out[i].Proxies)
		out[i].Proxies = out[i].Proxies[:min(len(out[i].Proxies), maxNames)]
	}
	slices.SortStableFunc(out, func(a, b Group) int {
		if a.Side != b.Side {
			return slices.Index(sides, a.Side) - slices.Index(sides, b.Side)
		}
		return slices.Compare(a.Proxies, b.Proxies)
	})
	return out
}

// Named returns all objects of a description, "Kind namespace/name" without fields, sorted, each once.
func (p Part) Named() (names []string) {
	add := func(facts []Fact) {
		for _, f := range facts {
			for _, by := range f.By {
				names = append(names, withoutField(by))
			}
		}
	}
	for _, o := range p.Objects {
		names = append(names, o.Object)
		add(o.Facts)
	}
	for _, g := range p.Groups {
		for _, s := range g.Sections {
			add(s.Facts)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// withoutField returns an object without the field in it: "Kind namespace/name field" -> "Kind namespace/name".
func withoutField(by string) string {
	for _, field := range []string{" spec", " data"} {
		if i := strings.LastIndex(by, field); i > 0 && (i+len(field) == len(by) || by[i+len(field)] == '.') {
			return by[:i]
		}
	}
	return by
}
