package view

import (
	"slices"

	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// closed reports whether a policy that cannot be enforced selects the proxy.
func closed(s *mirror.Snapshot, root string, n Node) bool { return len(closing(s, root, n)) > 0 }

// Closing lists the policies that select the proxy and cannot be enforced, because they are invalid or not supported. A
// proxy with such a policy refuses all connections. PeerAuthentications come first, then AuthorizationPolicies, then
// RequestAuthentications. Without such policies the result is nil.
func Closing(s *mirror.Snapshot, n Node) []model.Key {
	return closing(s, s.Mesh().Spec.GetRootNamespace(), n)
}

// closing returns the same keys as Closing. The parameter root is the root namespace.
func closing(s *mirror.Snapshot, root string, n Node) (keys []model.Key) {
	for _, kind := range []model.Kind{model.KindPeerAuthentication, model.KindAuthorizationPolicy, model.KindRequestAuthentication} {
		for _, namespace := range slices.Compact([]string{n.Namespace, root}) {
			for r := range s.In(kind, namespace) {
				p := r.(*model.Policy)
				// A PeerAuthentication of the root namespace with a selector selects only proxies of that namespace.
				// Other policies of the root namespace select proxies of every namespace.
				reaches := namespace == n.Namespace || p.Spec.GetMeshWide() || kind != model.KindPeerAuthentication
				if p.Spec.GetClosed() && reaches && p.Selects(n.Namespace, n.Labels) {
					keys = append(keys, p.Key)
				}
			}
		}
	}
	return keys
}

// peersOf returns the PeerAuthentications that apply to the proxy, in order of precedence. First comes the oldest one
// that selects the proxy, then the oldest one of its namespace without a selector, and then the oldest one for the
// whole mesh (https://istio.io/latest/docs/reference/config/security/peer_authentication/).
func peersOf(s *mirror.Snapshot, root string, n Node) (out []model.Key) {
	var levels [3]*model.Policy
	at := func(level int, p *model.Policy) {
		if have := levels[level]; have == nil || p.Older(&have.Head) < 0 {
			levels[level] = p
		}
	}
	for r := range s.In(model.KindPeerAuthentication, n.Namespace) {
		switch p := r.(*model.Policy); {
		case len(p.Spec.GetSelector()) == 0:
			at(1, p)
		case model.Matches(p.Spec.GetSelector(), n.Labels):
			at(0, p)
		}
	}
	if n.Namespace != root {
		for r := range s.In(model.KindPeerAuthentication, root) {
			if p := r.(*model.Policy); p.Spec.GetMeshWide() && len(p.Spec.GetSelector()) == 0 {
				at(2, p)
			}
		}
	}
	for _, p := range levels {
		if p != nil {
			out = append(out, p.Key)
		}
	}
	return out
}

// policiesOf returns the enforceable AuthorizationPolicies of the proxy's namespace and the root namespace that select
// the proxy. The result is sorted by key. This order has no effect on the proxy.
func policiesOf(s *mirror.Snapshot, root string, n Node) (out []model.Key) {
	for _, namespace := range slices.Compact([]string{n.Namespace, root}) {
		for r := range s.In(model.KindAuthorizationPolicy, namespace) {
			if p := r.(*model.Policy); !p.Spec.GetClosed() && p.Selects(n.Namespace, n.Labels) {
				out = append(out, p.Key)
			}
		}
	}
	slices.SortFunc(out, model.Key.Compare)
	return out
}

// authenticationsOf returns the enforceable RequestAuthentications that select the proxy. RequestAuthentications of the
// root namespace come first, then those of the proxy's namespace. Within a namespace the oldest comes first.
func authenticationsOf(s *mirror.Snapshot, root string, n Node) (out []model.Key) {
	for _, namespace := range slices.Compact([]string{root, n.Namespace}) {
		var found []*model.Policy
		for r := range s.In(model.KindRequestAuthentication, namespace) {
			if p := r.(*model.Policy); !p.Spec.GetClosed() && p.Selects(n.Namespace, n.Labels) {
				found = append(found, p)
			}
		}
		slices.SortFunc(found, func(a, b *model.Policy) int { return a.Older(&b.Head) })
		for _, p := range found {
			out = append(out, p.Key)
		}
	}
	return out
}
