package secret

import (
	"fmt"

	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Refused reports why a proxy may never have the Secret of a resource name, whatever Secrets exist. Both results are
// empty if it may. cause is one of a few values, by which log lines are counted; why is a sentence. subs is nil if the
// proxy's identity is of another namespace, or if its cluster is not proved.
func Refused(n view.Node, subs *Subscriptions, resource string) (cause, why string) {
	switch {
	case n.Verified == view.Identity{}:
		return "not authenticated", "it is not authenticated as of any namespace"
	case subs == nil && n.Verified.Namespace == n.Namespace:
		return "cluster not proved", "its certificate does not say of which of several clusters it is, " +
			"and Secrets are a cluster's own: a token of its cluster proves it"
	case subs == nil:
		return "identity of another namespace", "its identity is of namespace " + n.Verified.Namespace + ", not of its own"
	}
	if keys, _ := candidates(subs.who.Namespace, resource); keys == nil {
		return "Secret of another namespace", "the name does not lead to a Secret of its namespace " + subs.who.Namespace
	}
	return "", ""
}

// Missing reports why there is no Secret of a resource name for a proxy that Refused does not refuse. Both results are
// empty if there is one, or if it is pending.
func (subs *Subscriptions) Missing(of *Names, resource string) (cause, why string) {
	if !of.names[resource] {
		return "too many names", fmt.Sprintf("it asks for more than %d, or all of its service account for more than %d",
			MaxNames, MaxNamesOfIdentity)
	}
	s := subs.names[resource]
	if s.cause == noSecret {
		return s.cause, describeAbsence(subs.who.Namespace, resource)
	}
	return s.cause, s.why
}

// Object returns the key of the record that provides a resource for an identity, or zero.
func (t *Table) Object(subs *Subscriptions, resource string) model.Key {
	if record, _ := secretFor(t.in, subs.who, resource); record != nil {
		return record.Key
	}
	return model.Key{}
}

// Opening reports whether the private key of a subscribed resource, in its newest version, is not opened yet.
func (t *Table) Opening(subs *Subscriptions, resource string) bool { return t.opening(subs, resource) }

// Explain returns the Spec of a subscribed resource, or nil if it is not subscribed to or not built.
func (subs *Subscriptions) Explain(resource string) pool.ResourceSpec {
	if s := subs.names[resource]; s != nil {
		return s.Spec
	}
	return nil
}
