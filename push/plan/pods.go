package plan

import (
	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/plan/secret"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
)

// A proxy whose credential is bound to a Pod has the Secrets that are for this Pod, by the labels that the configuration has of it
// (secret.Table.Bind): it is bound again when these are others, or when others decide.

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

// viewOf is the view of a node. Pods count as they are known by now: their edits are the fast path's, and do not come again.
func (p *Planner) viewOf(n view.Node) view.View {
	v := p.keys.View(p.input.Snapshot, n)
	v.Secrets = p.secrets.Bind(p.latest, v.Secrets, n.Pod)
	return v
}

// viewFrom is the view of a node by an input alone.
func viewFrom(in *input.Input, n view.Node) view.View {
	v := view.Of(in.Snapshot, n)
	v.Secrets = secret.New(in).Bind(in.Snapshot, v.Secrets, n.Pod)
	return v
}

// bindsAgain says whether an edit of a Workload changes which labels count for a proxy that is bound to it.
func bindsAgain(p *Planner, now *input.Input, e mirror.Edit) bool {
	for h := range p.pods[pod{e.Key().Namespace, e.Key().Name}] {
		if have := h.View().Secrets; p.secrets.Bind(now.Snapshot, have.OfAccount(), h.Node.Pod) != have {
			return true
		}
	}
	return false
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

// rebindPods gives proxies that are bound to Pods the views that they have now, and says whose is another.
func (p *Planner) rebindPods(c *change, rebound map[*Handle]bool) {
	for of, handles := range p.pods {
		if !c.allPods && !c.pods[of] {
			continue
		}
		for h := range handles {
			p.rebindOne(h, rebound)
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
