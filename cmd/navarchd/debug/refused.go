package debug

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"navarch.io/navarch/cmd/navarchd/debug/authz"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/quarantine"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// refused returns one problem for each refused version of a resource, with the number of proxies that refused it. The
// problem's Object is the likeliest source of the resource, if its sources are known.
func refused(refusals []serve.Refusal) []inspect.Problem {
	type version struct {
		t             xds.Type
		name, version string
	}
	refusals = slices.SortedFunc(slices.Values(refusals), func(a, b serve.Refusal) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Version, b.Version))
	})
	at, proxies := map[version]int{}, map[version]int{}
	first := map[version]string{}
	var all []inspect.Problem
	for _, r := range refusals {
		key := version{r.Type, r.Name, r.Version}
		if proxies[key]++; proxies[key] > 1 {
			all[at[key]].Proxies = proxies[key]
			all[at[key]].Location = fmt.Sprintf("proxy %s and %d more", first[key], proxies[key]-1)
			continue
		}
		at[key], first[key] = len(all), r.Node
		one := inspect.Problem{Object: r.Type.Noun() + " " + r.Name, Location: "proxy " + r.Node, Code: problem.Refused,
			Analyzer: problem.RefusedByProxies, Severity: problem.Error, Proxies: 1,
			Message: fmt.Sprintf("%s %s was refused; its last good version stays in use: %s", r.Type.Noun(), r.Name, r.Text)}
		all = append(all, madeBy(one, r.Objects))
	}
	return all
}

// madeBy attributes a problem to the first element of objects, the likeliest source of the resource. The others become
// Related. Without objects, madeBy returns the problem unchanged.
func madeBy(p inspect.Problem, objects []model.Place) inspect.Problem {
	if len(objects) > 0 {
		p.Object, p.Field = model.Place{Key: objects[0].Key}.String(), objects[0].Field
		p.Related = Places(objects[1:])
	}
	return p
}

// withheld returns one problem for each version of a resource that is withheld from a view (the proxies with equal
// configuration). It leaves out namespaces that the caller may not see. The problem's Object is the likeliest source of
// the resource, if its sources are known.
func withheld(views []quarantine.Withheld, sees authz.Visible) (all []inspect.Problem) {
	for _, w := range views {
		if !sees.Of(w.Namespace) {
			continue
		}
		from := "proxies"
		if named := slices.DeleteFunc(slices.Clone(w.Envoys), func(v string) bool { return v == "" }); len(named) > 0 {
			from += " of Envoy " + strings.Join(named, ", ")
		}
		by := "distinct identities"
		if w.Identity != "" {
			from, by = from+" of "+w.Identity, "of their credentials"
		}
		one := inspect.Problem{Object: w.Type.Noun() + " " + w.Name, Location: "view " + w.View, Code: problem.Refused,
			Analyzer: problem.VersionWithheld, Severity: problem.Error, Proxies: w.RefusedBy,
			Message: fmt.Sprintf("version %s of %s %s is withheld from all %s of the view, because %d %s refused it, first at %s, last at %s: %s",
				w.Version, w.Type.Noun(), w.Name, from, w.RefusedBy, by, w.First.UTC().Format(time.RFC3339), w.Last.UTC().Format(time.RFC3339),
				cmp.Or(w.Text, "the error is not known here"))}
		all = append(all, madeBy(one, w.Objects))
	}
	return all
}
