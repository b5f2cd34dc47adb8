// Package describe describes a Pod, workload, service, gateway, host or route: the configuration that proxies have for
// it, and the Kubernetes object that causes each fact. The facts come from the plan, which is the computed
// configuration of the proxies, and from the snapshot of all records. A view is the part of the plan that proxies with
// equal inputs share. The scope of a proxy is the set of hosts that it may use.
//
// Owns: nothing.
// Reads: a plan (Source), a snapshot of all records, the planned resources.
// Never: computes configuration itself; names an object that the caller may not see, unless the object affects a
// visible proxy.
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

// Nouns lists all kinds of subjects, the valid values of Query.Noun. It must not be changed.
var Nouns = []string{Pod, Workload, Service, Gateway, Host, Route}

// The kinds of subjects, values of Query.Noun.
const (
	Pod      = "pod"
	Workload = "workload"
	Service  = "service" // a Service or a ServiceEntry
	Gateway  = "gateway" // a Gateway of Istio
	Host     = "host"
	Route    = "route" // a VirtualService
)

// Query selects a subject, and the extent of its description.
type Query struct {
	Noun string // one of Nouns
	// Namespace is the namespace of the subject. It may be empty only for a host. It also completes the name of a host
	// if the name has no dot. If it is empty, each client's own namespace completes the name.
	Namespace string
	Name      string // name of the subject, not empty; for a host, a full name or a short one
	// Host is only for a Pod or workload. It is the host that is described in full, as the proxy reaches the host. If
	// it is empty, the description has a line for each host.
	Host string
	// From limits the described clients to one proxy. It is NAME.NAMESPACE or the proxy's node id; empty: all visible
	// clients. It must be empty for a Pod or workload.
	From  string
	Limit int // maximum number of listed hosts of a Pod's or workload's proxy, up to MaxHosts; 0: DefaultHosts
}

// Bounds of a description.
const (
	DefaultHosts = 30  // listed hosts of a proxy for a zero Query.Limit
	MaxHosts     = 500 // largest valid Query.Limit, and number of hosts of a proxy that the description of a Gateway reads
	maxText      = 253 // length of a name, in bytes
	maxViews     = 200 // views of clients that are read
	maxServers   = 200 // views of workloads that are read
	maxNames     = 10  // proxies that a group names, and objects that are suggested
	maxPods      = 50  // Pods of a workload
	maxClaimed   = 20  // hosts of a VirtualService
	maxFacts     = 200 // facts of one section
)

// Check returns nil for a valid query. For an invalid query, the error describes the first of these faults:
//
//   - The noun is unknown.
//   - The name is empty, or the namespace is empty although the subject is not a host.
//   - Host or From is set for a noun that excludes the field.
//   - A text is too long: the limit is 253 bytes for Name, Namespace and Host, and 507 bytes for From.
//   - Limit is negative or above MaxHosts.
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
		return errors.New("from: not for a pod or a workload")
	case len(q.Name) > maxText:
		return fmt.Errorf("name: want at most %d bytes", maxText)
	case len(q.Namespace) > maxText:
		return fmt.Errorf("namespace: want at most %d bytes", maxText)
	case len(q.Host) > maxText:
		return fmt.Errorf("host: want at most %d bytes", maxText)
	case len(q.From) > 2*maxText+1:
		return fmt.Errorf("from: want at most %d bytes", 2*maxText+1)
	case q.Limit < 0 || q.Limit > MaxHosts:
		return fmt.Errorf("limit: want a number from 0 to %d", MaxHosts)
	}
	return nil
}

// Part is a description by the proxies of one replica, or the merged description of several (Merge).
type Part struct {
	// Objects are the objects with the query's name. For a workload, the list of its Pods is one further Object. For a
	// host, Objects is empty.
	Objects []Object `json:"objects,omitempty"`
	// Groups describe proxies. They are sorted by side (Itself, Inbound, Outbound), then by the names in Proxies.
	Groups []Group `json:"groups,omitempty"`
	// More contains sentences for humans. They state how many items were left out because of a bound. In an empty Part
	// they name objects with the query's name in other namespaces.
	More []string `json:"more,omitempty"`
}

// Object is an object with the query's name, or the list of a workload's Pods.
type Object struct {
	Object string `json:"object"` // model.Key.String, such as "Service shop/cart"; for the list, "Pods of namespace/name"
	Facts  []Fact `json:"facts"`
}

// Group contains facts that hold for all of its proxies.
type Group struct {
	Side     string    `json:"side"`              // Itself, Inbound or Outbound
	Gateway  bool      `json:"gateway,omitempty"` // true: all proxies are gateways; false: no proxy is a gateway
	Proxies  []string  `json:"proxies"`           // NAME.NAMESPACE of at most 10 proxies, sorted
	Total    int       `json:"total"`             // number of all proxies of the group; of merged groups, the sum
	Sections []Section `json:"sections"`          // at least one; Of makes no section without facts
}

// The sides of a Group.
const (
	Itself   = "proxy"    // identity of the proxy
	Inbound  = "inbound"  // treatment of requests to the proxy's workload; for a gateway, to its own Pod
	Outbound = "outbound" // treatment of requests of the proxy's workload; for a gateway, of all forwarded requests
)

// Section is a named list of facts. It has at most 200 facts. If more facts are known, one further Fact with the
// subject "..." states the number of those left out.
type Section struct {
	Name  string `json:"name"` // heading for humans, such as "services"
	Facts []Fact `json:"facts"`
}

// Fact is one line of a description, for humans.
type Fact struct {
	Subject string `json:"subject"` // the part of the described thing, such as "port 80"
	Text    string `json:"text"`
	// By are the objects that cause the fact. Each has the form of model.Place.String: "Kind namespace/name", followed
	// by a space and the field if the field is known. Empty: no object causes the fact, for example because it is a
	// default.
	By []string `json:"by,omitempty"`
}

// Empty reports whether the Part has neither objects nor groups. More may still have sentences.
func (p Part) Empty() bool { return len(p.Objects)+len(p.Groups) == 0 }

// Source is a plan. *plan.Planner and *plan.Loop implement it.
type Source interface {
	// Seen returns the views of the proxies for which the function selects returns true, each with these proxies. The
	// function may run in another goroutine, before Seen returns.
	Seen(selects func(view.Node, view.View) bool) []plan.Seen
	// Origins returns the objects that determine the configuration of a view, except for hosts. It returns false if all
	// proxies of s have disconnected.
	Origins(s plan.Seen) (plan.Origins, bool)
	// HostOrigins returns the objects that determine how the proxies of a view reach hosts, in the order of names.
	// Hosts that the proxies do not have are left out. The result is nil if all proxies of s have disconnected.
	HostOrigins(s plan.Seen, names []string) []plan.HostOrigins
	// ScopeHosts returns the hosts of a view's scope, sorted by name. The result is nil if all proxies of s have
	// disconnected.
	ScopeHosts(s plan.Seen) []plan.HostName
	// ServedHosts returns the hosts of all virtual hosts of a view, sorted, each once. The result is nil if all proxies
	// of s have disconnected.
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

// Of describes a subject as far as the caller may see it. The caller sees the proxies and objects of namespaces for
// which the function sees returns true, and the objects that affect visible proxies. The parameter snapshot contains
// the records of the described objects; nil: no records. For an unknown subject, Part.Empty is true and Part.More may
// name objects of other namespaces. If the caller does not see the subject's namespace and the subject is not a host,
// the Part is zero. An error comes from Query.Check.
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

// suggest adds visible objects of other namespaces with the query's name to Part.More, up to maxNames sentences.
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

// clients returns the views of the visible clients, at most maxViews. Views with equal outbound configuration (scope
// and inputs) are joined into one view, which has the proxies of all of them.
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

// bounded returns the first views of a list, up to limit, and adds the number of further views to Part.More.
func (d *describer) bounded(all []plan.Seen, limit int, of string) []plan.Seen {
	if left := len(all) - limit; left > 0 {
		d.more("%d further configurations of %s are not described: use --from to select one proxy", left, of)
		return all[:limit]
	}
	return all
}

func (d *describer) more(format string, args ...any) {
	d.out.More = append(d.out.More, fmt.Sprintf(format, args...))
}

// add adds a group with the proxies of a view. Sections without facts are left out. Without a section, no group is
// added.
func (d *describer) add(side string, s plan.Seen, sections ...Section) {
	g := Group{Side: side, Total: len(s.Nodes), Gateway: s.View.Scope.Kind == view.Router}
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

// named returns the records with the query's namespace and name, of all clusters, sorted by key.
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

// at returns "Kind namespace/name field" for an object, without the last space if the field is empty.
func at(key model.Key, field string) string { return model.Place{Key: key, Field: field}.String() }

// Unknown returns the message for a valid query whose description is empty.
func (q Query) Unknown() string {
	switch {
	case q.Noun == Host && q.From != "":
		return fmt.Sprintf("the proxy %q is not connected, or does not have the host %q", q.From, q.Name)
	case q.Noun == Host:
		return fmt.Sprintf("no visible proxy has the host %q", q.Name)
	case q.Noun == Pod || q.Noun == Workload:
		return fmt.Sprintf("no proxy and no record of the %s %q of namespace %q is known", q.Noun, q.Name, q.Namespace)
	}
	return fmt.Sprintf("there is no %s %q in namespace %q", kindOf[q.Noun], q.Name, q.Namespace)
}

// kindOf maps nouns to the kinds of their objects, for messages.
var kindOf = map[string]string{Service: "Service or ServiceEntry", Gateway: "Gateway", Route: "VirtualService"}
