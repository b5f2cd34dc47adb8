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

// A private key is sent to the proxies of an identity under two conditions. First, the identity may list the Secrets of
// its namespace. The plan loop queries an authoriser for this right. Second, an object makes workloads of the identity
// use the Secret. The function unused checks the second condition.

// unused returns the reason why no object makes workloads of an identity use a Secret. Both results are empty if some
// object makes them use it.
func unused(in *input.Input, who view.Identity, key model.Key, labels func() []map[string]string) (cause, why string) {
	switch useOf(in, who, key, labels) {
	case access.Referred:
		return "", ""
	case access.Unlabelled:
		return "labels not known", fmt.Sprintf("each object that refers to %v selects by labels, and the configuration knows no labels of %v: "+
			"no Pod, WorkloadEntry or endpoint of its namespace has this service account", key, who)
	case access.Unselected:
		return "Secret of other workloads", fmt.Sprintf("no Gateway, DestinationRule or EnvoyFilter "+
			"that refers to %v selects %v, by the labels that the configuration has for it", key, who)
	case access.Unreferred:
	}
	return "Secret of no workload", fmt.Sprintf("no Gateway, DestinationRule of its namespace or EnvoyFilter refers to %v", key)
}

// useOf returns the use of a Secret by workloads of an identity, according to the records that refer to the Secret.
func useOf(in *input.Input, who view.Identity, key model.Key, labels func() []map[string]string) access.Use {
	candidates := func(yield func(model.Record) bool) {
		for by := range in.Index.SecretUsers(key.Name) {
			if r, ok := in.Get(by); ok && !yield(r) {
				return
			}
		}
	}
	return access.UseOf(candidates, in.Root(), who, key.Name, labels)
}

// labelsOf returns a function that computes the label sets of an identity's workloads at its first call. An identity
// that is bound to a Pod has the label set of the Pod. Any other identity has the label sets of all Pods,
// WorkloadEntries and endpoints of ServiceEntries with its service account and namespace. Only records of the
// identity's own cluster and of the config cluster are considered. Equal sets are listed once.
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

// knows reports whether a record belongs to the identity's own cluster or to the config cluster.
func knows(r model.Record, who view.Identity) bool {
	cluster := r.Meta().Key.Origin.Cluster()
	return cluster == who.Cluster || cluster == ""
}

// addLabels adds to sets the label sets that a record has for workloads of an identity. The keys of sets are encodings
// of the labels.
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

// Relabelled reports whether an edit of Endpoints or a Workload changes labels that decide about Secrets. For each
// identity in the record's namespace whose private keys or credentials depend on labels, it compares the label sets
// before and after the edit.
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

// Rights yields the service accounts whose right to private keys is needed, in no order. The need begins when an
// identity of the account first subscribes to a private key that its workloads use. It ends when the identity has no
// subscription. Accounts may repeat, because a service account may have several identities.
func (t *Table) Rights() iter.Seq[view.Identity] {
	return t.accounts(func(subs *Subscriptions) bool { return subs.needed })
}

// Unknown returns the service accounts whose right is needed and unknown, in no order. Accounts may repeat.
func (t *Table) Unknown() []view.Identity {
	return slices.Collect(t.accounts(func(subs *Subscriptions) bool { return subs.needed && !subs.right.Known }))
}

// Doubted returns the service accounts that Plan has marked since the last call of Doubted, because their rights may
// have changed. The caller must query these rights again. Accounts have no order and may repeat.
func (t *Table) Doubted() []view.Identity {
	return slices.Collect(t.accounts(func(subs *Subscriptions) bool {
		was := subs.doubted
		subs.doubted = false
		return was
	}))
}

// accounts yields the service accounts of the subscriptions that satisfy a predicate. Accounts may repeat.
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

// Right returns the right with which the Secrets of a service account are planned. The result is zero if the right is
// unknown.
func (t *Table) Right(account view.Identity) access.Standing {
	for subs := range t.subscribed[account.Namespace] {
		if subs.who.OfAccount() == account.OfAccount() && subs.right.Known {
			return subs.right
		}
	}
	return access.Standing{}
}

// Authorised sets the right of a service account to private keys, plans the account's Secrets, and returns the planned
// subscriptions. If the given right is unknown or unchanged, Authorised does nothing and returns nil. Authorised also
// ignores an account that Rights does not yield, because the right of such an account is not queried again.
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

// Undecided reports whether the right of the subscriptions' identity is needed and unknown.
func (subs *Subscriptions) Undecided() bool { return subs.needed && !subs.right.Known }
