// Package meaning compares the configuration of one view before and after a change. A view is a group of proxies with
// equal configuration. The package reports differences that matter for traffic as facts, and dangerous differences as
// risks.
//
// The comparison is a pure function of Envoy's decoded messages (View). Each resource is converted to a model:
//
//   - a virtual host to an ordered list of rules with destinations
//   - a cluster to its TLS, balancing, limits and ejection of endpoints
//   - an assignment to its endpoints by locality
//   - a listener to filter chains with policies
//
// Two models are compared field by field. Fields outside of the model are compared by their paths in Envoy's API
// (diff.go), so that no difference is lost. The order of a list is ignored if it has no effect in Envoy. The order of
// two rules has no effect if no request can match both.
//
// # Codes
//
// The risks of one view are NP101, NP102, NP110 to NP114, NP201, NP210 to NP215, NP301 to NP303, and NP401 to NP406.
// Some need facts from the caller (View): NP401, NP406, and NP211 and NP214 for rules that a plan leaves out. The risks
// of reach are NP501 to NP504 (Reach). Callers decide NP506, NP601, NP602 and NP603.
//
// # Bounds
//
// The work is proportional to the size of the resources that differ. Some risks, such as a disappearing cluster, add
// one pass over the routes and listeners of the view. Texts are shortened to maxText runes, and a fact states at most
// maxParts differences. Over keeps at most maxLines facts and as many risks, and counts the rest. For virtual hosts
// with more than maxOrdered rules, shadowed rules are reported only by View.Unreachable. At most maxSampled removed
// rules of a virtual host are tried (NP210).
//
// Owns: nothing.  Reads: the messages of a View.  Never: changes a message; reads the snapshot or a clock.
package meaning

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// Set is the decoded configuration of a view at one time.
type Set interface {
	// Message returns the resource with a type and a name, or nil if the set lacks it. Callers must not change the
	// message.
	Message(t xds.Type, name string) proto.Message
	// All iterates over the resources of a type. Callers must not change the messages.
	All(t xds.Type) iter.Seq[proto.Message]
}

// Pair is a resource whose version differs before and after the change. Its messages are not changed.
type Pair struct {
	Type xds.Type // not xds.Unknown
	Name string
	// Old is nil for a new resource, and New is nil for a removed resource. At most one of them is nil.
	Old, New proto.Message
	// Versions are the versions of Old and New. Over may compare pairs with equal Type, Name and Versions only once,
	// unless both versions are empty.
	Versions [2]string
	// Confidential means that the messages lack confidential parts, which may differ too. If only the Versions differ,
	// a fact states that the confidential part changes.
	Confidential bool
}

// View is the configuration of one view before and after a change. Before and After are required. The other fields may
// be zero.
type View struct {
	// Label names the view in output, and Proxies counts its proxies. Only Over reads both.
	Label   string
	Proxies int

	Pairs         []Pair // the resources that differ
	Before, After Set

	// Objects returns the objects that made a resource, as "Kind namespace/name". If it is nil, risks name only the
	// objects that the messages name.
	Objects func(t xds.Type, name string) []string
	// Edited are the objects of the change, as "Kind namespace/name". Risks name them as the cause of differences. nil:
	// they are unknown.
	Edited []string
	// Exists reports whether an object "Kind namespace/name" exists after the change. nil: all objects exist.
	Exists func(object string) bool
	// PlainCallers are the workloads that are known to call in plain text, as "name.namespace".
	PlainCallers []string
	// Refused returns the reason why the view's proxies may not have a Secret after the change; empty: they may. nil:
	// the proxies may have all Secrets.
	Refused func(secret string) string
	// Unreachable returns the routes that the plan after the change omits from a virtual host, because an earlier rule
	// matches everything (vhost.Spec.Unreachable). nil: these routes are unknown.
	Unreachable func(routeConfiguration, virtualHost string) []*routev3.Route
}

// Area is the part of the configuration that a fact is about.
type Area uint8

// The areas, in the order in which facts are listed.
const (
	Routes Area = iota
	Clusters
	Endpoints
	Inbound
	Policies
	Listeners
	Secrets
	Extensions
	NumAreas // the number of areas; not an area
)

// areas are the names of the areas.
var areas = [NumAreas]string{"routes", "clusters", "endpoints", "inbound", "policies", "listeners", "Secrets", "extensions"}

// String returns the name of the area in sentences. It panics for NumAreas and above.
func (a Area) String() string { return areas[a] }

// ParseArea returns the area that String writes as text, and true. For other texts it returns Routes and false.
func ParseArea(text string) (Area, bool) {
	i := slices.Index(areas[:], text)
	return Area(max(i, 0)), i >= 0
}

// Fact is one difference in meaning. It is comparable. Its texts may contain any characters of object names, so
// printers must escape them.
type Fact struct {
	Area Area
	// Subject is the object of traffic: "api.shop:80", "cluster api.shop:80|v1", "inbound port 8080".
	Subject string
	// Aspect is the part of the subject that differs, such as the match of a rule, "order" or a policy; empty: the
	// subject itself.
	Aspect string
	// Text states the difference, for example "api v1 -> api v1 90%, api v2 10%; timeout 15s -> 3s".
	Text string
}

// String returns the fact as "SUBJECT ASPECT: TEXT", or as "SUBJECT: TEXT" without an aspect.
func (f Fact) String() string {
	return strings.TrimSuffix(f.Subject+" "+f.Aspect, " ") + ": " + f.Text
}

// Facts returns the differences in meaning of a view, sorted by area and subject and without repetitions. The result is
// nil if both configurations mean the same. The facts about the rules of one virtual host are in the order of the new
// rules, and then of the rules that are gone. The assignment of a cluster that is new or gone has no fact of its own.
// Instead, the fact about a new cluster counts its usable endpoints. The caller owns the result. Facts only reads v.
func Facts(v View) []Fact { return facts(v, compare) }

// facts returns the result of Facts. It compares each pair with the function compare, whose result it does not change.
func facts(v View, compare func(Pair) []Fact) (all []Fact) {
	created := map[string]bool{} // clusters that are new or gone; the fact about such a cluster includes its assignment
	for _, p := range v.Pairs {
		created[p.Name] = created[p.Name] || p.Type == xds.Cluster && (p.Old == nil || p.New == nil)
	}
	for _, p := range v.Pairs {
		if p.Type == xds.Endpoint && created[p.Name] {
			continue
		}
		of := compare(p)
		if c, is := p.New.(*clusterv3.Cluster); is && p.Old == nil && c.GetType() == clusterv3.Cluster_EDS {
			of = slices.Clone(of)
			of[0].Text += fmt.Sprintf(", %s", plural(usable(v.After, c), "endpoint"))
		}
		all = append(all, of...)
	}
	return sorted(all)
}

// sorted sorts facts by area and subject, and removes repetitions.
func sorted(all []Fact) []Fact {
	slices.SortStableFunc(all, func(a, b Fact) int {
		return cmp.Or(cmp.Compare(a.Area, b.Area), cmp.Compare(a.Subject, b.Subject))
	})
	seen := map[Fact]bool{}
	return slices.DeleteFunc(all, func(f Fact) bool {
		repeated := seen[f]
		seen[f] = true
		return repeated
	})
}

// compare returns the facts of one pair.
func compare(p Pair) (all []Fact) {
	switch p.Type {
	case xds.Cluster:
		all = clusterFacts(as[*clusterv3.Cluster](p.Old), as[*clusterv3.Cluster](p.New))
	case xds.Endpoint:
		all = assignmentFacts(as[*endpointv3.ClusterLoadAssignment](p.Old), as[*endpointv3.ClusterLoadAssignment](p.New))
	case xds.Route:
		all = routeFacts(as[*routev3.RouteConfiguration](p.Old), as[*routev3.RouteConfiguration](p.New))
	case xds.Listener:
		all = listenerFacts(as[*listenerv3.Listener](p.Old), as[*listenerv3.Listener](p.New))
	case xds.Secret, xds.Extension, xds.NumTypes:
		all = otherFacts(p)
	}
	if len(all) == 0 && p.Confidential && p.Versions[0] != p.Versions[1] {
		all = []Fact{{Area: areaOf(p.Type), Subject: p.Type.Noun() + " " + p.Name, Text: "its confidential part changes"}}
	}
	for i := range all {
		all[i].Subject, all[i].Aspect, all[i].Text = clip(all[i].Subject), clip(all[i].Aspect), clip(all[i].Text)
	}
	return all
}

// areaOf returns the area of a type.
func areaOf(t xds.Type) Area {
	return [xds.NumTypes]Area{Clusters, Endpoints, Listeners, Routes, Secrets, Extensions}[t]
}

// as returns a message with the type M, or a nil pointer for nil and for any other type.
func as[M proto.Message](m proto.Message) (none M) {
	if typed, is := m.(M); is {
		return typed
	}
	return none
}

// otherFacts returns the facts of a resource whose type has no model.
func otherFacts(p Pair) []Fact {
	f := Fact{Area: areaOf(p.Type), Subject: p.Type.Noun() + " " + p.Name}
	switch {
	case p.Old == nil:
		f.Text = "new"
	case p.New == nil:
		f.Text = "gone"
	default:
		f.Text = strings.Join(differences(p.Old, p.New), "; ")
	}
	if f.Text == "" {
		return nil
	}
	return []Fact{f}
}
