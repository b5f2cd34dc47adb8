package analyze

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/build/vhost"
	"navarch.io/navarch/push/inspect"
	"navarch.io/navarch/push/plan"
	"navarch.io/navarch/push/plan/front/gateway"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/virtualservice"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/loop"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/normal"
	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/problem"
)

// The limits of planProxies.
const (
	mostHosts   = 2000 // hosts that the planned proxies have in sum
	mostRouters = 100  // routers that are planned
)

// planProxies plans the proxies of the analysed objects as a replica would: each router, and a sidecar of each scope
// (the sidecars that import the same) as long as there is room for its hosts (mostHosts). Of more services, routers are
// planned with those that they use (world.ofRouters). planProxies stores the problems of the plan in world.planned.
func planProxies(w *world) {
	room, hosts, of := mostHosts, len(w.records[model.KindService])+len(w.records[model.KindServiceEntry]), w.known
	if hosts > mostHosts {
		of = w.ofRouters()
	}
	planner := plan.New(plan.Settings{Snapshot: w.withKeys(of), Cluster: w.Normal.Cluster})
	for _, r := range w.routers[:min(len(w.routers), mostRouters)] {
		n := w.routerNode(r)
		if hosts > room {
			n.Routers.Routed = true
		} else {
			room -= hosts
		}
		h := planner.Join(n)
		if !r.assumed && w.knowsFiles("Secret") {
			w.answerSecrets(planner, h)
		}
	}
	if hosts <= room {
		w.joinSidecars(planner, hosts, room)
	}
	w.planned = append(w.planned, planner.Problems()...)
}

// joinSidecars joins the sidecars of as many scopes as there is room for their hosts.
func (w *world) joinSidecars(planner *plan.Planner, hosts, room int) {
	x, seen := view.NewIndex(w.known), map[view.Scope]bool{}
	all := w.sidecars()
	for _, namespace := range sorted(all) {
		for _, n := range all[namespace] {
			scope := x.View(w.known, n).Scope
			if !seen[scope] {
				if hosts > room {
					continue
				}
				seen[scope], room = true, room-hosts
			}
			n.Caps |= xds.CapIdentity
			planner.Join(n)
		}
	}
}

// ofRouters returns the configuration without VirtualServices that name no Gateway, and without services that routers
// do not use: those that no other VirtualService and no extension provider names, outside the routers' namespaces. It
// stores the problems of the VirtualServices that it leaves out.
func (w *world) ofRouters() *mirror.Snapshot {
	hosts, near := map[string]bool{}, map[string]bool{}
	for _, r := range w.routers {
		near[r.namespace] = true
	}
	for r := range w.known.All(model.KindMesh) {
		for _, name := range gateway.Providers(r.(*model.Mesh).Spec) {
			_, host, some := strings.Cut(name, "/")
			hosts[name], hosts[host] = true, some
		}
	}
	var kept []model.Record
	var others []*model.VirtualService
	for r := range w.known.All(model.KindVirtualService) {
		vs := r.(*model.VirtualService)
		if !slices.ContainsFunc(vs.Spec.GetGateways(), func(name string) bool { return name != "mesh" }) {
			others = append(others, vs)
			continue
		}
		kept = append(kept, vs)
		for host := range virtualservice.Hosts(vs) {
			hosts[host] = true
		}
	}
	for _, kind := range model.Kinds() {
		for r := range w.known.All(kind) {
			svc, is := r.(*model.Service)
			unused := is && !near[svc.Key.Namespace] && !slices.ContainsFunc(svc.Spec.GetHosts(), func(host string) bool { return hosts[host] })
			if kind != model.KindVirtualService && !unused {
				kept = append(kept, r)
			}
		}
	}
	found := make([][]error, len(others))
	loop.Each(len(others), func(i int) { found[i] = vhost.Problems(others[i]) })
	for i, errs := range found {
		for _, err := range errs {
			w.planned = append(w.planned, model.ProblemOf(err, others[i].Key))
		}
	}
	return mirror.Empty().Apply(w.known.Revision(), kept, nil).New
}

// routerNode returns the node of a router.
func (w *world) routerNode(r *router) view.Node {
	e := r.workload
	n := view.Node{Kind: view.Router, Name: cmp.Or(r.name, "router"), Namespace: r.namespace, Labels: r.labels, Workload: e.GetWorkload(),
		Account: e.GetServiceAccount(), Network: e.GetNetwork(), Locality: e.GetLocality(),
		Domain: "svc." + cmp.Or(w.Normal.Domain, "cluster.local"), Caps: xds.StockCaps | xds.CapIdentity, Routers: w.Routers}
	n.Routers.OwnNamespace = w.Normal.OwnGateways
	if address, err := netip.ParseAddr(e.GetAddress()); err == nil {
		n.Addresses = []string{e.GetAddress()}
		n.Routers.Local = n.Routers.Local || address.IsLoopback() // all proxies and workloads share a machine, as in demos
	}
	n.ID = "router~" + e.GetAddress() + "~" + n.Name + "." + n.Namespace + "~" + n.Namespace + "." + n.Domain
	n.Pod, n.Verified = n.Name, view.Identity{Namespace: n.Namespace, Account: n.Account}
	return n
}

// knowsFiles reports whether objects of a core kind are known, and all of them are of files. Of a cluster, only the
// Secrets that Gateways name are read, and no bindings of roles.
func (w *world) knowsFiles(of string) bool {
	return w.knows(of) && !w.live("Pod") && !w.live(of) && len(w.byKind[kind{"", of}]) > 0
}

// withKeys returns a configuration, in which each Secret with a certificate has a private key: the keys are never
// decrypted here, and any bytes mark that there is one.
func (w *world) withKeys(known *mirror.Snapshot) *mirror.Snapshot {
	var all []model.Record
	for s := range each[*model.Secret](w, model.KindSecret) {
		if len(s.Spec.GetChain()) > 0 && len(s.Spec.GetKey()) == 0 {
			one := *s
			one.Spec = proto.CloneOf(s.Spec)
			one.Spec.Key = []byte("not sealed")
			one.Hash = model.HashOf(append(s.Hash[:], one.Spec.Key...))
			all = append(all, &one)
		}
	}
	if len(all) == 0 {
		return known
	}
	return known.Apply(known.Revision(), all, nil).New
}

// answerSecrets provides the planner with the Secrets that a router's listeners and clusters name, as far as its
// service account may read them. If the objects contain neither bindings of roles nor the ServiceAccount, these are
// elsewhere, and the account is assumed to have the right.
func (w *world) answerSecrets(planner *plan.Planner, h *plan.Handle) {
	var names []string
	all := inspect.Of(h.Set())
	for _, r := range slices.Concat(all[xds.Cluster], all[xds.Listener]) {
		if named, err := inspect.SecretsOf(r); err == nil {
			names = append(names, named...)
		}
	}
	planner.SubscribeSecrets(h, names, nil)
	who := h.View().Secrets
	right := access.Answer{Allowed: true}
	if access.HasBindings(planner.Snapshot(), who.Cluster) || w.byID[w.id("", "ServiceAccount", who.Namespace, who.Account)] != nil {
		right = access.Granted(planner.Snapshot(), who)
	}
	planner.Authorised(who.OfAccount(), access.Standing{Known: true, Allowed: right.Allowed, Why: right.Why})
	for _, record := range planner.Sealed() {
		planner.Opened(record, model.PrivateKey{})
	}
}

// planned adds the problems of planProxies that no other check has found. The webhook permits the objects of these
// problems, so the code is not SchemaValidationError.
func planned(w *world) {
	known := map[object.ID][]Finding{}
	for _, f := range w.findings {
		known[f.id] = append(known[f.id], f)
	}
	for _, p := range w.planned {
		if p.Analyzer == problem.GatewayPortNotDefinedOnService {
			continue // routers reports it, unless the Service may come from elsewhere
		}
		one := object.Problem{ID: normal.SourceObject(p.Key), Field: p.Field, Code: p.Code, Analyzer: p.Analyzer, Severity: p.Severity,
			Message: p.Full()}
		code := cmp.Or(p.Analyzer, schemaCode(one), problem.Analyzer(p.Code))
		if slices.ContainsFunc(known[one.ID], func(f Finding) bool { return f.covers(one, code) }) {
			continue
		}
		if one.Analyzer = code; code == problem.SchemaValidationError {
			one.Analyzer = problem.Analyzer(p.Code)
		}
		w.problem(one)
	}
}

// covers reports whether a finding has the code of a problem, or a more exact one, at the problem's field or below it.
// Messages of plans may begin with a field below theirs; findings at that field are about the same.
func (f Finding) covers(p object.Problem, code problem.Analyzer) bool {
	if at, _, _ := strings.Cut(p.Message, ": "); f.Field == p.Field+"."+at {
		return true
	}
	rest, below := strings.CutPrefix(f.Field, p.Field)
	if !below || rest != "" && p.Field != "" && rest[0] != '.' && rest[0] != '[' {
		return false
	}
	return f.Code == string(code) || code == problem.ReferencedResourceNotFound && f.Code == string(problem.InvalidGatewayCredential)
}
