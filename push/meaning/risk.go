package meaning

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"navarch.io/navarch/push/xds"
)

// Level is the severity of a risk. A higher level is more severe. The value 0 stands for no risk.
type Level uint8

// The levels.
const (
	Medium Level = iota + 1
	High
)

// String returns "medium" or "high", as in flags and JSON. For other values it returns "".
func (l Level) String() string { return levels[l] }

// levels maps the levels to their texts.
var levels = map[Level]string{Medium: "medium", High: "high"}

// ParseLevel returns the level whose String is text. For any other text it returns 0.
func ParseLevel(text string) Level {
	for level, of := range levels {
		if of == text {
			return level
		}
	}
	return 0
}

// Code identifies a kind of risk. Titles contains the meaning of each code.
type Code string

// The codes of the risks that this package finds.
const (
	ClusterGone       Code = "NP101"
	EndpointsFall     Code = "NP102"
	TLSMode           Code = "NP110"
	PeerNames         Code = "NP111"
	ProtectionGone    Code = "NP112"
	SessionsMove      Code = "NP113"
	SubsetEmpty       Code = "NP114"
	HostGone          Code = "NP201"
	RouteGone         Code = "NP210"
	RuleShadowed      Code = "NP211"
	WeightsMove       Code = "NP212"
	LessTime          Code = "NP213"
	CatchAllFirst     Code = "NP214"
	OtherObjectWins   Code = "NP215"
	ListenerReplaced  Code = "NP301"
	ProtocolChanges   Code = "NP302"
	ChainMatchChanges Code = "NP303"
	PlainRefused      Code = "NP401"
	AccessWidens      Code = "NP402"
	AllowAppears      Code = "NP403"
	AccessNarrows     Code = "NP404"
	Unenforceable     Code = "NP405"
	SecretRefused     Code = "NP406"
	MeshWide          Code = "NP501"
	ManyProxies       Code = "NP502"
	ViewsMultiply     Code = "NP503"
	BytesGrow         Code = "NP504"
)

// The codes of the risks that callers find, and add by Reach.Found or Summary.Add.
const (
	BudgetExceeded    Code = "NP506"
	PatchWithoutMatch Code = "NP601"
	EnvoyRefuses      Code = "NP602"
	PatchRelative     Code = "NP603"
)

// Titles maps each code to its meaning, for output. Callers must not change it.
var Titles = map[Code]string{
	ClusterGone:       "a cluster that routes use disappears",
	EndpointsFall:     "endpoints of a cluster fall by more than 10 %",
	TLSMode:           "the TLS mode of a cluster changes",
	PeerNames:         "the names that a server's certificate may have, or the SNI, change",
	ProtectionGone:    "outlier detection or limits of a cluster are gone",
	SessionsMove:      "the key or the ring of a consistent hash changes, so sessions move",
	SubsetEmpty:       "a subset has no endpoints",
	HostGone:          "a host vanishes from proxies",
	RouteGone:         "requests lose their last route",
	RuleShadowed:      "a rule is never reached, because an earlier one matches its requests",
	WeightsMove:       "weights move by more than 20 points",
	LessTime:          "a timeout decreases, or retries increase",
	CatchAllFirst:     "a rule that matches everything now stands before others",
	OtherObjectWins:   "another object now has precedence for a host",
	ListenerReplaced:  "a listener is replaced, and its connections drain",
	ProtocolChanges:   "a port changes its protocol",
	ChainMatchChanges: "the matches of inbound filter chains change",
	PlainRefused:      "mTLS becomes STRICT where workloads call in plain text",
	AccessWidens:      "a weaker mTLS mode, or policies that allow more or deny less, widen access",
	AllowAppears:      "an ALLOW policy appears where there was none, so all else is denied",
	AccessNarrows:     "policies refuse requests that they allowed before",
	Unenforceable:     "traffic is refused because a setting cannot be enforced",
	SecretRefused:     "a Secret is named that the proxies may not have",
	MeshWide:          "an object applies to the whole mesh",
	ManyProxies:       "more than 10 % of the proxies get a different configuration",
	ViewsMultiply:     "views multiply by more than 2",
	BytesGrow:         "bytes per proxy grow by more than 20 %",
	BudgetExceeded:    "a tenant's budget would be exceeded",
	PatchWithoutMatch: "a patch of an EnvoyFilter changes nothing",
	EnvoyRefuses:      "Envoy refuses the configuration",
	PatchRelative:     "a relative patch of an EnvoyFilter has no priority",
}

// Risk is a dangerous difference. Its texts may contain arbitrary characters, so printers must escape them.
type Risk struct {
	Code  Code
	Level Level
	// Subject names the thing that the risk is about, as Fact.Subject does.
	Subject string
	Text    string // the difference and its effect
	// Objects lists the objects that cause the difference, as "Kind namespace/name". It is empty if they are unknown.
	// In the results of the function Risks it is sorted.
	Objects []string
}

// assessment collects the risks of one view (a group of proxies with equal configuration).
type assessment struct {
	View
	*memo
	risks         []Risk
	before, after uses                                                            // computed by usesBefore and usesAfter
	serves        map[*routev3.RouteConfiguration]map[string]*routev3.VirtualHost // cache of virtualHosts
}

// Risks returns the risks of the view v, without repetitions. The most severe risks come first. Risks of one level are
// sorted by code and subject. Without risks the result is nil. The caller owns the result. Risks only reads v.
func Risks(v View) []Risk { return risks(v, newMemo(context.Background())) }

// risks returns the result of Risks. Several views may share the memo, which is a cache.
func risks(v View, m *memo) []Risk {
	a := &assessment{View: v, memo: m, serves: map[*routev3.RouteConfiguration]map[string]*routev3.VirtualHost{}}
	for _, p := range v.Pairs {
		switch p.Type {
		case xds.Cluster:
			a.assessCluster(p)
		case xds.Endpoint:
			a.assessAssignment(as[*endpointv3.ClusterLoadAssignment](p.Old), as[*endpointv3.ClusterLoadAssignment](p.New))
		case xds.Route:
			for _, h := range a.routes(p).changed {
				a.assessHost(h)
			}
		case xds.Listener:
			if p.New != nil {
				a.assessListener(p.Name, p.Old != nil, a.listener(p))
			}
		case xds.Secret, xds.Extension, xds.NumTypes:
		}
	}
	a.assessHosts()
	a.assessSubsets()
	return sortedRisks(a.risks)
}

// sortedRisks sorts risks, and removes repetitions.
func sortedRisks(all []Risk) []Risk {
	slices.SortStableFunc(all, compareRisks)
	return slices.CompactFunc(all, func(a, b Risk) bool { return a.key() == b.key() })
}

// compareRisks orders risks: the most severe first, then by code and subject.
func compareRisks(a, b Risk) int {
	return cmp.Or(-cmp.Compare(a.Level, b.Level), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Subject, b.Subject), cmp.Compare(a.Text, b.Text))
}

// riskKey identifies a risk. Risks with equal keys count as one risk.
type riskKey struct {
	code          Code
	level         Level
	subject, text string
}

// key returns the riskKey of a risk.
func (r Risk) key() riskKey { return riskKey{r.Code, r.Level, r.Subject, r.Text} }

// add adds a risk of a resource. The parameter objects lists the causes, as "Kind namespace/name". If it is empty, add
// selects the causes from the result of View.Objects (see edited).
func (a *assessment) add(code Code, level Level, t xds.Type, resource, subject string, objects []string, format string, args ...any) {
	objects = slices.Clone(objects)
	if len(objects) == 0 && a.Objects != nil {
		objects = a.edited(a.Objects(t, resource), "")
	}
	slices.Sort(objects)
	a.risks = append(a.risks, Risk{Code: code, Level: level, Subject: clip(subject), Text: clip(fmt.Sprintf(format, args...)),
		Objects: slices.Compact(objects)})
}

// edited returns the likely causes of a difference. If the change edits elements of the list objects, it returns these
// elements. If not, the cause may be another object of the change, such as a removed object. If exactly one object of
// the change begins with prefix, edited returns this object. In all other cases it returns a copy of the list objects.
func (a *assessment) edited(objects []string, prefix string) (all []string) {
	for _, object := range objects {
		if slices.Contains(a.Edited, object) {
			all = append(all, object)
		}
	}
	if len(all) > 0 {
		return all
	}
	for _, object := range a.Edited {
		if strings.HasPrefix(object, prefix) {
			all = append(all, object)
		}
	}
	if len(all) == 1 {
		return all
	}
	return slices.Clone(objects)
}

// object returns a list with the element "KIND NAME", or nil for an empty name.
func object(kind, name string) []string {
	if name == "" {
		return nil
	}
	return []string{kind + " " + name}
}

// exists reports whether an object exists after the change.
func (a *assessment) exists(object string) bool { return a.Exists == nil || a.Exists(object) }

// use is one route or filter chain that sends requests or connections to a cluster.
type use struct {
	subject string   // names the virtual host or the listener
	label   string   // names the route or the chain
	tcp     bool     // the use is a TCP chain
	shares  []share  // the clusters that receive its requests or connections
	objects []string // the VirtualService of the route; may be empty
}

// uses maps the name of a cluster to the uses of the cluster. Only the first maxUses uses are stored.
type uses map[string][]use

// maxUses is the maximum number of uses that are stored for one cluster.
const maxUses = 16

// usesOf returns the uses of a set. It reads all routes and listeners of the set.
func usesOf(s Set, p *parts) uses {
	all := uses{}
	for m := range s.All(xds.Route) {
		rc := as[*routev3.RouteConfiguration](m)
		all.addRoutes(rc, func(host string) string { return hostSubject(rc.GetName(), host) })
	}
	for m := range s.All(xds.Listener) {
		all.addListener(as[*listenerv3.Listener](m), p)
	}
	return all
}

// addRoutes adds the uses of a route configuration. The function subject maps the name of a virtual host to the subject
// of its uses.
func (u uses) addRoutes(rc *routev3.RouteConfiguration, subject func(host string) string) {
	for _, vh := range rc.GetVirtualHosts() {
		u.addHost(vh, subject(vh.GetName()))
	}
}

// addHost adds a use for each route of a virtual host.
func (u uses) addHost(vh *routev3.VirtualHost, subject string) {
	for _, r := range vh.GetRoutes() {
		shares, _ := sharesOf(r.GetRoute())
		u.add(use{subject: subject, label: rule{name: r.GetName(), match: matchText(r.GetMatch())}.label(), shares: shares,
			objects: object("VirtualService", configIn(r.GetMetadata()))})
	}
}

// add adds a use to each cluster that has a weight above 0 in the use's shares.
func (u uses) add(one use) {
	for _, s := range one.shares {
		if s.weight > 0 && len(u[s.cluster]) < maxUses {
			u[s.cluster] = append(u[s.cluster], one)
		}
	}
}

// addListener adds the uses of a listener's TCP chains, and of the routes that the listener itself contains.
func (u uses) addListener(l *listenerv3.Listener, p *parts) {
	name := "listener " + short(l.GetName())
	for _, c := range p.chainsOf(l) {
		if c.inline != nil {
			u.addRoutes(c.inline, func(string) string { return name })
		}
		if c.http == nil {
			u.add(use{subject: name, label: "chain " + c.match, tcp: true, shares: c.shares.shares})
		}
	}
}

// usesBefore returns the uses of the set before the change. It computes them at the first call.
func (a *assessment) usesBefore() uses {
	if a.before == nil {
		a.before = usesOf(a.Before, a.parts)
	}
	return a.before
}

// usesAfter returns the uses of the set after the change. It computes them at the first call.
func (a *assessment) usesAfter() uses {
	if a.after == nil {
		a.after = usesOf(a.After, a.parts)
	}
	return a.after
}

// special reports whether a cluster is an inbound cluster or a built-in cluster, such as BlackHoleCluster. It returns
// true for an empty name.
func special(cluster string) bool {
	return slices.Contains([]string{xds.BlackHole, xds.Passthrough, xds.InboundPassthrough, xds.AllowAnyDynamic, ""}, cluster) ||
		strings.HasPrefix(cluster, "inbound|")
}
