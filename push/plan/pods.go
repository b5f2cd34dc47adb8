package plan

import (
	"cmp"
	"maps"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A proxy's credential may be bound to a Pod. The labels that the configuration has for this Pod then decide which
// selectors select the proxy (withPod). They also decide which Secrets the proxy may have (secret.Table.Bind). A view
// is the set of facts that decide a proxy's configuration. The proxy gets another view when the labels of its Pod
// change, or when selectors begin to read other labels.

// pod identifies a Pod by namespace and name, in any cluster.
type pod struct{ namespace, name string }

// podIndex maps each Pod to the proxies whose credential is bound to the Pod.
type podIndex map[pod]map[*Handle]struct{}

// podOf returns the Pod to which a node's credential is bound.
func podOf(n view.Node) pod { return pod{n.Verified.Namespace, n.Pod} }

// add adds a proxy, if its credential is bound to a Pod.
func (x podIndex) add(h *Handle) {
	if h.Node.Pod == "" {
		return
	}
	of := podOf(*h.Node)
	if x[of] == nil {
		x[of] = map[*Handle]struct{}{}
	}
	x[of][h] = struct{}{}
}

// remove removes a proxy.
func (x podIndex) remove(h *Handle) {
	of := podOf(*h.Node)
	if delete(x[of], h); len(x[of]) == 0 {
		delete(x, of)
	}
}

// withPod returns n with the labels and the workload name of the Pod to which n's credential is bound. If n has no
// network, it also gets the Pod's network. The labels and names are those in the snapshot s. The result equals n if the
// credential is not bound to a Pod of n's namespace, or if s does not have that Pod in n's cluster.
//
// istiod finds the Pod by the node's address and overrides the node's labels in the same way. It also adds labels that
// the agent was started with (STATIC_LABELS; pilot/pkg/model/context.go, SetWorkloadLabels). These labels are an
// unverified claim, so withPod drops them.
func withPod(s *mirror.Snapshot, n view.Node) view.Node {
	who := n.Verified
	if who.Cluster = n.Cluster; who.Namespace != n.Namespace {
		return n
	}
	if w := secret.PodOf(s, who, n.Pod); w != nil && w.Key.Origin.Cluster() == n.Cluster {
		return withWorkload(w, n)
	}
	return n
}

// withWorkload returns n with the labels and the workload name of a Workload. If n has no network, it also gets the
// network of the Workload.
func withWorkload(w *model.Workload, n view.Node) view.Node {
	n.Labels, n.Workload = w.Spec.GetEndpoint().GetLabels(), w.Spec.GetEndpoint().GetWorkload()
	n.Network = cmp.Or(n.Network, w.Spec.GetEndpoint().GetNetwork())
	return n
}

// viewOf returns the view of a node. It reads Pods from the latest snapshot, because p.input may be older than edits of
// Pods that the fast path has planned.
func (p *Planner) viewOf(n view.Node) view.View {
	v := p.keys.View(p.input.Snapshot, withPod(p.latest, n))
	v.Secrets = p.secrets.Bind(p.latest, v.Secrets, n.Pod)
	return v
}

// viewFrom returns the view of a node at the snapshot of an input.
func viewFrom(in *input.Input, n view.Node) view.View {
	v := view.Of(in.Snapshot, withPod(in.Snapshot, n))
	v.Secrets = secret.New(in).Bind(in.Snapshot, v.Secrets, n.Pod)
	return v
}

// bindsAgain reports whether an edit of a Workload changes the view of a proxy whose credential is bound to its Pod.
func bindsAgain(p *Planner, now *input.Input, e mirror.Edit) bool {
	for h := range p.pods[pod{e.Key().Namespace, e.Key().Name}] {
		if have := h.View().Secrets; p.secrets.Bind(now.Snapshot, have.OfAccount(), h.Node.Pod) != have {
			return true
		}
		was, is := withRecord(e.Old, *h.Node), withRecord(e.New, *h.Node)
		if was.Workload != is.Workload || was.Network != is.Network || !maps.Equal(was.Labels, is.Labels) {
			return true
		}
	}
	return false
}

// withRecord returns the result of withWorkload for one record of an edit. If the record is not the Workload of the
// node's Pod, the result equals the node.
func withRecord(r model.Record, n view.Node) view.Node {
	w, is := r.(*model.Workload)
	if is && w.Key.Origin.Cluster() == n.Cluster && w.Spec.GetEndpoint().GetServiceAccount() == n.Verified.Account {
		return withWorkload(w, n)
	}
	return n
}

// boundProxies marks the proxies whose credential is bound to the Pod of an edited Workload.
func boundProxies(c *change, _ input.Types, e mirror.Edit) {
	c.pods[pod{e.Key().Namespace, e.Key().Name}] = true
}

// selectedPods marks all proxies whose credential is bound to a Pod, if the old or the new version of an edited record
// refers to Secrets.
func selectedPods(c *change, _ input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for range access.AllReferences(r) {
			c.allPods = true
		}
	}
}

// rebindOne moves a proxy to its present view. If this is another view than before, the proxy's subscriptions to
// Secrets move too, with the right and the private keys, and the proxy is added to rebound.
func (p *Planner) rebindOne(h *Handle, rebound map[*Handle]bool) {
	old := h.planned.Load()
	v := p.viewOf(*h.Node)
	if v == old.view {
		return
	}
	p.bind(h, v)
	switch now := h.planned.Load().identity; {
	case old.identity == nil: // the proxy has no subscriptions
	case now == nil:
		p.secrets.Subscribe(old.identity.Subscriptions, &h.secrets, nil, h.secrets.All())
	case now != old.identity:
		p.secrets.Move(old.identity.Subscriptions, now.Subscriptions, &h.secrets)
	}
	p.unbind(h, old)
	rebound[h] = true
}
