// Package describe describes a Pod, workload, service, gateway, host or route from the plan: the configuration that
// proxies have of it, and the object behind each fact.
//
// Owns: nothing.
// Reads: a plan (Source), the snapshot at which it was made, the planned resources.
// Never: decides anything of its own; names an object that neither decided for a visible proxy nor is visible itself.
package describe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Nouns are the kinds of subjects.
var Nouns = []string{Pod, Workload, Service, Gateway, Host, Route}

// The kinds of subjects.
const (
	Pod      = "pod"
	Workload = "workload"
	Service  = "service" // a Service or a ServiceEntry
	Gateway  = "gateway" // a Gateway of Istio
	Host     = "host"
	Route    = "route" // a VirtualService
)

// Query selects a subject.
type Query struct {
	Noun      string
	Namespace string // of the subject; of a host: the namespace that completes a short name
	Name      string
	// Host: of a Pod or workload, the one host that is described in full; empty: a line for each host.
	Host string
	// From limits the clients to one proxy, NAME.NAMESPACE; empty: all that are visible.
	From  string
	Limit int // of the hosts of a proxy; 0: DefaultHosts
}

// Bounds of a description.
const (
	DefaultHosts = 30
	MaxHosts     = 500
	maxText      = 253 // the longest name, in bytes
	maxViews     = 200 // views of clients that are read
	maxServers   = 200 // views of workloads that are read
	maxNames     = 10  // proxies that a group names, and objects that are suggested
	maxPods      = 50  // Pods of a workload
	maxClaimed   = 20  // hosts of a VirtualService
	maxFacts     = 200 // facts of one section
)

// Check returns an error that names the parameter of a query that is not valid.
func (q Query) Check() error {
	switch {
	case !slices.Contains(Nouns, q.Noun):
		return fmt.Errorf("noun=%.20q: want one of %s", q.Noun, strings.Join(Nouns, ", "))
	case q.Name == "":
		return errors.New("name: want the name of the subject")
	case q.Namespace == "" && q.Noun != Host:
		return errors.New("namespace: want the namespace of the subject")
	case q.Host != "" && q.Noun != Pod && q.Noun != Workload:
		return errors.New("host: only for a pod or a workload")
	case q.From != "" && (q.Noun == Pod || q.Noun == Workload):
		return errors.New("from: not for a pod or a workload, which is described itself")
	case max(len(q.Name), len(q.Namespace), len(q.Host)) > maxText || len(q.From) > 2*maxText+1:
		return fmt.Errorf("a name has at most %d bytes", maxText)
	case q.Limit < 0 || q.Limit > MaxHosts:
		return fmt.Errorf("limit: want a number from 0 to %d", MaxHosts)
	}
	return nil
}

// Part is a description: of the proxies of one replica, or merged.
type Part struct {
	// Objects are the objects that the query names.
	Objects []Object `json:"objects,omitempty"`
	Groups  []Group  `json:"groups,omitempty"`
	// More says what is left out because of a bound.
	More []string `json:"more,omitempty"`
}

// Object is an object that a query names.
type Object struct {
	Object string `json:"object"` // "Kind namespace/name"
	Facts  []Fact `json:"facts"`
}

// Group has facts that are equal for some proxies.
type Group struct {
	Side     string    `json:"side"`    // one of the sides below
	Proxies  []string  `json:"proxies"` // name.namespace, the first few
	Total    int       `json:"total"`   // number of the proxies
	Sections []Section `json:"sections"`
}

// The sides of a Group.
const (
	Itself   = "proxy"    // the proxy itself
	Inbound  = "inbound"  // what it does with requests to its workload
	Outbound = "outbound" // what it does with requests of its workload; for a gateway with all requests
)

// Section is a list of facts of one sort.
type Section struct {
	Name  string `json:"name"`
	Facts []Fact `json:"facts"`
}

// Fact is one line of a description.
type Fact struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
	// By are the objects that make it so, with the field where it is known; empty: no object does, it is the default.
	By []string `json:"by,omitempty"`
}

// Empty reports whether nothing is known of the subject.
func (p Part) Empty() bool { return len(p.Objects)+len(p.Groups) == 0 }

// Source is a plan. *plan.Planner and *plan.Loop implement it.
type Source interface {
	Seen(selects func(view.Node, view.View) bool) []plan.Seen
	Origins(s plan.Seen) (plan.Origins, bool)
	HostOrigins(s plan.Seen, names []string) []plan.HostOrigins
	ServedHosts(s plan.Seen) []string
}

// describer describes one subject.
type describer struct {
	Query
	from     Source
	snapshot *mirror.Snapshot
	sees     func(namespace string) bool
	out      Part
}

// Of describes a subject by a plan, as far as the caller may see it: proxies and objects of namespaces that sees
// reports, and the objects that decide for these proxies. snapshot may be nil. Errors are those of Query.Check.
func Of(from Source, snapshot *mirror.Snapshot, q Query, sees func(namespace string) bool) (Part, error) {
	if err := q.Check(); err != nil {
		return Part{}, err
	}
	if q.Limit == 0 {
		q.Limit = DefaultHosts
	}
	if snapshot == nil {
		snapshot = mirror.Empty()
	}
	d := &describer{Query: q, from: from, snapshot: snapshot, sees: sees}
	if q.Noun != Host && !sees(q.Namespace) {
		return Part{}, nil
	}
	map[string]func(){Pod: d.pod, Workload: d.workload, Service: d.service, Gateway: d.gateway, Host: d.host, Route: d.route}[q.Noun]()
	if d.out.Groups = join(d.out.Groups); d.out.Empty() {
		d.suggest()
	}
	return d.out, nil
}

// suggest names visible objects with the name of the query in other namespaces.
func (d *describer) suggest() {
	kinds := map[string][]model.Kind{Pod: {model.KindWorkload}, Service: {model.KindService, model.KindServiceEntry},
		Gateway: {model.KindGateway}, Route: {model.KindVirtualService}}
	for _, kind := range kinds[d.Noun] {
		for r := range d.snapshot.All(kind) {
			if key := r.Meta().Key; key.Name == d.Name && d.sees(key.Namespace) && len(d.out.More) < maxNames {
				d.more("%s has this name", at(key, ""))
			}
		}
	}
	slices.Sort(d.out.More)
}

// seen returns the visible views of selected proxies.
func (d *describer) seen(selects func(view.Node, view.View) bool) []plan.Seen {
	return d.from.Seen(func(n view.Node, v view.View) bool { return d.sees(n.Namespace) && selects(n, v) })
}

// clients returns one view for each outbound side of the visible clients, at most maxViews. Each has the proxies of all
// views with this side.
func (d *describer) clients(selects func(view.Node, view.View) bool) (all []plan.Seen) {
	type side struct {
		scope  view.Scope
		inputs view.Inputs
	}
	at := map[side]int{}
	for _, s := range d.seen(func(n view.Node, v view.View) bool {
		return (d.From == "" || d.From == n.Name+"."+n.Namespace || d.From == n.ID) && selects(n, v)
	}) {
		key := side{s.View.Scope, s.View.Inputs}
		if i, known := at[key]; known {
			all[i].Nodes = append(all[i].Nodes, s.Nodes...)
			continue
		}
		at[key] = len(all)
		s.Nodes = slices.Clone(s.Nodes)
		all = append(all, s)
	}
	return d.bounded(all, maxViews, "clients")
}

// bounded returns the first views of a list, and states how many are left out.
func (d *describer) bounded(all []plan.Seen, most int, of string) []plan.Seen {
	if left := len(all) - most; left > 0 {
		d.more("%d further kinds of %s are not described: --from names one proxy", left, of)
		return all[:most]
	}
	return all
}

func (d *describer) more(format string, args ...any) {
	d.out.More = append(d.out.More, fmt.Sprintf(format, args...))
}

// add adds a group of the proxies of a view. Sections without facts are left out, and a group without sections.
func (d *describer) add(side string, s plan.Seen, sections ...Section) {
	g := Group{Side: side, Total: len(s.Nodes)}
	for _, n := range s.Nodes {
		g.Proxies = append(g.Proxies, n.Name+"."+n.Namespace)
	}
	for _, section := range sections {
		if left := len(section.Facts) - maxFacts; left > 0 {
			section.Facts = append(section.Facts[:maxFacts:maxFacts], Fact{Subject: "...", Text: fmt.Sprintf("%d more", left)})
		}
		if len(section.Facts) > 0 {
			g.Sections = append(g.Sections, section)
		}
	}
	if len(g.Sections) > 0 {
		d.out.Groups = append(d.out.Groups, g)
	}
}

// get returns a record of the snapshot by its key, or nil.
func get[R model.Record](s *mirror.Snapshot, key model.Key) (none R) {
	if r, ok := s.Get(key); ok {
		if typed, is := r.(R); is {
			return typed
		}
	}
	return none
}

// named returns the records of a kind with the name of the query, of all origins, sorted by key.
func named[R model.Record](d *describer, kinds ...model.Kind) (all []R) {
	for _, kind := range kinds {
		for r := range d.snapshot.Named(kind, d.Namespace, d.Name) {
			if typed, is := r.(R); is {
				all = append(all, typed)
			}
		}
	}
	slices.SortFunc(all, func(a, b R) int { return a.Meta().Key.Compare(b.Meta().Key) })
	return all
}

// at names an object, with a field in it if it is not empty.
func at(key model.Key, field string) string { return model.Place{Key: key, Field: field}.String() }

// Unknown says that nothing is known of the subject of a query.
func (q Query) Unknown() string {
	switch {
	case q.Noun == Host:
		return fmt.Sprintf("no visible proxy has the host %q", q.Name)
	case q.Noun == Pod || q.Noun == Workload:
		return fmt.Sprintf("no proxy and no record of the %s %q of namespace %q is known", q.Noun, q.Name, q.Namespace)
	}
	return fmt.Sprintf("there is no %s %q in namespace %q", kindOf[q.Noun], q.Name, q.Namespace)
}

// kindOf names the objects of a noun.
var kindOf = map[string]string{Service: "Service or ServiceEntry", Gateway: "Gateway", Route: "VirtualService"}
