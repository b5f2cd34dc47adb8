package preview

import (
	"cmp"
	"fmt"
	"math"
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

// Report is the form of a Plan that replicas send and tools print. Bounds limit its lists, except Objects. The numbers
// of risks and facts are limited as in meaning.Summary.
type Report struct {
	Schema   string     `json:"schema"`   // the constant Schema
	Revision int64      `json:"revision"` // revision of the snapshot that the change is applied to; after Merge, the lowest
	Objects  []Reported `json:"objects"`  // the objects of the change
	Proxies  int        `json:"proxies"`  // number of all visible proxies, affected or not
	Views    int        `json:"views"`    // number of views of these proxies before the change, affected or not
	Affected []Group    `json:"affected"` // by number of proxies, the largest first; in Plan.Report, merged views are last
	Risks    []Risk     `json:"risks"`    // in the order of meaning.Summary
	Facts    []Fact     `json:"facts"`    // in the order of meaning.Summary
	// MoreRisks and MoreFacts are the numbers of risks and facts that are left out.
	MoreRisks int `json:"more_risks,omitempty"`
	MoreFacts int `json:"more_facts,omitempty"`
	// Problems contains the problems that the change adds and removes. Problems beyond the bound are left out without a
	// count.
	Problems struct {
		New  []Found `json:"new"`
		Gone []Found `json:"gone"`
	} `json:"problems"`
	// Touched has the records from which the resources that differ are made, before the change. If MoreTouched is true,
	// further records are left out.
	Touched     []Touched `json:"touched"`
	MoreTouched bool      `json:"more_touched,omitempty"`
	// AllNames states that the groups name all of their proxies.
	AllNames bool `json:"all_names,omitempty"`
	// Seconds is the time that the plan took for its caller. Replicas leave it 0.
	Seconds float64 `json:"seconds,omitempty"`
	// Partial names the replicas that did not answer, with the reasons. If it is not empty, the numbers of proxies and
	// views are lower bounds. Plan.Report leaves it empty.
	Partial []string `json:"partial,omitempty"`
}

// Reported is one object of the change.
type Reported struct {
	Object   string  `json:"object"`         // "Kind namespace/name"
	Act      Act     `json:"act"`            // effect of the change on the object
	Hash     string  `json:"hash,omitempty"` // content before the change, for comparison; empty: the object does not exist
	Problems []Found `json:"problems,omitempty"`
}

// Found is one problem of an object.
type Found struct {
	Object   string           `json:"object"`          // "Kind namespace/name"
	Field    string           `json:"field,omitempty"` // path; empty: the whole object
	Code     problem.Code     `json:"code"`
	Severity problem.Severity `json:"severity"`
	Message  string           `json:"message"`
}

// Group is a View, a set of proxies that are affected equally. Plan.Report merges the views beyond Bounds.Groups into
// the last group. Names, Resources, More and Bootstrap of a merged group are those of its first view.
type Group struct {
	Label     string    `json:"label"`                    // see View.Label; "others" for merged views
	Namespace string    `json:"namespace"`                // namespace of the proxies; empty for merged views
	Kind      string    `json:"kind"`                     // see View.Kind; empty for merged views
	Proxies   int       `json:"proxies"`                  // number of proxies
	Names     []string  `json:"names,omitempty"`          // IDs of some of the proxies
	Resources []Altered `json:"resources"`                // some of the resources that differ
	More      int       `json:"more_resources,omitempty"` // number of further resources
	// Bytes is the size of the new versions, which are sent to each proxy. For merged views it is the largest size.
	Bytes int64 `json:"bytes"`
	// Bootstrap contains the configuration for Envoy's validation. It is nil for groups beyond Bounds.Bootstraps.
	Bootstrap *Bootstrap `json:"bootstrap,omitempty"`
}

// Altered is one resource that differs.
type Altered struct {
	Type   string `json:"type"` // xds.Type.Noun, or "agent" for a resource of the agent
	Name   string `json:"name"`
	Change string `json:"change"` // "new", "gone" or "changed"
	Bytes  int    `json:"bytes"`  // size of the new version; 0 for a removed resource
}

// Count contains the numbers of views and proxies that a risk or a fact concerns.
type Count struct {
	Views   int    `json:"views"`
	Proxies int    `json:"proxies"`
	Example string `json:"example,omitempty"` // label of one of the views
}

// Risk is a dangerous difference (meaning.Risk).
type Risk struct {
	Code     meaning.Code `json:"code"`
	Level    string       `json:"level"`            // "high" or "medium"
	Title    string       `json:"title"`            // meaning.Titles of the code
	Subjects []string     `json:"subjects"`         // the first subjects
	Others   int          `json:"others,omitempty"` // number of further subjects
	Text     string       `json:"text"`
	Objects  []string     `json:"objects,omitempty"` // objects that cause the risk, as "Kind namespace/name"
	Count
}

// Fact is a difference in the treatment of traffic (meaning.FactLine).
type Fact struct {
	Area     string   `json:"area"`             // text of meaning.Area
	Subjects []string `json:"subjects"`         // the first subjects
	Others   int      `json:"others,omitempty"` // number of further subjects
	Aspect   string   `json:"aspect,omitempty"` // see meaning.Fact
	Text     string   `json:"text"`
	Count
}

// Bounds are the maximum numbers of entries in a Report. Names and Resources apply to each group. Problems applies to
// each object, and to each list in Report.Problems. Bootstraps is the number of groups with a Bootstrap. Groups must be
// above 0. In the other fields, which must not be negative, 0 means no such entries.
type Bounds struct{ Groups, Names, Resources, Problems, Bootstraps int }

// BoundsOf returns Usual with changes. If named is set, names of proxies are not bounded and groups are not merged. If
// validated is set, Bootstraps is 8, for Envoy's validation.
func BoundsOf(named, validated bool) Bounds {
	b := Usual
	if named {
		b.Groups, b.Names = math.MaxInt, math.MaxInt
	}
	if validated {
		b.Bootstraps = 8
	}
	return b
}

// Usual are the default bounds, without bootstraps.
var Usual = Bounds{Groups: 500, Names: 20, Resources: 100, Problems: 200}

// Report returns the plan as a Report. Groups beyond within.Groups are merged into the last group. Groups beyond
// Usual.Groups have no Resources, whatever the bounds, because a reply has room for so many resources only. The Report
// shares slices with the plan.
func (p *Plan) Report(within Bounds) *Report {
	r := &Report{Schema: Schema, Revision: p.Revision, Proxies: p.Proxies, Views: p.AllViews,
		Affected: []Group{}, Risks: []Risk{}, Facts: []Fact{}, MoreRisks: p.Summary.MoreRisks, MoreFacts: p.Summary.MoreFacts,
		Touched: append([]Touched{}, p.Touched...), MoreTouched: p.MoreTouched, AllNames: within.Names == math.MaxInt}
	for _, one := range p.Summary.Risks {
		r.Risks = append(r.Risks, Risk{one.Code, one.Level.String(), meaning.Titles[one.Code], one.Named, one.Others, one.Text, one.Objects,
			Count{one.Views, one.Proxies, one.Example}})
	}
	for _, one := range p.Summary.Facts {
		r.Facts = append(r.Facts, Fact{one.Area.String(), one.Named, one.Others, one.Aspect, one.Text,
			Count{one.Views, one.Proxies, one.Example}})
	}
	for _, o := range p.Objects {
		r.Objects = append(r.Objects, Reported{o.ID.String(), o.Act, o.Hash, cutTo(ofObjects(o.Problems), within.Problems)})
	}
	for i := range p.Views {
		if i == Usual.Groups {
			within.Resources = 0
		}
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

// group returns the view as a Group, without a Bootstrap.
func (v *View) group(within Bounds) Group {
	g := Group{Label: v.Label, Namespace: v.Namespace, Kind: v.Kind, Proxies: len(v.Proxies), Bytes: v.Bytes,
		Resources: []Altered{}}
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

// cutTo returns the first n elements, or all elements if there are fewer.
func cutTo[T any](all []T, n int) []T { return all[:min(n, len(all))] }

// ofObjects returns problems of objects in the form of a Report.
func ofObjects(all []object.Problem) []Found {
	found := []Found{}
	for _, p := range all {
		found = append(found, Found{p.ID.String(), p.Field, p.Code, p.Severity, p.Message})
	}
	return found
}

// ofRecords returns problems of records in the form of a Report.
func ofRecords(all []model.Problem) []Found {
	found := []Found{}
	for _, p := range all {
		found = append(found, Found{p.Key.String(), p.Field, p.Code, p.Severity, p.Message})
	}
	return found
}

// Refused reports whether at least one object has the Act Refused. For such changes, callers of Of plan nothing.
func (r *Report) Refused() bool {
	return slices.ContainsFunc(r.Objects, func(o Reported) bool { return o.Act == Refused })
}

// Count returns the numbers of affected proxies and of their groups, and the bytes sent to all affected proxies
// together. If groups were merged by Report, views is a lower bound and bytes is an upper bound.
func (r *Report) Count() (proxies, views int, bytes int64) {
	for _, g := range r.Affected {
		proxies, bytes = proxies+g.Proxies, bytes+g.Bytes*int64(g.Proxies)
	}
	return proxies, len(r.Affected), bytes
}

// Merge returns the merged report of several replicas, each of which has other proxies. all must not be empty. Objects
// are those of the first report, and Revision is the lowest. Proxies, Views, MoreRisks and MoreFacts are sums. Counts
// of equal risks, facts and groups are added. Problems and Partial contain the elements of all reports. The risk that a
// patch changes no resource remains only if all reports have it. Risks and facts have the order of meaning.Summary, and
// groups are sorted by number of proxies, the largest first. Merge applies no Bounds, except Usual.Names unless the
// first report has AllNames. Groups without Resources are equal if their numbers of resources and bytes are. Merge does
// not change the reports, and shares slices with them.
func Merge(all []*Report) *Report {
	sum := *all[0]
	sum.Affected, sum.Partial, sum.Facts, sum.Touched = nil, nil, slices.Clone(sum.Facts), newest(all)
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
		sum.Partial, sum.MoreTouched = append(sum.Partial, r.Partial...), sum.MoreTouched || r.MoreTouched
		for _, g := range r.Affected {
			key := fmt.Sprint(g.Namespace, "\x00", g.Kind, "\x00", g.Resources, g.More, g.Bytes)
			if have := groups[key]; have != nil {
				have.Proxies += g.Proxies
				if have.Names = slices.Concat(have.Names, g.Names); !sum.AllNames {
					have.Names = cutTo(have.Names, Usual.Names)
				}
				have.Label = min(have.Label, g.Label)
				continue
			}
			groups[key] = &g
		}
	}
	sum.sort()
	sum.Affected = make([]Group, 0, len(groups))
	for _, g := range groups {
		sum.Affected = append(sum.Affected, *g)
	}
	slices.SortFunc(sum.Affected, func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.Proxies, a.Proxies), strings.Compare(a.Label, b.Label), cmp.Compare(a.Bytes, b.Bytes))
	})
	return &sum
}

// sort sorts the risks and facts as meaning.Summary does. Facts of one subject keep their order.
func (r *Report) sort() {
	slices.SortStableFunc(r.Risks, func(a, b Risk) int {
		return cmp.Or(cmp.Compare(meaning.ParseLevel(b.Level), meaning.ParseLevel(a.Level)), cmp.Compare(a.Code, b.Code),
			slices.Compare(a.Subjects, b.Subjects))
	})
	slices.SortStableFunc(r.Facts, func(a, b Fact) int {
		ofA, _ := meaning.ParseArea(a.Area)
		ofB, _ := meaning.ParseArea(b.Area)
		return cmp.Or(cmp.Compare(ofA, ofB), slices.Compare(a.Subjects, b.Subjects))
	})
}

// elsewhere reports whether r states that a patch changes no resource, and another report lacks this risk. The patch
// then changes resources of another replica's proxies, so the risk does not exist.
func elsewhere(r Risk, all []*Report) bool {
	return r.Code == meaning.PatchWithoutMatch && slices.ContainsFunc(all, func(of *Report) bool {
		return !slices.ContainsFunc(of.Risks, func(other Risk) bool { return other.Code == r.Code && slices.Equal(other.Subjects, r.Subjects) })
	})
}

// joined returns the elements of both lists, each once. The counts of an element that both lists contain are added.
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

// Worst returns the highest level of the risks. Without a risk it returns 0, which is below all levels.
func (r *Report) Worst() (worst meaning.Level) {
	for _, one := range r.Risks {
		worst = max(worst, meaning.ParseLevel(one.Level))
	}
	return worst
}
