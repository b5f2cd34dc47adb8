package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/push/meaning"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// Schema is the version of the JSON form of a Report.
const Schema = "navarch.io/plan/v1"

// Report is a Plan for readers, of bounded size. Replicas send it, and tools print it.
type Report struct {
	Schema   string     `json:"schema"`
	Revision int64      `json:"revision"`
	Objects  []Reported `json:"objects"`
	Proxies  int        `json:"proxies"` // of all views, affected or not
	Views    int        `json:"views"`   // affected or not
	Affected []Group    `json:"affected"`
	Risks    []Risk     `json:"risks"`
	Facts    []Fact     `json:"facts"`
	// MoreRisks and MoreFacts count those beyond the bounds.
	MoreRisks int `json:"more_risks,omitempty"`
	MoreFacts int `json:"more_facts,omitempty"`
	Problems  struct {
		New  []Found `json:"new"`
		Gone []Found `json:"gone"`
	} `json:"problems"`
	// Partial names the replicas that did not answer, with the reasons. Then all numbers are lower bounds.
	Partial []string `json:"partial,omitempty"`
}

// Reported is one object of the change.
type Reported struct {
	Object   string  `json:"object"` // "Kind namespace/name"
	Act      Act     `json:"act"`
	Problems []Found `json:"problems,omitempty"`
}

// Found is one problem of an object.
type Found struct {
	Object   string           `json:"object"`
	Field    string           `json:"field,omitempty"`
	Code     problem.Code     `json:"code"`
	Severity problem.Severity `json:"severity"`
	Message  string           `json:"message"`
}

// Group is a set of proxies that are affected alike.
type Group struct {
	Label     string    `json:"label"`
	Namespace string    `json:"namespace"`
	Kind      string    `json:"kind"`
	Proxies   int       `json:"proxies"`
	Names     []string  `json:"names,omitempty"` // IDs of some of the proxies
	Resources []Altered `json:"resources"`       // some of them
	More      int       `json:"more_resources,omitempty"`
	Bytes     int64     `json:"bytes"` // that one proxy is sent
	// Bootstrap has the configuration for Envoy's validation, where the report was made with bootstraps.
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`
}

// Altered is one resource that differs.
type Altered struct {
	Type   string `json:"type"` // noun of the type, or "agent"
	Name   string `json:"name"`
	Change string `json:"change"` // new, gone or changed
	Bytes  int    `json:"bytes"`  // of the new version
}

// Count tells how many views and proxies a risk or a fact is about.
type Count struct {
	Views   int    `json:"views"`
	Proxies int    `json:"proxies"`
	Example string `json:"example,omitempty"` // label of one of the views
}

// Risk is a dangerous difference (meaning.Risk).
type Risk struct {
	Code     meaning.Code `json:"code"`
	Level    string       `json:"level"` // high or medium
	Title    string       `json:"title"` // of the code
	Subjects []string     `json:"subjects"`
	Others   int          `json:"others,omitempty"` // further subjects
	Text     string       `json:"text"`
	Objects  []string     `json:"objects,omitempty"` // that decide, as "Kind namespace/name"
	Count
}

// Fact is a difference for traffic (meaning.FactLine).
type Fact struct {
	Area     string   `json:"area"`
	Subjects []string `json:"subjects"`
	Others   int      `json:"others,omitempty"` // further subjects
	Aspect   string   `json:"aspect,omitempty"`
	Text     string   `json:"text"`
	Count
}

// Bounds are the maximum numbers of entries in a Report. Bootstraps are those of the first groups.
type Bounds struct{ Groups, Names, Resources, Problems, Bootstraps int }

// Validated are the bounds with bootstraps for Envoy's validation.
func (b Bounds) Validated() Bounds {
	b.Bootstraps = 8
	return b
}

// Usual are the bounds for one caller.
var Usual = Bounds{Groups: 500, Names: 20, Resources: 100, Problems: 200}

// Report returns the plan for readers. Groups beyond the bound are merged into the last one.
func (p *Plan) Report(within Bounds) *Report {
	r := &Report{Schema: Schema, Revision: p.Revision, Proxies: p.Proxies, Views: p.AllViews,
		Affected: []Group{}, Risks: []Risk{}, Facts: []Fact{}, MoreRisks: p.Summary.MoreRisks, MoreFacts: p.Summary.MoreFacts}
	for _, one := range p.Summary.Risks {
		r.Risks = append(r.Risks, Risk{one.Code, one.Level.String(), meaning.Titles[one.Code], one.Named, one.Others, one.Text, one.Objects,
			Count{one.Views, one.Proxies, one.Example}})
	}
	for _, one := range p.Summary.Facts {
		r.Facts = append(r.Facts, Fact{one.Area.String(), one.Named, one.Others, one.Aspect, one.Text,
			Count{one.Views, one.Proxies, one.Example}})
	}
	for _, o := range p.Objects {
		r.Objects = append(r.Objects, Reported{o.ID.String(), o.Act, cutTo(ofObjects(o.Problems), within.Problems)})
	}
	for i := range p.Views {
		g := p.Views[i].group(within)
		if i < within.Bootstraps {
			g.Bootstrap = p.Views[i].bootstraps()
		}
		if len(r.Affected) < within.Groups {
			r.Affected = append(r.Affected, g)
			continue
		}
		last := &r.Affected[len(r.Affected)-1]
		last.Label, last.Namespace, last.Kind = "others", "", ""
		last.Proxies += g.Proxies
		last.Bytes = max(last.Bytes, g.Bytes)
	}
	r.Problems.New = cutTo(ofRecords(p.Problems.New), within.Problems)
	r.Problems.Gone = cutTo(ofRecords(p.Problems.Gone), within.Problems)
	return r
}

// group returns the view for readers.
func (v *View) group(within Bounds) Group {
	g := Group{Label: v.Label, Namespace: v.Namespace, Kind: v.Kind, Proxies: len(v.Proxies), Bytes: v.Bytes}
	g.Names = cutTo(v.Proxies, within.Names)
	all := slices.Concat(v.Changed, v.Agent)
	g.More = max(0, len(all)-within.Resources)
	for _, p := range cutTo(all, within.Resources) {
		a := Altered{Type: "agent", Name: p.Name, Change: "changed"}
		if p.Type != xds.Unknown {
			a.Type = p.Type.Noun()
		}
		switch {
		case p.New == nil:
			a.Change = "gone"
		case p.Old == nil:
			a.Change = "new"
		}
		if p.New != nil {
			a.Bytes = p.New.Size()
		}
		g.Resources = append(g.Resources, a)
	}
	return g
}

// cutTo returns the first n elements.
func cutTo[T any](all []T, n int) []T { return all[:min(n, len(all))] }

func ofObjects(all []object.Problem) []Found {
	found := []Found{}
	for _, p := range all {
		found = append(found, Found{p.ID.String(), p.Field, p.Code, p.Severity, p.Message})
	}
	return found
}

func ofRecords(all []model.Problem) []Found {
	found := []Found{}
	for _, p := range all {
		found = append(found, Found{p.Key.String(), p.Field, p.Code, p.Severity, p.Message})
	}
	return found
}

// Refused reports whether an object was refused, so that nothing was planned.
func (r *Report) Refused() bool {
	return slices.ContainsFunc(r.Objects, func(o Reported) bool { return o.Act == Refused })
}

// Count returns the numbers of affected proxies and of their views, and the bytes that they are sent together.
func (r *Report) Count() (proxies, views int, bytes int64) {
	for _, g := range r.Affected {
		proxies, bytes = proxies+g.Proxies, bytes+g.Bytes*int64(g.Proxies)
	}
	return proxies, len(r.Affected), bytes
}

// Merge returns the report of several replicas, each of which has proxies of its own. It needs one report at least.
func Merge(all []*Report) *Report {
	sum := *all[0]
	sum.Affected, sum.Partial = nil, nil
	sum.Risks = slices.DeleteFunc(slices.Clone(sum.Risks), func(r Risk) bool { return elsewhere(r, all) })
	groups := map[string]*Group{}
	for i, r := range all {
		if i > 0 {
			sum.Revision = min(sum.Revision, r.Revision)
			sum.Proxies, sum.Views = sum.Proxies+r.Proxies, sum.Views+r.Views
			risks := slices.DeleteFunc(slices.Clone(r.Risks), func(r Risk) bool { return elsewhere(r, all) })
			sum.Risks = joined(sum.Risks, risks, func(one *Risk) (string, *Count) {
				return fmt.Sprint(one.Code, "\x00", one.Subjects, "\x00", one.Others, "\x00", one.Text), &one.Count
			})
			sum.Facts = joined(sum.Facts, r.Facts, func(one *Fact) (string, *Count) {
				return fmt.Sprint(one.Area, "\x00", one.Subjects, "\x00", one.Others, "\x00", one.Aspect, "\x00", one.Text), &one.Count
			})
			sum.MoreRisks, sum.MoreFacts = sum.MoreRisks+r.MoreRisks, sum.MoreFacts+r.MoreFacts
			sum.Problems.New, sum.Problems.Gone = union(sum.Problems.New, r.Problems.New), union(sum.Problems.Gone, r.Problems.Gone)
		}
		sum.Partial = append(sum.Partial, r.Partial...)
		for _, g := range r.Affected {
			key := fmt.Sprint(g.Namespace, "\x00", g.Kind, "\x00", g.Resources, g.More, g.Bytes)
			if have := groups[key]; have != nil {
				have.Proxies += g.Proxies
				have.Names = cutTo(slices.Concat(have.Names, g.Names), Usual.Names)
				have.Label = min(have.Label, g.Label)
				continue
			}
			groups[key] = &g
		}
	}
	sum.Affected = make([]Group, 0, len(groups))
	for _, g := range groups {
		sum.Affected = append(sum.Affected, *g)
	}
	slices.SortFunc(sum.Affected, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Proxies, a.Proxies), strings.Compare(a.Label, b.Label), cmp.Compare(a.Bytes, b.Bytes))
	})
	return &sum
}

// elsewhere reports whether a risk of one report does not hold for the proxies of all: a patch that changes nothing at
// one replica changes something at another.
func elsewhere(r Risk, all []*Report) bool {
	return r.Code == meaning.PatchWithoutMatch && slices.ContainsFunc(all, func(of *Report) bool {
		return !slices.ContainsFunc(of.Risks, func(other Risk) bool { return other.Code == r.Code && slices.Equal(other.Subjects, r.Subjects) })
	})
}

// joined returns the elements of both lists, each once. The counts of an element in both are added.
func joined[T any](a, b []T, of func(*T) (key string, count *Count)) []T {
	a = slices.Clone(a)
	at := map[string]*Count{}
	for i := range a {
		key, count := of(&a[i])
		at[key] = count
	}
	var more []T
	for i := range b {
		key, count := of(&b[i])
		if have := at[key]; have != nil {
			have.Views, have.Proxies = have.Views+count.Views, have.Proxies+count.Proxies
			continue
		}
		more = append(more, b[i])
	}
	return append(a, more...)
}

// union returns the elements of both lists, each once, in their order.
func union[T comparable](a, b []T) []T {
	seen := map[T]bool{}
	for _, one := range a {
		seen[one] = true
	}
	for _, one := range b {
		if !seen[one] {
			seen[one], a = true, append(a, one)
		}
	}
	return a
}

// Worst returns the highest level of the risks, or 0 without a risk.
func (r *Report) Worst() (worst meaning.Level) {
	for _, level := range []meaning.Level{meaning.Medium, meaning.High} {
		if slices.ContainsFunc(r.Risks, func(one Risk) bool { return one.Level == level.String() }) {
			worst = level
		}
	}
	return worst
}
