package input

import (
	"cmp"
	"maps"
	"slices"

	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// Peers are the PeerAuthentications that decide for endpoints of a namespace, the oldest first: its own and the root
// namespace's; none where not one of them turns mTLS off, for then the endpoints' labels say it all.
func (in *Input) Peers(namespace string) intern.List[*model.Policy] {
	if found, ok := in.peers[namespace]; ok {
		return found
	}
	all := in.deciding(namespace)
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

// deciding are Peers, whatever they say.
func (in *Input) deciding(namespace string) []*model.Policy {
	out, known := in.decide[namespace]
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
	in.decide[namespace] = out
	return out
}

// Demands says whether a member of a cluster takes mTLS and, by PeerAuthentication, nothing else.
func (in *Input) Demands(q Selection, m model.Member) bool {
	namespace := cmp.Or(m.Endpoint.GetNamespace(), q.Service.Key.Namespace)
	return m.Endpoint.GetMtls() && modeOf(in.deciding(q.Service.Key.Namespace), namespace, m.Endpoint.GetLabels(), m.Port) == model.MTLSStrict
}

// modeOf is the mode of one port of a workload: the policy that selects it (its port before its rest) decides, then its
// namespace's, then the mesh's; of several of one kind the oldest. Nothing stated is permissive
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

// PoliciesAt are the policies of these keys that are there.
func (in *Input) PoliciesAt(keys intern.List[model.Key]) (out []*model.Policy) {
	for _, k := range keys.All() {
		if r, ok := in.Get(k); ok {
			out = append(out, r.(*model.Policy))
		}
	}
	return out
}

// FirstMode is the first mode that is stated; nil policies state none.
func FirstMode(levels []*model.Policy, port uint32) model.MTLS {
	for _, p := range levels {
		all, ports := model.PeerModes(p)
		if mode := cmp.Or(ports[port], all); mode != model.MTLSUnset {
			return mode
		}
	}
	return model.MTLSPermissive
}

// Plain are the members for which PeerAuthentication turns mTLS off.
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
