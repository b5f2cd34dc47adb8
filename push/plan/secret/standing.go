package secret

import (
	"fmt"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Refused says why a proxy may not have a Secret of this name, whatever there is; empty: it may. The cause is one
// of a few, for which log lines are counted; why is the sentence. Subscriptions of nil: its identity is not of its own namespace, or its cluster is not proved.
func Refused(n view.Node, subs *Subscriptions, resource string) (cause, why string) {
	switch {
	case n.Verified == view.Identity{}:
		return "not authenticated", "it is not authenticated as of any namespace"
	case subs == nil && n.Verified.Namespace == n.Namespace:
		return "cluster not proved", "its certificate does not say of which of several clusters it is, and Secrets are a cluster's own: a token of its cluster proves it"
	case subs == nil:
		return "identity of another namespace", "its identity is of namespace " + n.Verified.Namespace + ", not of its own"
	}
	if keys, _ := candidates(subs.who.Namespace, resource); keys == nil {
		return "Secret of another namespace", "the name does not lead to a Secret of its namespace " + subs.who.Namespace
	}
	return "", ""
}

// Missing says why there is nothing of a resource for a proxy that Refused does not refuse; empty: there is, or it is waited for.
func (subs *Subscriptions) Missing(of *Names, resource string) (cause, why string) {
	if !of.names[resource] {
		return "too many names", fmt.Sprintf("it asks for more than %d, or all of its service account for more than %d", MaxNames, MaxNamesOfIdentity)
	}
	s := subs.names[resource]
	if s.cause == noSecret {
		return s.cause, absent(subs.who.Namespace, resource)
	}
	return s.cause, s.why
}

// Object is the record that a resource is made of for an identity's namespace; zero: there is none.
func (t *Table) Object(subs *Subscriptions, resource string) model.Key {
	if record, _ := secretFor(t.in, subs.who, resource); record != nil {
		return record.Key
	}
	return model.Key{}
}

// Opening says whether the private key of a resource that is subscribed to, or that of its newest version, is not opened yet.
func (t *Table) Opening(subs *Subscriptions, resource string) bool { return t.opening(subs, resource) }

// Explain is the Spec of a resource; nil: there is none, or nobody subscribes to it.
func (subs *Subscriptions) Explain(resource string) pool.ResourceSpec {
	if s := subs.names[resource]; s != nil {
		return s.Spec
	}
	return nil
}
