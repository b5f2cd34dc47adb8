package plan

import (
	"maps"
	"slices"
	"strings"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// dirt is the units that a change makes to be planned again.
type dirt struct {
	everything bool
	views      map[string]bool    // namespaces whose proxies' views may be others; "*": all
	readers    map[model.Key]bool // Sidecars, EnvoyFilters, extensions: scopes and workloads that name them
	services   map[model.Key]bool // workloads that they select
	ports      map[string]bool    // hosts: workloads whose ports their endpoints name
	served     map[string]bool    // hosts of services: workloads whose CUSTOM policies name a provider there
	hosts      map[string]input.Types
	patterns   map[string]input.Types // hosts that a wildcard covers
	members    map[string]input.Types // hosts: what depends on their endpoints
	secrets    map[model.Key]bool
	referred   map[string]bool // names of Secrets that are used or not, in whatever namespace
	labelled   map[string]bool // namespaces: labels that the source has for workloads of theirs
	pods       map[pod]bool    // proxies whose credential is bound to them
	allPods    bool            // those that are bound to any
	granted    map[string]bool // namespaces: the right to list Secrets there; "": in all
	reporting  map[string]bool // namespaces: what the listeners of their proxies report; "*": of all
	pulls      []mirror.Edit   // VirtualServices whose destinations are seen where a Sidecar names their hosts
}

func newDirt() *dirt {
	return &dirt{views: map[string]bool{}, readers: map[model.Key]bool{}, services: map[model.Key]bool{}, ports: map[string]bool{}, served: map[string]bool{},
		hosts: map[string]input.Types{}, patterns: map[string]input.Types{}, members: map[string]input.Types{}, secrets: map[model.Key]bool{},
		referred: map[string]bool{}, pods: map[pod]bool{}, labelled: map[string]bool{}, granted: map[string]bool{}, reporting: map[string]bool{}}
}

// effect is one cell of the table: units that an edit of a record touches, and the types of resources in them.
type effect struct {
	name  string
	types input.Types
	units func(*change, input.Types, mirror.Edit)
	slow  []slowReason // when the endpoint fast path cannot do what the cell says; nil: never can it (fast_path.go)
}

// change is a step while its dirt is collected: what was, what is, and the dirt.
type change struct {
	*dirt
	in  *input.Input // of the new snapshot
	was string       // the root namespace before
	// relabelled are the records whose edit changes which labels, or what else of proxies, matters.
	relabelled map[model.Key]bool
}

// affects says which input touches which output. Both the old and the new record count: hosts, selectors and exports
// shrink as well as grow. A kind without a row touches everything, one whose row is empty nothing: no plan reads it.
var affects = [model.NumKinds][]effect{
	model.KindMesh: {
		{"everything", input.All, everything, nil}, // defaults of every rule, policies, ports
	},
	model.KindService: {
		{"hosts", input.All, namedHosts, nil},                      // which service a host means, its ports, names and addresses
		{"routes to it", input.LDS | input.RDS, routedHosts, nil},  // destinations of VirtualServices that come or go
		{"routes of it", input.RDS, namedBeside, nil},              // ports at which VirtualServices that name it make other hosts known
		{"wildcards", input.RDS, coveringHosts, nil},               // ports at which VirtualServices make wildcards that cover it known
		{"workloads", input.CDS | input.LDS, serviceSelected, nil}, // inbound ports
		{"views", input.All, namespaceViews, nil},                  // whom the selector picks
		{"asked", input.LDS, askedHosts, nil},                      // providers of external authorization
		{"places", input.All, labelKeys, nil},                      // which inputs its traffic distribution reads
		{"alias", input.RDS, aliased, nil},                         // names of the host that it is another name of
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
		{"members", input.CDS | input.EDS | input.LDS, namedMembers, slowMembers}, // clusters of DNS services and listeners of headless ones, too
		{"ports", input.CDS | input.LDS, namedPorts, slowPorts},                   // target ports that have names
		{"served", input.CDS | input.LDS, servedViews, slowServed},                // ports of proxies that ServiceEntries state as endpoints
		{"labels", input.SDS, labelledWorkloads, slowLabels},                      // selectors decide by them who uses a Secret
	},
	model.KindVirtualService: {
		{"hosts", input.RDS, namedHosts, nil},           // virtual hosts
		{"connections", input.LDS, connectedHosts, nil}, // TCP chains, also of wildcards that cover them
		{"wildcards", input.RDS, coveringHosts, nil},    // which VirtualService is the most specific for a host that others' wildcards cover
		{"destinations", input.All, pulled, nil},        // they are seen with the VirtualService
		{"views", input.All, labelKeys, nil},            // sourceLabels decide the variants
	},
	model.KindDestinationRule: {
		{"hosts", input.All, namedHosts, nil},                     // policies, subsets; hashing stands on the route
		{"routes to it", input.LDS | input.RDS, routedHosts, nil}, // subsets that come or go
		{"views", input.All, labelKeys, nil},                      // which inputs its selector and its localities read
		{"workloads", input.CDS, ruledServices, nil},              // connection pools of inbound clusters
		{"Secrets", input.SDS, referredSecrets, nil},
		{"Pods", input.SDS, selectedPods, nil}, // by which labels Pods use them
	},
	model.KindSidecar: {
		{"views", input.All, namespaceViews, nil}, // which Sidecar applies
		{"readers", input.All, namesIt, nil},
	},
	model.KindEnvoyFilter: {
		{"views", input.All, namespaceViews, nil},
		{"readers", input.All | input.ECDS, namesIt, nil},
		{"Secrets", input.SDS, referredSecrets, nil},
		{"Pods", input.SDS, selectedPods, nil}, // by which labels Pods use them
	},
	model.KindPeerAuthentication: {
		{"hosts", input.CDS | input.EDS, peered, nil}, // endpoints that take no mTLS, and the digest of these in clusters
		{"views", input.All, namespaceViews, nil},     // which modes apply
		{"readers", input.LDS, namesIt, nil},
	},
	model.KindAuthorizationPolicy: {
		{"views", input.All, namespaceViews, nil}, // whom it selects
		{"readers", input.LDS, namesIt, nil},
		{"hosts", input.CDS, deniedHosts, nil}, // whom clusters believe no more
	},
	model.KindRequestAuthentication: {
		{"views", input.All, namespaceViews, nil}, // whom it selects
		{"readers", input.LDS, namesIt, nil},      // its keys, too
	},
	model.KindSecret: {
		{"asked for", input.SDS, namedSecret, nil}, // by proxies of its namespace
	},
	model.KindGateway: {
		{"Secrets", input.SDS, referredSecrets, nil},
		{"Pods", input.SDS, selectedPods, nil}, // by which labels Pods use them
	},
	model.KindSecretReader: {
		{"rights", input.SDS, grantedRights, nil}, // the authoriser is asked again
	},
	model.KindWorkload: {
		{"labels", input.SDS, labelledWorkloads, slowLabels}, // as of Endpoints; what selects it has Endpoints of it (push/resolve)
		{"its proxy", input.All, boundProxies, slowProxy},    // selectors decide by its labels what is for the proxy, and which Secrets it uses
	},
	model.KindNetworkGateways: {
		{"hosts", input.CDS, everyHost, nil}, // with a host's clusters its variations plan the assignments that read the network (host.Variation)
		{"views", input.All, labelKeys, nil}, // networks of proxies are read where there are any
	},
	model.KindTelemetry: {
		{"listeners", input.LDS, reported, nil},   // what they report
		{"views", input.LDS, telemetryViews, nil}, // whom the selector picks, and who sends spans
	},
	model.KindWasmPlugin: {
		{"views", input.All, namespaceViews, nil}, // whom it selects, how they run it, and the filters of their outbound listeners
		{"readers", input.LDS | input.ECDS, namesIt, nil},
		{"Secrets", input.ECDS, referredSecrets, nil}, // with whose credentials modules are fetched
		{"Pods", input.ECDS, selectedPods, nil},       // by which labels Pods fetch with them
	},
	model.KindTrafficExtension: {
		{"views", input.All, namespaceViews, nil},
		{"readers", input.LDS | input.ECDS, namesIt, nil},
		{"Secrets", input.ECDS, referredSecrets, nil}, // with whose credentials modules are fetched
		{"Pods", input.ECDS, selectedPods, nil},       // by which labels Pods fetch with them
	},
	model.KindProxyConfig:    {}, // Pods are injected by it
	model.KindServiceAccount: {}, // tokens are compared with it (push/identities)
	model.KindNamespace:      {}, // the same
	model.KindWorkloadGroup:  {}, // which service accounts are machines' (push/identities)
}

// collect gathers the dirt of a change from a table.
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

func records(e mirror.Edit) []model.Record {
	return slices.DeleteFunc([]model.Record{e.Old, e.New}, func(r model.Record) bool { return r == nil })
}

func everything(c *change, _ input.Types, _ mirror.Edit) {
	c.everything = true
	c.views["*"] = true
}

// namedHosts: the record's hosts, and those that its wildcards cover. A service's wildcard is a host like others.
func namedHosts(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		_, isService := r.(*model.Service)
		for _, h := range input.HostsOf(r) {
			c.hosts[h] |= t
			if input.IsWildcard(h) && !isService {
				c.patterns[h] |= t
			}
		}
	}
}

// everyHost: all that there are.
func everyHost(c *change, t input.Types, _ mirror.Edit) { c.patterns["*"] |= t }

// serviceSelected: workloads that the service selects before and after; where it selects others, their views change.
func serviceSelected(c *change, _ input.Types, e mirror.Edit) { c.services[e.Key()] = true }

// askedHosts: workloads whose CUSTOM policies name a provider at a host that comes or goes.
func askedHosts(c *change, _ input.Types, e mirror.Edit) {
	if e.Old != nil && e.New != nil && slices.Equal(input.HostsOf(e.Old), input.HostsOf(e.New)) {
		return
	}
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			c.served[h] = true
		}
	}
}

// ruledServices: workloads of the services that the rule is for.
func ruledServices(c *change, _ input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		pattern := r.(*model.DestinationRule).Spec.GetHost()
		for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
			services := c.in.ByHost(kind, pattern)
			if input.IsWildcard(pattern) {
				services = c.in.All(kind)
			}
			for svc := range services {
				if slices.ContainsFunc(input.HostsOf(svc), func(h string) bool { return input.Covers(pattern, h) }) {
					c.services[svc.Meta().Key] = true
				}
			}
		}
	}
}

// namespaceViews: proxies of the record's namespace; of all, where it is the root namespace.
func namespaceViews(c *change, _ input.Types, e mirror.Edit) {
	if !selects(e) {
		return
	}
	namespace := e.Key().Namespace
	if namespace == c.was || namespace == c.in.Root() {
		namespace = "*"
	}
	c.views[namespace] = true
}

// selects says whether an edit may change whom a record picks. Services have selectors rarely edited, and so do policies, whose keys change: the rest
// of them cannot change a view.
func selects(e mirror.Edit) bool {
	if old, is := e.Old.(*model.Policy); is {
		now, still := e.New.(*model.Policy)
		return !still || old.Created != now.Created || old.Spec.GetClosed() != now.Spec.GetClosed() || old.Spec.GetMeshWide() != now.Spec.GetMeshWide() ||
			!maps.Equal(old.Spec.GetSelector(), now.Spec.GetSelector())
	}
	old, isService := e.Old.(*model.Service)
	now, still := e.New.(*model.Service)
	if !isService || !still {
		return true
	}
	headless := func(s *model.Service) bool {
		return s.Spec.GetHeadless() && slices.ContainsFunc(s.Spec.GetPorts(), func(p *model.ServicePort) bool { return !input.IsHTTP(p.GetProtocol()) })
	}
	renumbered := now.Key.Kind == model.KindServiceEntry && !slices.EqualFunc(old.Spec.GetPorts(), now.Spec.GetPorts(), equalPorts) // see view.Served
	return old.Created != now.Created || renumbered || headless(old) != headless(now) || !maps.Equal(old.Spec.GetSelector(), now.Spec.GetSelector())
}

func namedMembers(c *change, t input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			c.members[h] |= t
		}
	}
}

func namedPorts(c *change, _ input.Types, e mirror.Edit) {
	if samePorts(e) {
		return
	}
	for _, r := range records(e) {
		for _, h := range input.HostsOf(r) {
			c.ports[h] = true
		}
	}
}

// samePorts says whether an edit of endpoints leaves their ports and hosts as they are.
func samePorts(e mirror.Edit) bool {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	return had && has && slices.EqualFunc(old.Spec.GetPorts(), now.Spec.GetPorts(), samePort) && slices.Equal(old.Spec.GetHosts(), now.Spec.GetHosts())
}

func samePort(a, b *model.EndpointPort) bool {
	return a.GetName() == b.GetName() && a.GetNumber() == b.GetNumber()
}

// servedViews: proxies of the namespace, of which some are what a ServiceEntry states as its endpoints, or were.
func servedViews(c *change, _ input.Types, e mirror.Edit) {
	if restated(e) {
		c.views[e.Key().Namespace] = true
	}
}

// restated says whether an edit is of endpoints that a ServiceEntry states, and has them at other addresses or ports.
func restated(e mirror.Edit) bool {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	same := had && has && samePorts(e) && slices.EqualFunc(old.Spec.GetEndpoints(), now.Spec.GetEndpoints(), func(a, b *model.Endpoint) bool {
		return a.GetAddress() == b.GetAddress() && maps.Equal(a.GetPorts(), b.GetPorts())
	})
	return !same && strings.HasPrefix(e.Key().Name, model.ServiceEntryPrefix)
}

func pulled(c *change, _ input.Types, e mirror.Edit) { c.pulls = append(c.pulls, e) }

// labelKeys: all views, where other labels of proxies are read, or their places or networks now, or no longer.
func labelKeys(c *change, _ input.Types, e mirror.Edit) {
	if c.relabelled[e.Key()] {
		c.views["*"] = true
	}
}

// namedSecret: what is made of the Secret for those who ask for it.
func namedSecret(c *change, _ input.Types, e mirror.Edit) { c.secrets[secret.Anywhere(e.Key())] = true }

// referredSecrets: what is made of the Secrets that the record refers to, or did.
func referredSecrets(c *change, _ input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for ref := range access.AllReferences(r) {
			c.referred[ref.Name] = true
		}
	}
}

// labelledWorkloads: what is made of Secrets for workloads of the namespace.
func labelledWorkloads(c *change, _ input.Types, e mirror.Edit) { c.labelled[e.Key().Namespace] = true }

// grantedRights: the rights of identities of the namespace; of all, where it is a ClusterRoleBinding.
func grantedRights(c *change, _ input.Types, e mirror.Edit) { c.granted[e.Key().Namespace] = true }

// namesIt: scopes and workloads whose view names the record.
func namesIt(c *change, _ input.Types, e mirror.Edit) { c.readers[e.Key()] = true }
