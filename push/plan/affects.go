package plan

import (
	"maps"
	"slices"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// dirt is the units that a change makes to be planned again.
type dirt struct {
	everything bool
	views      map[string]bool    // namespaces whose proxies' views may be others; "*": all
	readers    map[model.Key]bool // Sidecars and EnvoyFilters: scopes and workloads that name them
	services   map[model.Key]bool // workloads that they select
	ports      map[string]bool    // hosts: workloads whose ports their endpoints name
	hosts      map[string]types
	patterns   map[string]types // hosts that a wildcard covers
	members    map[string]types // hosts: what depends on their endpoints
	secrets    map[model.Key]bool
	referred   map[string]bool // names of Secrets that are used or not, in whatever namespace
	labelled   map[string]bool // namespaces: labels that the source has for workloads of theirs
	granted    map[string]bool // namespaces: the right to list Secrets there; "": in all
	pulls      []mirror.Edit   // VirtualServices whose destinations are seen where a Sidecar names their hosts
}

func newDirt() *dirt {
	return &dirt{views: map[string]bool{}, readers: map[model.Key]bool{}, services: map[model.Key]bool{}, ports: map[string]bool{},
		hosts: map[string]types{}, patterns: map[string]types{}, members: map[string]types{}, secrets: map[model.Key]bool{},
		referred: map[string]bool{}, labelled: map[string]bool{}, granted: map[string]bool{}}
}

// effect is one cell of the table: units that an edit of a record touches, and the types of resources in them.
type effect struct {
	name  string
	types types
	units func(*change, types, mirror.Edit)
}

// change is a step while its dirt is collected: what was, what is, and the dirt.
type change struct {
	*dirt
	input *input // of the new snapshot
	was   string // the root namespace before
	// relabelled are the VirtualServices whose edit changes which labels of proxies matter.
	relabelled map[model.Key]bool
}

// affects says which input touches which output. Both the old and the new record count: hosts, selectors and exports
// shrink as well as grow. A kind without a row touches everything.
var affects = [model.NumKinds][]effect{
	model.KindMesh: {
		{"everything", all, everything}, // defaults of every rule, policies, ports
	},
	model.KindService: {
		{"hosts", all, namedHosts},                // which service a host means, its ports, names and addresses
		{"routes to it", lds | rds, routedHosts},  // destinations of VirtualServices that come or go
		{"workloads", cds | lds, serviceSelected}, // inbound ports
		{"views", all, namespaceViews},            // whom the selector picks
	},
	model.KindServiceEntry: {
		{"hosts", all, namedHosts},
		{"routes to it", lds | rds, routedHosts},
		{"workloads", cds | lds, serviceSelected},
		{"views", all, namespaceViews},
	},
	model.KindEndpoints: {
		{"members", cds | eds | lds, namedMembers}, // clusters of DNS services and listeners of headless ones, too
		{"ports", cds | lds, namedPorts},           // target ports that have names
		{"labels", sds, labelledWorkloads},         // selectors decide by them who uses a Secret
	},
	model.KindVirtualService: {
		{"hosts", lds | rds, namedHosts}, // virtual hosts; TCP chains
		{"destinations", all, pulled},    // they are seen with the VirtualService
		{"views", all, labelKeys},        // sourceLabels decide the families
	},
	model.KindDestinationRule: {
		{"hosts", all, namedHosts},               // policies, subsets; hashing stands on the route
		{"routes to it", lds | rds, routedHosts}, // subsets that come or go
		{"Secrets", sds, referredSecrets},        // who uses them
	},
	model.KindSidecar: {
		{"views", all, namespaceViews}, // which Sidecar applies
		{"readers", all, namesIt},
	},
	model.KindEnvoyFilter: {
		{"views", all, namespaceViews},
		{"readers", all, namesIt},
		{"Secrets", sds, referredSecrets},
	},
	model.KindPeerAuthentication: {
		{"hosts", cds | eds, peered},   // endpoints that take no mTLS, and that clusters know of it
		{"views", all, namespaceViews}, // which modes apply
		{"readers", lds, namesIt},
	},
	model.KindAuthorizationPolicy: {
		{"views", all, namespaceViews}, // whom it selects
		{"readers", lds, namesIt},
		{"hosts", cds, deniedHosts}, // whom clusters believe no more
	},
	model.KindSecret: {
		{"asked for", sds, namedSecret}, // by proxies of its namespace
	},
	model.KindGateway: {
		{"Secrets", sds, referredSecrets},
	},
	model.KindSecretReader: {
		{"rights", sds, grantedRights}, // the authoriser is asked again
	},
	model.KindWorkload: {
		{"labels", sds, labelledWorkloads}, // as of Endpoints; what selects it has Endpoints of it (push/resolve)
	},
}

// collect gathers the dirt of a change from a table.
func (c *change) collect(table *[model.NumKinds][]effect, edits []mirror.Edit) {
	for _, e := range edits {
		row := table[e.Key().Kind]
		if row == nil {
			everything(c, all, e)
		}
		for _, cell := range row {
			cell.units(c, cell.types, e)
		}
	}
}

func records(e mirror.Edit) []model.Record {
	return slices.DeleteFunc([]model.Record{e.Old, e.New}, func(r model.Record) bool { return r == nil })
}

func everything(c *change, _ types, _ mirror.Edit) {
	c.everything = true
	c.views["*"] = true
}

// hostsOf are the hosts that a record is about.
func hostsOf(r model.Record) []string {
	switch t := r.(type) {
	case *model.Service:
		return t.Spec.GetHosts()
	case *model.Endpoints:
		return t.Spec.GetHosts()
	case *model.VirtualService:
		return t.Spec.GetHosts()
	case *model.DestinationRule:
		return []string{t.Spec.GetHost()}
	}
	return nil
}

// namedHosts: the record's hosts, and those that its wildcards cover. A service's wildcard is a host like others.
func namedHosts(c *change, t types, e mirror.Edit) {
	for _, r := range records(e) {
		_, isService := r.(*model.Service)
		for _, h := range hostsOf(r) {
			c.hosts[h] |= t
			if isWildcard(h) && !isService {
				c.patterns[h] |= t
			}
		}
	}
}

// routedHosts: the hosts of VirtualServices that send to the record's hosts.
func routedHosts(c *change, t types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range hostsOf(r) {
			c.input.routesTo(h, func(vs *model.VirtualService) {
				for _, to := range vs.Spec.GetHosts() {
					c.hosts[to] |= t
					if isWildcard(to) {
						c.patterns[to] |= t
					}
				}
			})
		}
	}
}

// routesTo calls f with the VirtualServices that send to a host, or to one that a wildcard covers.
func (w *input) routesTo(host string, f func(*model.VirtualService)) {
	visit := func(keys map[model.Key]struct{}) {
		for key := range keys {
			if r, ok := w.Get(key); ok {
				f(r.(*model.VirtualService))
			}
		}
	}
	visit(w.index.routesTo[host])
	if isWildcard(host) {
		for to, keys := range w.index.routesTo {
			if to != host && covers(host, to) {
				visit(keys)
			}
		}
	}
}

// serviceSelected: workloads that the service selects before and after; where it selects others, their views change.
func serviceSelected(c *change, _ types, e mirror.Edit) { c.services[e.Key()] = true }

// namespaceViews: proxies of the record's namespace; of all, where it is the root namespace.
func namespaceViews(c *change, _ types, e mirror.Edit) {
	if !selects(e) {
		return
	}
	namespace := e.Key().Namespace
	if namespace == c.was || namespace == c.input.root() {
		namespace = "*"
	}
	c.views[namespace] = true
}

// selects says whether an edit may change whom a record picks. Services have selectors rarely edited: the rest of them
// cannot change a view.
func selects(e mirror.Edit) bool {
	old, isService := e.Old.(*model.Service)
	now, still := e.New.(*model.Service)
	if !isService || !still {
		return true
	}
	headless := func(s *model.Service) bool {
		return s.Spec.GetHeadless() && slices.ContainsFunc(s.Spec.GetPorts(), func(p *model.ServicePort) bool { return !isHTTP(p.GetProtocol()) })
	}
	return old.Created != now.Created || headless(old) != headless(now) || !maps.Equal(old.Spec.GetSelector(), now.Spec.GetSelector())
}

func namedMembers(c *change, t types, e mirror.Edit) {
	for _, r := range records(e) {
		for _, h := range hostsOf(r) {
			c.members[h] |= t
		}
	}
}

func namedPorts(c *change, _ types, e mirror.Edit) {
	old, had := e.Old.(*model.Endpoints)
	now, has := e.New.(*model.Endpoints)
	if had && has && slices.EqualFunc(old.Spec.GetPorts(), now.Spec.GetPorts(), samePort) && slices.Equal(old.Spec.GetHosts(), now.Spec.GetHosts()) {
		return
	}
	for _, r := range records(e) {
		for _, h := range hostsOf(r) {
			c.ports[h] = true
		}
	}
}

func samePort(a, b *model.EndpointPort) bool {
	return a.GetName() == b.GetName() && a.GetNumber() == b.GetNumber()
}

func pulled(c *change, _ types, e mirror.Edit) { c.pulls = append(c.pulls, e) }

// labelKeys: all views, where the set of labels that some rule reads is another.
func labelKeys(c *change, _ types, e mirror.Edit) {
	if c.relabelled[e.Key()] {
		c.views["*"] = true
	}
}

// namedSecret: what is made of the Secret for those who ask for it.
func namedSecret(c *change, _ types, e mirror.Edit) { c.secrets[e.Key()] = true }

// referredSecrets: what is made of the Secrets that the record refers to, or did.
func referredSecrets(c *change, _ types, e mirror.Edit) {
	for _, r := range records(e) {
		for ref := range access.References(r) {
			c.referred[ref.Name] = true
		}
	}
}

// labelledWorkloads: what is made of Secrets for workloads of the namespace.
func labelledWorkloads(c *change, _ types, e mirror.Edit) { c.labelled[e.Key().Namespace] = true }

// grantedRights: the rights of identities of the namespace; of all, where it is a ClusterRoleBinding.
func grantedRights(c *change, _ types, e mirror.Edit) { c.granted[e.Key().Namespace] = true }

// namesIt: scopes and workloads whose view names the record.
func namesIt(c *change, _ types, e mirror.Edit) { c.readers[e.Key()] = true }
