// Package meaning compares the configuration of one view before and after a change. A view is a group of proxies with
// equal configuration. The package reports differences that matter for traffic as facts, and dangerous differences as
// risks.
//
// The comparison is a pure function of Envoy's decoded messages (View). A resource becomes a neutral model: a virtual
// host is an ordered list of rules with destinations, a cluster is TLS, balancing, limits and ejection, an assignment
// is counts of endpoints, a listener is filter chains with policies. Two models are compared field by field. Fields
// outside of the model are compared by their paths in Envoy's API (diff.go), so that no difference is lost: two
// configurations without facts mean the same. Order is compared only where Envoy evaluates in order (rules, filters).
// The order of two rules has no effect if no request can match both.
//
// # Codes
//
// Risks of one view: NP101, NP102, NP110 to NP114, NP201, NP210 to NP215, NP301 to NP303, and NP401 to
// NP406. NP401, NP406 and the rules that a plan leaves out (NP211, NP214) need facts from the caller (View). Risks of
// reach: NP501 to NP504 (Reach). Callers decide NP506 (by the budgets of ingestion), NP601 (by the planner's counts of
// changed resources), NP602 (by a run of Envoy) and NP603 (store/normal).
//
// # Bounds
//
// The work is proportional to the size of the resources that differ. A disappearing cluster, and a subset that loses
// its endpoints, add one pass over the routes and listeners of the view. Texts are clipped (maxText), and a fact has at
// most maxParts parts. Over keeps at most maxLines facts and as many risks, and counts the rest. Virtual hosts with
// more than maxOrdered rules have no risks of order, and at most maxSampled of their removed rules are tried (NP210).
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
	// Message returns the resource with a type and a name, or nil. Callers must not change it.
	Message(t xds.Type, name string) proto.Message
	// All iterates over the resources of a type. Callers must not change them.
	All(t xds.Type) iter.Seq[proto.Message]
}

// Pair is a resource whose version differs before and after the change.
type Pair struct {
	Type xds.Type // not xds.Unknown
	Name string
	// Old is nil for a new resource, and New is nil for a removed one.
	Old, New proto.Message
	// Versions are the versions of Old and New. Over compares pairs with equal Type, Name and Versions once, unless
	// both versions are empty.
	Versions [2]string
	// Confidential means that the messages lack confidential parts, which may differ too.
	Confidential bool
}

// View is the configuration of one view before and after a change. Pairs, Before and After are required; Pairs may be
// empty.
type View struct {
	// Label names the view in output, and Proxies counts its proxies. Only Over reads them.
	Label   string
	Proxies int

	Pairs         []Pair // the resources that differ
	Before, After Set

	// Objects returns the objects that made a resource, as "Kind namespace/name". If it is nil, risks name only the
	// objects that the messages name.
	Objects func(t xds.Type, name string) []string
	// Edited are the objects of the change, as "Kind namespace/name". They decide the differences between the two
	// configurations. nil: they are unknown.
	Edited []string
	// Exists reports whether an object "Kind namespace/name" exists after the change. If it is nil, all objects exist.
	Exists func(object string) bool
	// PlainCallers are the workloads that are known to call in plain text, as "name.namespace".
	PlainCallers []string
	// Refused returns the reason why the view's proxies may not have a Secret after the change; empty: they may. If it
	// is nil, they may have all Secrets.
	Refused func(secret string) string
	// Unreachable returns the routes that the plan after the change omits from a virtual host, because an earlier rule
	// matches everything (vhost.Spec.Unreachable). If it is nil, these routes are unknown.
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

// String returns the name of the area in sentences. It panics for NumAreas.
func (a Area) String() string { return areas[a] }

// ParseArea returns the area that String writes as text; the result is false for other texts.
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
	// Text is the difference, as "api v1 -> api v1 90%, api v2 10%; timeout 15s -> 3s".
	Text string
}

// String returns the fact as one sentence: "SUBJECT ASPECT: TEXT".
func (f Fact) String() string {
	return strings.TrimSuffix(f.Subject+" "+f.Aspect, " ") + ": " + f.Text
}

// Facts returns the differences in meaning of a view, sorted by area and subject and without repetitions; nil if both
// configurations mean the same. The facts of one virtual host are in the order of its rules. The endpoints of a cluster
// that is new or gone are part of the fact about the cluster.
func Facts(v View) []Fact { return facts(v, compare) }

// facts is Facts with a function that compares a pair. It does not change the result of that function.
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

// as returns a message with its type; a nil pointer for nil and for any other type.
func as[M proto.Message](m proto.Message) (none M) {
	if typed, is := m.(M); is {
		return typed
	}
	return none
}

// otherFacts returns the facts of a resource without a model of its own.
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
