package plan

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// affected lists the units that have to be planned again because of a change. A unit is a part of the plan, such as a
// host or a Secret. A view is the configuration of equal proxies, a scope is the outbound side of views, and a workload
// is the inbound side. A comment such as "records: the scopes" names the elements of the set, and then the units that
// they mark. A set without such a comment contains the units themselves.
type affected struct {
	everything bool               // all units
	views      map[string]bool    // namespaces whose proxies' views may have changed; "*" for all
	readers    map[model.Key]bool // records: the scopes and workloads whose view names them
	services   map[model.Key]bool // services: the workloads that they select
	ports      map[string]bool    // hosts: the workloads whose port numbers come from the hosts' endpoints
	served     map[string]bool    // hosts of services: the workloads whose CUSTOM policies name a provider at the host
	hosts      map[string]input.Types
	patterns   map[string]input.Types // wildcards: the hosts that they cover
	demands    map[string]input.Types // hosts whose endpoints may demand mTLS otherwise: only in scopes of gRPC clients
	members    map[string]input.Types // hosts: only the parts that depend on their endpoints
	addresses  map[string]bool        // hosts with gateways among their endpoints: all hosts with endpoints at these addresses
	secrets    map[model.Key]bool     // Secrets: their resources
	referred   map[string]bool        // names of Secrets, in any namespace, whose references changed
	labelled   map[string]bool        // namespaces in which configured labels of workloads changed
	routers    bool                   // the views of all routers
	pods       map[pod]bool           // Pods: the proxies whose credential is bound to them
	allPods    bool                   // the proxies whose credential is bound to any Pod
	granted    map[string]bool        // namespaces in which the right to list Secrets may have changed; "" for all
	reporting  map[string]bool        // namespaces whose proxies' telemetry may have changed; "*" for all
	pulls      []mirror.Edit          // of VirtualServices: the destinations, in scopes whose Sidecar imports the hosts
}

// newAffected returns an empty set of affected units.
func newAffected() *affected {
	hosts := func() map[string]input.Types { return map[string]input.Types{} }
	names := func() map[string]bool { return map[string]bool{} }
	return &affected{views: names(), readers: map[model.Key]bool{}, services: map[model.Key]bool{}, ports: names(), served: names(),
		hosts: hosts(), demands: hosts(), patterns: hosts(), members: hosts(), addresses: names(), secrets: map[model.Key]bool{},
		referred: names(), pods: map[pod]bool{}, labelled: names(), granted: names(), reporting: names()}
}

// effect is one cell of the table of effects. Its function marks the units that an edit of a record touches.
type effect struct {
	name  string      // for tests and messages
	types input.Types // the types of resources that are touched in these units
	units func(*change, input.Types, mirror.Edit)
	slow  []slowReason // cases that the fast path (fast_path.go) cannot plan; nil: all cases
}

// change collects the affected units of one step, in which one change of the snapshot is planned.
type change struct {
	*affected
	in  *input.Input // of the new snapshot
	was string       // the root namespace before the step
	// relabelled has the records whose edits change the set of labels, places or networks of proxies that rules read.
	relabelled map[model.Key]bool
}

// affects is the table of effects. It maps each kind of record to the units that an edit of such a record touches. Both
// the old and the new record of an edit count, because hosts, selectors and exports shrink as well as grow. A kind
// without a row touches everything. A kind with an empty row touches nothing, because no plan reads it.
var affects = [model.NumKinds][]effect{
	model.KindMesh: {
		{"everything", input.All, everything, nil}, // defaults of every rule, policies, ports
	},
	model.KindService: {
		{"hosts", input.All, namedHosts, nil},                      // the service of a host, its ports, names and addresses
		{"routes to it", input.LDS | input.RDS, routedHosts, nil},  // destinations of VirtualServices that appear or disappear
		{"routes of it", input.RDS, namedBeside, nil},              // other hosts of its VirtualServices, which use its ports
		{"wildcards", input.RDS, coveringHosts, nil},               // wildcards of VirtualServices that cover it, which use its ports
		{"workloads", input.CDS | input.LDS, serviceSelected, nil}, // inbound ports
		{"views", input.All, namespaceViews, nil},                  // the proxies that the selector selects
		{"asked", input.LDS, askedHosts, nil},                      // providers of external authorization
		{"places", input.All, labelKeys, nil},                      // the inputs that its traffic distribution reads
		{"alias", input.RDS, aliased, nil},                         // names of the host that it is an alias of
	},
	model.KindServiceEntry: {
		{"hosts", input.All, namedHosts, nil},
		{"routes to it", input.LDS | input.RDS, routedHosts, nil},
		{"routes of it", input.RDS, namedBeside, nil},
		{"wildcards", input.RDS, coveringHosts, nil},
		{"workloads", input.CDS | input.LDS, serviceSelected, nil},
		{"views", input.All, namespaceViews, nil},
		{"alias", input.RDS, aliased, nil},
		{"asked", input.LDS, askedHosts, nil},
		{"places", input.All, labelKeys, nil},
	},
	model.KindEndpoints: {
		// Clusters of DNS services and listeners of headless services contain endpoints, too.
		{"members", input.CDS | input.EDS | input.LDS, namedMembers, slowMembers},
		{"ports", input.CDS | input.LDS, namedPorts, slowPorts}, // target ports with names
		// Proxies that are endpoints of a ServiceEntry serve its ports.
		{"served", input.CDS | input.LDS, servedViews, slowServed},
		// Selectors read the labels to decide which workloads use a Secret.
		{"labels", input.SDS, labelledWorkloads, slowLabels},
		// Endpoints of other hosts at the address of a gateway's Pod must not have the ports of the agent.
		{"gateways' own", input.CDS | input.EDS, ownAddresses, slowOwn},
	},
	model.KindVirtualService: {
		{"hosts", input.RDS, namedHosts, nil},           // virtual hosts
		{"connections", input.LDS, connectedHosts, nil}, // TCP chains, also of wildcards that cover them
		{"wildcards", input.RDS, coveringHosts, nil},    // the most specific VirtualService of hosts that wildcards cover
		{"destinations", input.All, pulled, nil},        // destinations are imported with the VirtualService
		{"views", input.All, labelKeys, nil},            // sourceLabels decide the variants
	},
	model.KindDestinationRule: {
		{"hosts", input.All, namedHosts, nil},                     // policies, subsets; hash policies are in routes
		{"routes to it", input.LDS | input.RDS, routedHosts, nil}, // subsets that appear or disappear
		{"views", input.All, labelKeys, nil},                      // the inputs that its selector and its localities read
		{"workloads", input.CDS, ruledServices, nil},              // connection pools of inbound clusters
		{"Secrets", input.SDS, referredSecrets, nil},
		{"Pods", input.SDS, selectedPods, nil}, // the labels by which Pods use Secrets
	},
	model.KindSidecar: {
		{"views", input.All, namespaceViews, nil}, // the Sidecar that applies
		{"readers", input.All, namesIt, nil},
	},
	model.KindEnvoyFilter: {
		{"views", input.All, namespaceViews, nil},
		{"readers", input.All | input.ECDS, namesIt, nil},
		{"Secrets", input.SDS, referredSecrets, nil},
		{"Pods", input.SDS, selectedPods, nil}, // the labels by which Pods use Secrets
	},
	model.KindPeerAuthentication: {
		{"hosts", input.CDS | input.EDS, peered, nil}, // endpoints without mTLS, and their digest in clusters
		{"views", input.All, namespaceViews, nil},     // the modes that apply
		{"readers", input.LDS, namesIt, nil},
	},
	model.KindAuthorizationPolicy: {
		{"views", input.All, namespaceViews, nil}, // the proxies that it selects
		{"readers", input.LDS, namesIt, nil},
		{"hosts", input.CDS, deniedHosts, nil}, // the identities that clusters accept
	},
	model.KindRequestAuthentication: {
		{"views", input.All, namespaceViews, nil}, // the proxies that it selects
		{"readers", input.LDS, namesIt, nil},      // its rules and keys
	},
	model.KindSecret: {
		{"asked for", input.SDS, namedSecret, nil}, // subscriptions of proxies in its namespace
	},
	model.KindGateway: {
		{"routers", input.All, routerViews, nil}, // the routers that it selects
		{"readers", input.All, namesIt, nil},     // its servers
		{"Secrets", input.SDS, referredSecrets, nil},
		{"Pods", input.SDS, selectedPods, nil}, // the labels by which Pods use Secrets
	},
	model.KindSecretReader: {
		{"rights", input.SDS, grantedRights, nil}, // the authoriser is queried again
	},
	model.KindWorkload: {
		// The cell is the same as for Endpoints, because push/resolve makes Endpoints for services that select the
		// workload.
		{"labels", input.SDS, labelledWorkloads, slowLabels},
		// Selectors read the labels, for the proxy's rules and Secrets.
		{"its proxy", input.All, boundProxies, slowProxy},
	},
	model.KindNetworkGateways: {
		// When a host's clusters are planned, its assignments that depend on the network are planned too
		// (host.Variation).
		{"hosts", input.CDS, everyHost, nil},
		{"views", input.All, labelKeys, nil}, // networks of proxies are read only if there are gateways
	},
	model.KindTelemetry: {
		{"listeners", input.LDS, reported, nil},   // their telemetry
		{"views", input.LDS, telemetryViews, nil}, // the proxies that the selector selects, and those that send spans
	},
	model.KindWasmPlugin: {
		// The view lists the plugins that select the proxy, how it runs them, and which are for outbound listeners.
		{"views", input.All, namespaceViews, nil},
		{"readers", input.LDS | input.ECDS, namesIt, nil},
		{"Secrets", input.ECDS, referredSecrets, nil}, // the credentials by which modules are fetched
		{"Pods", input.ECDS, selectedPods, nil},       // the labels by which Pods use these credentials
	},
	model.KindTrafficExtension: {
		{"views", input.All, namespaceViews, nil},
		{"readers", input.LDS | input.ECDS, namesIt, nil},
		{"Secrets", input.ECDS, referredSecrets, nil}, // the credentials by which modules are fetched
		{"Pods", input.ECDS, selectedPods, nil},       // the labels by which Pods use these credentials
	},
	model.KindProxyConfig:    {}, // injection reads it
	model.KindServiceAccount: {}, // push/identities compares tokens with it
	model.KindNamespace:      {}, // push/identities compares tokens with it
	model.KindWorkloadGroup:  {}, // push/identities reads from it which service accounts belong to machines
}

// collect adds the units that the edits touch according to a table of effects.
func (c *change) collect(table *[model.NumKinds][]effect, edits []mirror.Edit) {
	for _, e := range edits {
		row := table[e.Key().Kind]
		if row == nil {
			everything(c, input.All, e)
		}
		for _, cell := range row {
			cell.units(c, cell.types, e)
		}
	}
}

// records lists the old and the new record of an edit, as far as they exist.
func records(e mirror.Edit) []model.Record {
	return slices.DeleteFunc([]model.Record{e.Old, e.New}, func(r model.Record) bool { return r == nil })
}

// hostsOf yields the hosts of the record before and after an edit.
func hostsOf(e mirror.Edit) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, r := range records(e) {
			for _, h := range model.HostsOf(r) {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// The functions below and in affects_*.go are the values of effect.units. Each adds the units that an edit touches to
// c.

// everything marks all units.
func everything(c *change, _ input.Types, _ mirror.Edit) {
	c.everything = true
	c.views["*"] = true
}

// namedHosts marks the record's hosts. For records other than services it also marks the hosts that a wildcard of the
// record covers.
func namedHosts(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		_, isService := r.(*model.Service)
		for _, h := range model.HostsOf(r) {
			c.hosts[h] |= t
			if input.IsWildcard(h) && !isService {
				c.patterns[h] |= t
			}
		}
	}
}

// everyHost marks all hosts.
func everyHost(c *change, t input.Types, _ mirror.Edit) { c.patterns["*"] |= t }

// serviceSelected marks the workloads that the service selects before and after the edit. If the selector changes,
// namespaceViews marks the further workloads.
func serviceSelected(c *change, _ input.Types, e mirror.Edit) { c.services[e.Key()] = true }

// askedHosts marks the workloads whose CUSTOM policies name a provider at a host that appears or disappears.
func askedHosts(c *change, _ input.Types, e mirror.Edit) {
	if e.Old != nil && e.New != nil && slices.Equal(model.HostsOf(e.Old), model.HostsOf(e.New)) {
		return
	}
	for h := range hostsOf(e) {
		c.served[h] = true
	}
}

// ruledServices marks the workloads of the services that a DestinationRule applies to.
func ruledServices(c *change, _ input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		pattern := r.(*model.DestinationRule).Spec.GetHost()
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			services := c.in.ByHost(kind, pattern)
			if input.IsWildcard(pattern) {
				services = c.in.All(kind)
			}
			for svc := range services {
				if slices.ContainsFunc(model.HostsOf(svc), func(h string) bool { return input.Covers(pattern, h) }) {
					c.services[svc.Meta().Key] = true
				}
			}
		}
	}
}

// namespaceViews marks the views of the record's namespace, or all views for a record of the root namespace. It marks
// nothing if the edit changes no view (selects).
func namespaceViews(c *change, _ input.Types, e mirror.Edit) {
	if !selects(e) {
		return
	}
	c.views[c.reach(e)] = true
}

// reach returns the namespace of an edit's record, or "*" if that is the root namespace before or after the step.
func (c *change) reach(e mirror.Edit) string {
	if namespace := e.Key().Namespace; namespace != c.was && namespace != c.in.Root() {
		return namespace
	}
	return "*"
}

// selects reports whether an edit may change the set of proxies that a record selects, or their views. Most edits of
// services and policies change only fields that no view depends on.
func selects(e mirror.Edit) bool {
	if old, is := e.Old.(*model.Policy); is {
		now, still := e.New.(*model.Policy)
		return !still || old.Created != now.Created || old.Spec.GetClosed() != now.Spec.GetClosed() ||
			old.Spec.GetMeshWide() != now.Spec.GetMeshWide() || !maps.Equal(old.Spec.GetSelector(), now.Spec.GetSelector()) ||
			!slices.Equal(old.Spec.GetGateways(), now.Spec.GetGateways())
	}
	old, isService := e.Old.(*model.Service)
	now, still := e.New.(*model.Service)
	if !isService || !still {
		return true
	}
	notHTTP := func(p *model.ServicePort) bool { return !p.GetProtocol().IsHTTP() }
	headless := func(s *model.Service) bool {
		return s.Spec.GetHeadless() && slices.ContainsFunc(s.Spec.GetPorts(), notHTTP)
	}
	renumbered := now.Key.Kind == model.KindServiceEntry &&
		!slices.EqualFunc(old.Spec.GetPorts(), now.Spec.GetPorts(), equalPorts) // see view.Served
	return old.Created != now.Created || renumbered || headless(old) != headless(now) ||
		!maps.Equal(old.Spec.GetSelector(), now.Spec.GetSelector())
}

// routerViews marks the views of all routers if the edit may change which routers the Gateway selects.
func routerViews(c *change, _ input.Types, e mirror.Edit) {
	old, _ := e.Old.(*model.Gateway)
	now, _ := e.New.(*model.Gateway)
	c.routers = c.routers || old == nil || now == nil || old.Created != now.Created || !maps.Equal(old.Spec.GetSelector(), now.Spec.GetSelector())
}

// namedMembers marks the endpoints of the record's hosts.
func namedMembers(c *change, t input.Types, e mirror.Edit) {
	for h := range hostsOf(e) {
		c.members[h] |= t
	}
}

// ownAddresses marks the record's hosts, whose endpoints may be gateways' own Pods. Hosts with endpoints at the same
// addresses depend on the record's hosts.
func ownAddresses(c *change, _ input.Types, e mirror.Edit) {
	for h := range hostsOf(e) {
		c.addresses[h] = true
	}
}

// namedPorts marks the workloads whose port numbers come from the record's endpoints. It marks nothing if ports and
// hosts are unchanged.
func namedPorts(c *change, _ input.Types, e mirror.Edit) {
	if samePorts(e) {
		return
	}
	for h := range hostsOf(e) {
		c.ports[h] = true
	}
}

// samePorts reports whether an edit of Endpoints leaves their ports and hosts unchanged.
func samePorts(e mirror.Edit) bool {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	return had && has && slices.EqualFunc(old.Spec.GetPorts(), now.Spec.GetPorts(), samePort) &&
		slices.Equal(old.Spec.GetHosts(), now.Spec.GetHosts())
}

// samePort reports whether two ports have the same name and number.
func samePort(a, b *model.EndpointPort) bool {
	return a.GetName() == b.GetName() && a.GetNumber() == b.GetNumber()
}

// servedViews marks the views of the record's namespace if the edit changes the proxies that are endpoints of a
// ServiceEntry.
func servedViews(c *change, _ input.Types, e mirror.Edit) {
	if restated(e) {
		c.views[e.Key().Namespace] = true
	}
}

// restated reports whether an edit changes addresses or ports of the endpoints that a ServiceEntry states.
func restated(e mirror.Edit) bool {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	same := had && has && samePorts(e) && slices.EqualFunc(old.Spec.GetEndpoints(), now.Spec.GetEndpoints(), func(a, b *model.Endpoint) bool {
		return a.GetAddress() == b.GetAddress() && maps.Equal(a.GetPorts(), b.GetPorts())
	})
	return !same && strings.HasPrefix(e.Key().Name, model.ServiceEntryPrefix)
}

// pulled marks the destinations of a VirtualService before and after the edit.
func pulled(c *change, _ input.Types, e mirror.Edit) { c.pulls = append(c.pulls, e) }

// labelKeys marks all views if the edit changes the set of labels, places or networks of proxies that rules read.
func labelKeys(c *change, _ input.Types, e mirror.Edit) {
	if c.relabelled[e.Key()] {
		c.views["*"] = true
	}
}

// namesIt marks the scopes and workloads whose view names the record.
func namesIt(c *change, _ input.Types, e mirror.Edit) { c.readers[e.Key()] = true }
