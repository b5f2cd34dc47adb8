// Package meaning compares the configuration of one view before and after a change. A view is a group of proxies with
// equal configuration. The package reports facts and risks. A fact is a difference that matters for traffic, and a risk
// is a dangerous difference.
//
// The comparison is a pure function of a View, which contains Envoy's decoded messages. Resources of four types are
// converted to models:
//
//   - The model of a route configuration contains virtual hosts. Each has an ordered list of rules (routes) with their
//     destinations.
//   - The model of a cluster contains its TLS settings, balancing, limits and the ejection of failing endpoints.
//   - The model of an assignment (ClusterLoadAssignment) contains its endpoints by locality.
//   - The model of a listener contains filter chains with their RBAC policies.
//
// Two models are compared field by field. The fields outside of the models are compared by their paths in Envoy's API
// (diff.go). The order of a list is ignored if it has no effect in Envoy. The order of two rules has no effect if no
// request can match both.
//
// # Codes
//
// The risks of one view are NP101, NP102, NP110 to NP114, NP201, NP210 to NP215, NP301 to NP303, and NP401 to NP406.
// Some of them need optional fields of View: NP401 needs PlainCallers, and NP406 needs Refused. NP211 and NP214 need
// Unreachable for routes that After lacks. The risks of the change as a whole are NP501 to NP504. Reach.Risks returns
// them. Callers find the risks NP506, NP601, NP602 and NP603.
//
// # Bounds
//
// The work grows with the size of the resources that differ. Some risks, such as NP101, also need a pass over all
// routes and listeners of the view. A text is shortened to 400 runes (maxText), and a fact states at most 8 differences
// (maxParts). Over keeps at most 1,000 facts and 1,000 risks (maxLines), and counts the rest. In a virtual host with
// more than 1,000 rules (maxOrdered), NP211 and NP214 are reported only for the routes that View.Unreachable returns.
// NP210 is checked for at most 200 removed rules of a virtual host (maxSampled).
//
// Owns: nothing.
// Reads: the messages of a View.
// Never: changes a message; reads Kubernetes objects or a clock.
package meaning

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// Set is the decoded configuration of a view, either before or after a change.
type Set interface {
	// Message returns the resource of the given type and name, or nil if the set lacks this resource. Callers must not
	// change the message.
	Message(t xds.Type, name string) proto.Message
	// All iterates over the resources of a type, in any order. Callers must not change the messages.
	All(t xds.Type) iter.Seq[proto.Message]
}

// Pair is a resource that a change adds, removes or modifies. The package does not change Old and New.
type Pair struct {
	Type xds.Type // not xds.Unknown
	Name string
	// Old is nil for a new resource, and New is nil for a removed resource. At most one of them is nil.
	Old, New proto.Message
	// Versions are the versions of Old and New. Over may treat pairs with equal Type, Name and Versions as equal, and
	// compare them only once. It does not do so if both versions are empty.
	Versions [2]string
	// Confidential is true if a confidential part was removed from Old or New. If only the Versions differ, a fact
	// states that the confidential part changes.
	Confidential bool
}

// View is the configuration of one view (a group of proxies) before and after a change. Before and After are required.
// The other fields may be zero.
type View struct {
	// Label names the view in output, and Proxies counts its proxies. Only Over reads these two fields.
	Label   string
	Proxies int

	Pairs         []Pair // the resources that differ
	Before, After Set

	// Objects returns the configuration objects from which a resource was made, as "Kind namespace/name". If Objects is
	// nil, most risks name only the objects that the messages name.
	Objects func(t xds.Type, name string) []string
	// Edited lists the objects of the change, as "Kind namespace/name". Risks prefer them as the cause of a difference.
	// If Edited is nil, the objects of the change are unknown.
	Edited []string
	// Exists reports whether an object "Kind namespace/name" exists after the change. If Exists is nil, all objects
	// count as existing.
	Exists func(object string) bool
	// PlainCallers lists the workloads that are known to send plain text, as "name.namespace".
	PlainCallers []string
	// Refused returns the reason why the view's proxies may not have a Secret after the change. It returns "" for a
	// Secret that they may have. If Refused is nil, they may have all Secrets.
	Refused func(secret string) string
	// Unreachable returns routes that a virtual host in After lacks. They were left out, because an earlier route of
	// the virtual host matches every request. If Unreachable is nil, these routes are unknown.
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

// String returns the name of the area for use in sentences. It panics for NumAreas and above.
func (a Area) String() string { return areas[a] }

// ParseArea returns the area whose String is text, and true. For any other text it returns Routes and false.
func ParseArea(text string) (Area, bool) {
	i := slices.Index(areas[:], text)
	return Area(max(i, 0)), i >= 0
}

// Fact is one difference in meaning. It is comparable. Its texts may contain arbitrary characters, so printers must
// escape them.
type Fact struct {
	Area Area
	// Subject names the thing that the fact is about, such as "api.shop:80", "cluster api.shop:80|v1" or "inbound port
	// 8080".
	Subject string
	// Aspect is the part of the subject that differs, such as the match of a rule, "order" or a policy. It is empty if
	// the fact is about the subject as a whole.
	Aspect string
	// Text states the difference, for example "api v1 -> api v1 90%, api v2 10%; timeout 15s -> 3s".
	Text string
}

// String returns the fact as "SUBJECT ASPECT: TEXT". If the aspect is empty, the form is "SUBJECT: TEXT".
func (f Fact) String() string {
	return strings.TrimSuffix(f.Subject+" "+f.Aspect, " ") + ": " + f.Text
}

// Facts returns the facts about the resources in v.Pairs, without repetitions. They are sorted by area and subject. The
// result is nil if both configurations mean the same. In a virtual host, the facts about new and changed rules follow
// the new order of the rules. The facts about removed rules come after them. The assignment of a new or removed cluster
// has no fact of its own. Instead, the fact about a new cluster counts its usable endpoints. The caller owns the
// result. Facts only reads v.
func Facts(v View) []Fact { return facts(v, newMemo(context.Background())) }

// facts returns the result of Facts. Calls for several views may share the memo (a cache). The function does not change
// cached facts.
func facts(v View, m *memo) (all []Fact) {
	created := map[string]bool{} // names of clusters that are new or gone
	for _, p := range v.Pairs {
		created[p.Name] = created[p.Name] || p.Type == xds.Cluster && (p.Old == nil || p.New == nil)
	}
	for _, p := range v.Pairs {
		if p.Type == xds.Endpoint && created[p.Name] {
			continue
		}
		of := m.compare(p)
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

// compare returns the facts of one pair. It uses the memo for the models of listeners.
func compare(p Pair, m *memo) (all []Fact) {
	switch p.Type {
	case xds.Cluster:
		all = clusterFacts(as[*clusterv3.Cluster](p.Old), as[*clusterv3.Cluster](p.New))
	case xds.Endpoint:
		all = assignmentFacts(as[*endpointv3.ClusterLoadAssignment](p.Old), as[*endpointv3.ClusterLoadAssignment](p.New))
	case xds.Route:
		all = routeFacts(as[*routev3.RouteConfiguration](p.Old), as[*routev3.RouteConfiguration](p.New))
	case xds.Listener:
		all = listenerFacts(p, m)
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

// areaOf returns the area of the resources of a type.
func areaOf(t xds.Type) Area {
	return [xds.NumTypes]Area{Clusters, Endpoints, Listeners, Routes, Secrets, Extensions}[t]
}

// as converts a message to the type M. It returns a nil pointer for nil and for a message of another type.
func as[M proto.Message](m proto.Message) (none M) {
	if typed, is := m.(M); is {
		return typed
	}
	return none
}

// otherFacts returns the facts of a resource whose type has no model. The result is nil if nothing differs.
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
