package describe

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Merge merges the descriptions of several replicas. If several parts have an object, the result has the object once,
// with the facts of the first part. Objects are sorted by Object. Equal texts of More appear once. Groups with equal
// Side, Gateway and Sections become one Group, and their totals are added up. Merge does not change parts. The result
// shares facts and sections with the parts.
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

// join merges groups with equal side and equal facts, and sorts the groups by side, then by proxies. Groups of gateways
// are not merged with groups of other proxies. Each result names at most maxNames proxies.
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

// Named returns the names of all objects in a description, sorted, each once. The names are Object.Object of each
// object, and the elements of Fact.By. If an element ends in the path of a field in spec or data, the path is removed.
// A list of Pods counts as an object.
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

// withoutField returns "Kind namespace/name" for "Kind namespace/name field", if the field begins with spec or data. It
// returns other texts unchanged.
func withoutField(by string) string {
	for _, field := range []string{" spec", " data"} {
		if i := strings.LastIndex(by, field); i > 0 && (i+len(field) == len(by) || by[i+len(field)] == '.') {
			return by[:i]
		}
	}
	return by
}
