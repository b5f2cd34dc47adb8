package input

import (
	"cmp"
	"maps"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Peers lists the PeerAuthentications that apply to endpoints of a namespace, the oldest first: its own and the
// mesh-wide ones. The list is empty if none of them disables mTLS, because then the endpoints' labels are sufficient.
func (in *Input) Peers(namespace string) intern.List[*model.Policy] {
	if found, ok := in.peers[namespace]; ok {
		return found
	}
	all := in.applicablePeers(namespace)
	off := slices.ContainsFunc(all, func(p *model.Policy) bool {
		mode, ports := model.PeerModes(p)
		return mode == model.MTLSDisable || slices.Contains(slices.Collect(maps.Values(ports)), model.MTLSDisable)
	})
	if !off {
		all = nil
	}
	list := policies.List(all...)
	in.peers[namespace] = list
	return list
}

// applicablePeers lists the PeerAuthentications that apply to endpoints of a namespace, the oldest first.
func (in *Input) applicablePeers(namespace string) []*model.Policy {
	out, known := in.applicable[namespace]
	if known {
		return out
	}
	for _, ns := range slices.Compact([]string{namespace, in.Root()}) {
		for r := range in.In(model.KindPeerAuthentication, ns) {
			if p := r.(*model.Policy); ns == namespace || p.Spec.GetMeshWide() {
				out = append(out, p)
			}
		}
	}
	slices.SortFunc(out, func(a, b *model.Policy) int { return a.Older(&b.Head) })
	in.applicable[namespace] = out
	return out
}

// Demands reports whether a member of a cluster accepts mTLS and, by PeerAuthentication, no plaintext.
func (in *Input) Demands(q Selection, m model.Member) bool {
	namespace := cmp.Or(m.Endpoint.GetNamespace(), q.Service.Key.Namespace)
	peers := in.applicablePeers(q.Service.Key.Namespace)
	return m.Endpoint.GetMtls() && modeOf(peers, namespace, m.Endpoint.GetLabels(), m.Port) == model.MTLSStrict
}

// modeOf returns the mode of one port of a workload. The oldest policy that selects the workload decides (a port of it
// before its default), then the oldest of the namespace, then the oldest of the mesh. The default is permissive
// (https://istio.io/latest/docs/reference/config/security/peer_authentication/).
func modeOf(peers []*model.Policy, namespace string, labels map[string]string, port uint32) model.MTLS {
	var levels [3]*model.Policy
	for _, p := range peers {
		level := 2
		switch {
		case len(p.Spec.GetSelector()) > 0 && (p.Key.Namespace != namespace || !model.Matches(p.Spec.GetSelector(), labels)):
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
	return FirstMode(levels[:], port)
}

// PoliciesAt returns the policies of the given keys, in order. Missing ones are skipped.
func (in *Input) PoliciesAt(keys intern.List[model.Key]) (out []*model.Policy) {
	for _, k := range keys.All() {
		if r, ok := in.Get(k); ok {
			out = append(out, r.(*model.Policy))
		}
	}
	return out
}

// FirstMode returns the first mode that the policies state for a port, else permissive. nil policies state no mode.
func FirstMode(levels []*model.Policy, port uint32) model.MTLS {
	for _, p := range levels {
		all, ports := model.PeerModes(p)
		if mode := cmp.Or(ports[port], all); mode != model.MTLSUnset {
			return mode
		}
	}
	return model.MTLSPermissive
}

// Plain lists the members of a selection for which PeerAuthentications disable mTLS.
func Plain(q Selection, list []model.Member) intern.List[model.Member] {
	if q.Peers.Len() == 0 {
		return intern.List[model.Member]{}
	}
	var out []model.Member
	for _, m := range list {
		namespace := cmp.Or(m.Endpoint.GetNamespace(), q.Service.Key.Namespace)
		if m.Endpoint.GetMtls() && modeOf(q.Peers.All(), namespace, m.Endpoint.GetLabels(), m.Port) == model.MTLSDisable {
			out = append(out, m)
		}
	}
	return members.List(out...)
}
