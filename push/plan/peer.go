package plan

import (
	"cmp"
	"maps"
	"slices"

	"navarch.io/navarch/push/build/cluster"
	"navarch.io/navarch/push/build/listener"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

var policies intern.Table[*model.Policy]

// peersOf are the PeerAuthentications that decide for endpoints of a namespace, the oldest first: its own and the root
// namespace's; none where not one of them turns mTLS off, for then the endpoints' labels say it all.
func (w *input) peersOf(namespace string) intern.List[*model.Policy] {
	if found, ok := w.peers[namespace]; ok {
		return found
	}
	var out []*model.Policy
	off := false
	for _, ns := range slices.Compact([]string{namespace, w.root()}) {
		for r := range w.In(model.KindPeerAuthentication, ns) {
			p := r.(*model.Policy)
			if ns != namespace && !p.Spec.GetMeshWide() {
				continue
			}
			out = append(out, p)
			all, ports := model.PeerModes(p)
			off = off || all == model.MTLSDisable
			for _, mode := range ports {
				off = off || mode == model.MTLSDisable
			}
		}
	}
	if !off {
		out = nil
	}
	slices.SortFunc(out, func(a, b *model.Policy) int { return a.Older(&b.Head) })
	list := policies.List(out...)
	w.peers[namespace] = list
	return list
}

// peersFor are those that decide for a service's endpoints, as this scope's proxies have to know them.
func (s *scope) peersFor(svc *model.Service) intern.List[*model.Policy] {
	if !s.key.Caps.Has(xds.CapIdentity) {
		return intern.List[*model.Policy]{}
	}
	return s.peersOf(svc.Key.Namespace)
}

// modeOf is the mode of one port of a workload: the policy that selects it (its port before its rest) decides, then its
// namespace's, then the mesh's; of several of one kind the oldest. Nothing stated is permissive
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/).
func modeOf(peers []*model.Policy, namespace string, labels map[string]string, port uint32) model.MTLS {
	var levels [3]*model.Policy
	for _, p := range peers {
		level := 2
		switch {
		case len(p.Spec.GetSelector()) > 0 && (p.Key.Namespace != namespace || !view.Matches(p.Spec.GetSelector(), labels)):
			continue
		case len(p.Spec.GetSelector()) > 0:
			level = 0
		case p.Key.Namespace == namespace:
			level = 1
		}
		if levels[level] == nil {
			levels[level] = p
		}
	}
	return firstMode(levels[:], port)
}

func policiesAt(w *input, keys intern.List[model.Key]) (out []*model.Policy) {
	for _, k := range keys.All() {
		if r, ok := w.Get(k); ok {
			out = append(out, r.(*model.Policy))
		}
	}
	return out
}

// firstMode is the first mode that is stated; nil policies state none.
func firstMode(levels []*model.Policy, port uint32) model.MTLS {
	for _, p := range levels {
		all, ports := model.PeerModes(p)
		if mode := cmp.Or(ports[port], all); mode != model.MTLSUnset {
			return mode
		}
	}
	return model.MTLSPermissive
}

// mode is how the workload takes connections to one of its ports; 0: to ports that no policy names.
func (wl *workload) mode(port uint32) listener.MTLS {
	switch firstMode(wl.peers, port) {
	case model.MTLSDisable:
		return listener.Plain
	case model.MTLSStrict:
		return listener.Strict
	case model.MTLSPermissive, model.MTLSUnset:
	}
	return listener.Permissive
}

// unnamed are ports that no service names and a PeerAuthentication does.
func (wl *workload) unnamed() (out []listener.InboundPort) {
	named := map[uint32]bool{}
	for _, p := range wl.peers {
		_, ports := model.PeerModes(p)
		for number := range ports {
			named[number] = true
		}
	}
	for _, number := range slices.Sorted(maps.Keys(named)) {
		if number > 0 && number < 65536 {
			out = append(out, listener.InboundPort{Port: number, Protocol: model.Protocol_PROTOCOL_AUTO, Cluster: xds.InboundPassthrough,
				ServicePort: number, MTLS: wl.mode(number)})
		}
	}
	return out
}

// plainOf are the members for which PeerAuthentication turns mTLS off.
func plainOf(q selection, list []model.Member) intern.List[model.Member] {
	if q.peers.Len() == 0 {
		return intern.List[model.Member]{}
	}
	var out []model.Member
	for _, m := range list {
		namespace := cmp.Or(m.Endpoint.GetNamespace(), q.service.Key.Namespace)
		if m.Endpoint.GetMtls() && modeOf(q.peers.All(), namespace, m.Endpoint.GetLabels(), m.Port) == model.MTLSDisable {
			out = append(out, m)
		}
	}
	return members.List(out...)
}

// accountsOf are the service accounts behind a service, ready or not, as "namespace/name".
func accountsOf(s *mirror.Snapshot, host, namespace string) []string {
	var out []string
	for r := range s.ByHost(model.KindEndpoints, host) {
		slice := r.(*model.Endpoints)
		if slice.Key.Namespace != namespace {
			continue
		}
		for _, e := range slice.Spec.GetEndpoints() {
			if e.GetServiceAccount() != "" {
				out = append(out, cmp.Or(e.GetNamespace(), namespace)+"/"+e.GetServiceAccount())
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (w *input) accountsOf(host, namespace string) intern.List[string] {
	key := [2]string{host, namespace}
	list, ok := w.accounts[key]
	if !ok {
		list = strs.List(accountsOf(w.Snapshot, host, namespace)...)
		w.accounts[key] = list
	}
	return list
}

// secure fills in how a cluster speaks mTLS. A proxy without a certificate never does.
func (s *scope) secure(spec *cluster.Outbound, q selection, labels map[string]string) {
	if !s.key.Caps.Has(xds.CapIdentity) || q.service.Spec.GetExternal() {
		return
	}
	spec.Accounts = s.accountsOf(q.host, q.service.Key.Namespace)
	spec.Denied = s.deniedOf(spec)
	if !s.mesh.Spec.GetEnableAutoMtls().GetValue() {
		return
	}
	switch {
	case q.service.Spec.GetResolution() == model.Resolution_RESOLUTION_NONE:
	case byPod(q.service):
		all := s.membersOf(q, labels).All()
		mtls := func(m model.Member) bool { return m.Endpoint.GetMtls() }
		if len(all) > 0 && !slices.ContainsFunc(all, func(m model.Member) bool { return !mtls(m) }) && plainOf(q, all).Len() == 0 {
			spec.Auto = cluster.AutoAll
		}
	default:
		spec.Auto = cluster.AutoEndpoints
		spec.MTLSDisabled = s.mtlsDisabledOf(q)
		spec.Plain = plainOf(q, spec.Members.All())
	}
}

// byPod says whether clients choose the pod of a service themselves: Envoy does not know its endpoints.
func byPod(svc *model.Service) bool {
	return svc.Spec.GetHeadless() && svc.Key.Kind == model.KindService && svc.Spec.GetResolution() == model.Resolution_RESOLUTION_EDS
}

// peered: hosts of services whose endpoints the PeerAuthentication may reach.
func peered(c *change, t types, e mirror.Edit) {
	mark := func(r model.Record) {
		for _, h := range hostsOf(r) {
			c.hosts[h] |= t
		}
	}
	namespace := e.Key().Namespace
	for _, kind := range []model.Kind{model.KindService, model.KindServiceEntry} {
		all := c.input.In(kind, namespace)
		if namespace == c.was || namespace == c.input.root() {
			all = c.input.All(kind)
		}
		for r := range all {
			mark(r)
		}
	}
}
