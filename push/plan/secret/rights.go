package secret

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// A private key goes to proxies of an identity that may list the Secrets of its namespace, which the loop asks an authoriser, and
// only where some object makes their workloads use it, which is planned here (issue 12, item 1).

// unused says why no object makes workloads of an identity use a Secret; empty: one does.
func unused(in *input.Input, who view.Identity, key model.Key, labels func() []map[string]string) (cause, why string) {
	candidates := func(yield func(model.Record) bool) {
		for by := range in.Index.SecretUsers(key.Name) {
			if r, ok := in.Get(by); ok && !yield(r) {
				return
			}
		}
	}
	switch access.UseOf(candidates, in.Root(), who, key.Name, labels) {
	case access.Referred:
		return "", ""
	case access.Unlabelled:
		return "labels not known", fmt.Sprintf("what refers to %v selects by labels, and the configuration has none for %v: no Pod, WorkloadEntry or endpoint of its namespace is of it", key, who)
	case access.Unselected:
		return "Secret of other workloads", fmt.Sprintf("no Gateway, DestinationRule with a workloadSelector or EnvoyFilter that refers to %v selects %v, by the labels that the configuration has for it", key, who)
	case access.Unreferred:
	}
	return "Secret of no workload", fmt.Sprintf("no Gateway, DestinationRule with a workloadSelector or EnvoyFilter refers to %v", key)
}

// labelsOf finds the sets of labels that the source has for workloads of an identity, once, when it is first asked for: those of the Pod
// that it is bound to; else of Workloads and endpoints of its namespace (Pods, WorkloadEntries, endpoints of ServiceEntries) that are of
// its service account, each set once: those that its own cluster or the config cluster knows.
func labelsOf(in *input.Input, who view.Identity) func() []map[string]string {
	return sync.OnceValue(func() []map[string]string {
		if who.Bound {
			return []map[string]string{labelsOfPod(who)}
		}
		sets := map[string]map[string]string{}
		for _, kind := range []model.Kind{model.KindEndpoints, model.KindWorkload} {
			for r := range in.In(kind, who.Namespace) {
				if knows(r, who) {
					addLabels(sets, r, who)
				}
			}
		}
		return slices.Collect(maps.Values(sets))
	})
}

// knows says whether a record is of a cluster that is asked about an identity: its own, or the config cluster.
func knows(r model.Record, who view.Identity) bool {
	cluster := r.Meta().Key.Origin.Cluster()
	return cluster == who.Cluster || cluster == ""
}

// addLabels adds the sets of labels that a record has for workloads of an identity.
func addLabels(sets map[string]map[string]string, r model.Record, who view.Identity) {
	var endpoints []*model.Endpoint
	switch t := r.(type) {
	case *model.Endpoints:
		endpoints = t.Spec.GetEndpoints()
	case *model.Workload:
		endpoints = []*model.Endpoint{t.Spec.GetEndpoint()}
	}
	for _, e := range endpoints {
		if e.GetServiceAccount() != who.Account {
			continue
		}
		var id strings.Builder
		for _, key := range slices.Sorted(maps.Keys(e.GetLabels())) {
			fmt.Fprintf(&id, "%q=%q,", key, e.GetLabels()[key])
		}
		sets[id.String()] = e.GetLabels()
	}
}

// Relabelled says whether an edit of endpoints or of a Workload changes the labels of workloads of an identity that subscribes to Secrets.
func (t *Table) Relabelled(e mirror.Edit) bool {
	for subs := range t.subscribed[e.Key().Namespace] {
		if !subs.readsLabels() {
			continue
		}
		old, now := map[string]map[string]string{}, map[string]map[string]string{}
		addLabels(old, e.Old, subs.who)
		addLabels(now, e.New, subs.who)
		if !maps.EqualFunc(old, now, func(_, _ map[string]string) bool { return true }) {
			return true
		}
	}
	return false
}

// Rights are the service accounts whose right to private keys matters, in no order; some may come twice.
func (t *Table) Rights() iter.Seq[view.Identity] {
	return t.accounts(func(subs *Subscriptions) bool { return subs.needed })
}

// Unknown are those of Rights whose right is not known.
func (t *Table) Unknown() []view.Identity {
	return slices.Collect(t.accounts(func(subs *Subscriptions) bool { return subs.needed && !subs.right.Known }))
}

// Doubted are the service accounts about which the authoriser is to be asked again.
func (t *Table) Doubted() []view.Identity {
	return slices.Collect(t.accounts(func(subs *Subscriptions) bool {
		was := subs.doubted
		subs.doubted = false
		return was
	}))
}

// accounts are the service accounts of some subscriptions; some may come twice.
func (t *Table) accounts(of func(*Subscriptions) bool) iter.Seq[view.Identity] {
	return func(yield func(view.Identity) bool) {
		for _, all := range t.subscribed {
			for subs := range all {
				if of(subs) && !yield(subs.who.OfAccount()) {
					return
				}
			}
		}
	}
}

// Right is the right of a service account, as it was planned last.
func (t *Table) Right(account view.Identity) access.Standing {
	for subs := range t.subscribed[account.Namespace] {
		if subs.who.OfAccount() == account.OfAccount() && subs.right.Known {
			return subs.right
		}
	}
	return access.Standing{}
}

// Authorised plans with the right of a service account, and returns what is planned again. A right that is not known changes nothing;
// where it has not mattered it is not kept, since nobody would say when it is another.
func (t *Table) Authorised(account view.Identity, right access.Standing) (planned []*Subscriptions) {
	for subs := range t.subscribed[account.Namespace] {
		if subs.who.OfAccount() != account.OfAccount() || !subs.needed || !right.Known || right == subs.right {
			continue
		}
		subs.right = right
		subs.plan(t.in, slices.Collect(maps.Keys(subs.names)), t.keys)
		planned = append(planned, subs)
	}
	t.keys.tidy()
	return planned
}

// Undecided says whether the identity waits for its right to be known.
func (subs *Subscriptions) Undecided() bool { return subs.needed && !subs.right.Known }
