package secret

import (
	"fmt"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/pool"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Refused returns the reason why a proxy can never get the Secret with a resource name, whether or not the Secret
// exists. It checks the proxy's identity and the namespace in the name. Both results are empty if the checks pass.
// Missing returns other reasons, such as a missing right. The result cause is one of a few fixed texts, by which log
// lines are counted. The result why is a sentence. The argument subs has the subscriptions of the proxy's identity. It
// must be nil if the identity and the proxy are in different namespaces, or if the identity's cluster is not verified.
func Refused(n view.Node, subs *Subscriptions, resource string) (cause, why string) {
	switch {
	case n.Verified == view.Identity{}:
		return "not authenticated", "the proxy is not authenticated as a workload of a namespace"
	case subs == nil && n.Verified.Namespace == n.Namespace:
		return "cluster not proved", "its certificate does not prove its cluster, " +
			"and a Secret is for proxies of its own cluster: use a token of the proxy's cluster"
	case subs == nil:
		return "identity of another namespace",
			"its identity belongs to namespace " + n.Verified.Namespace + ", the proxy to namespace " + n.Namespace
	}
	if keys, _ := candidates(subs.who.Namespace, resource); keys == nil {
		return "Secret of another namespace", "the name does not lead to a Secret of its namespace " + subs.who.Namespace
	}
	return "", ""
}

// Denied returns the reason why an identity may not have the private key of a Secret, whether or not the Secret exists
// and a proxy subscribes to it. The result is empty if the identity may have the key, if the resource contains only
// certificates of authorities, or if the right of the identity is unknown. The right is unknown if no authoriser was
// queried, and the configuration has no bindings of the identity's cluster. The reason names no object of another
// namespace, and does not depend on objects that do not apply to workloads of the identity. The argument resource must
// be a name for which Refused returns no reason.
func (t *Table) Denied(subs *Subscriptions, resource string) (why string) {
	keys, trust := candidates(subs.who.Namespace, resource)
	if trust {
		return ""
	}
	if useOf(t.in, subs.who, keys[0], labelsOf(t.in, subs.who)) != access.Referred {
		return fmt.Sprintf("no Gateway, DestinationRule or EnvoyFilter that selects workloads of %v refers to it", subs.who)
	}
	right, bindings := t.Right(subs.who), access.Granted(t.in.Snapshot, subs.who)
	switch {
	case right.Allowed, bindings.Allowed: // a known right may be older than the bindings in the input
		return ""
	case right.Known:
		return fmt.Sprintf("%v may not list Secrets: %s", subs.who, right.Why)
	case !access.HasBindings(t.in.Snapshot, subs.who.Cluster):
		return ""
	}
	return fmt.Sprintf("%v may not list Secrets: %s", subs.who, bindings.Why)
}

// Missing returns the reason why a proxy is not sent a Secret that it has requested. The results have the meanings of
// the results of Refused. Both results are empty if the Secret is sent or pending. The argument wanted has the names of
// the proxy. The argument resource must be a requested name for which Refused returns no reason. If wanted lacks this
// name, the maximum number of names is exceeded, and the reason says so.
func (subs *Subscriptions) Missing(wanted *Names, resource string) (cause, why string) {
	if !wanted.names[resource] {
		return "too many names", fmt.Sprintf("it asks for more than %d, or all of its service account for more than %d",
			MaxNames, MaxNamesOfIdentity)
	}
	s := subs.names[resource]
	if s.cause == noSecret {
		return s.cause, describeAbsence(subs.who.Namespace, resource)
	}
	return s.cause, s.why
}

// Object returns the key of the record that provides a resource for an identity. Without such a record, the result is
// zero.
func (t *Table) Object(subs *Subscriptions, resource string) model.Key {
	if record, _ := secretFor(t.in, subs.who, resource); record != nil {
		return record.Key
	}
	return model.Key{}
}

// Opening reports whether a subscribed resource needs a private key whose newest version is not opened (decrypted) yet.
// It panics if no proxy of the identity subscribes to the resource.
func (t *Table) Opening(subs *Subscriptions, resource string) bool { return t.opening(subs, resource) }

// Explain returns the Spec (the inputs) of a subscribed resource. The result is nil if no proxy of the identity
// subscribes to the resource, or if the resource is not built.
func (subs *Subscriptions) Explain(resource string) pool.ResourceSpec {
	if s := subs.names[resource]; s != nil {
		return s.Spec
	}
	return nil
}
