package plan

import (
	"maps"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A proxy whose credential is bound to a Pod is what the configuration says of this Pod, by whose labels selectors pick it (proved), and has the Secrets that are for the Pod
// (secret.Table.Bind): it is bound again when the labels are others, or when others decide.

// pod is a Pod by namespace and name, in whatever cluster.
type pod struct{ namespace, name string }

// podIndex finds proxies by the Pod that their credential is bound to.
type podIndex map[pod]map[*Handle]struct{}

func podOf(n view.Node) pod { return pod{n.Verified.Namespace, n.Pod} }

func (x podIndex) add(h *Handle) {
	if h.Node.Pod == "" {
		return
	}
	of := podOf(h.Node)
	if x[of] == nil {
		x[of] = map[*Handle]struct{}{}
	}
	x[of][h] = struct{}{}
}

func (x podIndex) remove(h *Handle) {
	of := podOf(h.Node)
	if delete(x[of], h); len(x[of]) == 0 {
		delete(x, of)
	}
}

// proved is a node with what the configuration has of the Pod that its credential is bound to, in the place of what the node says: the labels, by which selectors pick the
// proxy, and the name of its workload. Of Pods that are not known, and where no Pod is proved, what the node says counts. istiod finds the Pod by its address, lets its labels go before
// the node's in the same way, and adds labels that the agent was given besides (STATIC_LABELS; pilot/pkg/model/context.go, SetWorkloadLabels): those are a claim, and do not count here.
func proved(s *mirror.Snapshot, n view.Node) view.Node {
	who := n.Verified
	if who.Cluster = n.Cluster; who.Namespace != n.Namespace {
		return n
	}
	if w := secret.PodOf(s, who, n.Pod); w != nil && w.Key.Origin.Cluster() == n.Cluster {
		return asPod(w, n)
	}
	return n
}

// asPod is a node with what a Workload says.
func asPod(w *model.Workload, n view.Node) view.Node {
	n.Labels, n.Workload = w.Spec.GetEndpoint().GetLabels(), w.Spec.GetEndpoint().GetWorkload()
	return n
}

// viewOf is the view of a node. Pods count as they are known by now: their edits are the fast path's, and do not come again.
func (p *Planner) viewOf(n view.Node) view.View {
	v := p.keys.View(p.input.Snapshot, proved(p.latest, n))
	v.Secrets = p.secrets.Bind(p.latest, v.Secrets, n.Pod)
	return v
}

// viewFrom is the view of a node by an input alone.
func viewFrom(in *input.Input, n view.Node) view.View {
	v := view.Of(in.Snapshot, proved(in.Snapshot, n))
	v.Secrets = secret.New(in).Bind(in.Snapshot, v.Secrets, n.Pod)
	return v
}

// bindsAgain says whether an edit of a Workload changes which labels count for a proxy that is bound to it.
func bindsAgain(p *Planner, now *input.Input, e mirror.Edit) bool {
	for h := range p.pods[pod{e.Key().Namespace, e.Key().Name}] {
		if have := h.View().Secrets; p.secrets.Bind(now.Snapshot, have.OfAccount(), h.Node.Pod) != have {
			return true
		}
		if was, is := saidBy(e.Old, h.Node), saidBy(e.New, h.Node); was.Workload != is.Workload || !maps.Equal(was.Labels, is.Labels) {
			return true
		}
	}
	return false
}

// saidBy is a node with what the old or the new record of an edit says of its Pod, if it does.
func saidBy(r model.Record, n view.Node) view.Node {
	if w, is := r.(*model.Workload); is && w.Key.Origin.Cluster() == n.Cluster && w.Spec.GetEndpoint().GetServiceAccount() == n.Verified.Account {
		return asPod(w, n)
	}
	return n
}

// boundProxies: proxies whose credential is bound to the Pod.
func boundProxies(c *change, _ input.Types, e mirror.Edit) {
	c.pods[pod{e.Key().Namespace, e.Key().Name}] = true
}

// selectedPods: proxies that are bound to any Pod, where the record selects by labels who uses a Secret, or did.
func selectedPods(c *change, _ input.Types, e mirror.Edit) {
	for _, r := range records(e) {
		for range access.AllReferences(r) {
			c.allPods = true
		}
	}
}

func (p *Planner) rebindOne(h *Handle, rebound map[*Handle]bool) {
	old := h.planned.Load()
	v := p.viewOf(h.Node)
	if v == old.view {
		return
	}
	names := h.secrets.All()
	if old.identity != nil {
		p.secrets.Subscribe(old.identity.Subscriptions, &h.secrets, nil, names)
	}
	p.bind(h, v)
	p.unbind(h, old)
	if id := h.planned.Load().identity; id != nil {
		p.secrets.Subscribe(id.Subscriptions, &h.secrets, names, nil)
	}
	rebound[h] = true
}
