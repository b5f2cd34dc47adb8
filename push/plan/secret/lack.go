package secret

import (
	"fmt"

	"navarch.io/navarch/push/access"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
)

// Lack describes a Secret or ConfigMap that proxies of one identity (a service account) subscribe to and do not get. A
// Lack is immutable. LackProblems turns Lacks into problems.
type Lack struct {
	namespace string              // the namespace of the proxies
	resource  string              // the resource name
	why       string              // the reason
	missing   bool                // no Secret or ConfigMap provides the resource
	labels    []map[string]string // the label sets of the identity's workloads
}

// Lacks returns a Lack for each identity and each Secret or ConfigMap that the identity subscribes to and does not get,
// in no order. There is no Lack while a Secret waits for a right or for a private key. The result is nil if it is
// empty.
func (t *Table) Lacks() (all []Lack) {
	for namespace, identities := range t.subscribed {
		for subs := range identities {
			labels := labelsOf(t.in, subs.who)
			for name, s := range subs.names {
				if s.cause != "" {
					all = append(all, Lack{namespace, name, s.reason(namespace, name), s.cause == noSecret, labels()})
				}
			}
		}
	}
	return all
}

// reason returns the text for a subscription without a resource.
func (s *subscription) reason(namespace, resource string) string {
	if s.cause == noSecret {
		return describeAbsence(namespace, resource)
	}
	return s.why
}

// naming is a field of a record that names a Secret or ConfigMap.
type naming struct {
	by  model.Record
	use access.SecretUse
}

// LackProblems returns problems of Gateways and DestinationRules. Each Lack leads to a problem for each field that
// names the Secret or ConfigMap of the Lack. Records that do not select workloads of the Lack's identity are ignored.
// Problems may repeat. The result is nil if it is empty. The argument s is the snapshot with the Gateways and
// DestinationRules, and the argument root is the root namespace. Any goroutine may call LackProblems.
func LackProblems(lacks []Lack, s *mirror.Snapshot, root string) (found []input.Problem) {
	if len(lacks) == 0 {
		return nil
	}
	names := map[string][]naming{} // by the name of the Secret or ConfigMap
	for _, kind := range []model.Kind{model.KindGateway, model.KindDestinationRule} {
		for r := range s.All(kind) {
			for _, use := range access.SecretUses(r, root) {
				names[use.Name] = append(names[use.Name], naming{r, use})
			}
		}
	}
	for _, l := range lacks {
		ref, isMap := access.ConfigMap(l.resource)
		if !isMap {
			ref, _ = access.ParseName(l.resource)
		}
		for _, n := range names[ref.Name] {
			if n.use.ConfigMap == isMap && n.of(ref, l) && n.selects(l) {
				p := l.problem(n)
				if own := n.by.Meta().Key.Namespace; l.missing && !isMap && own != l.namespace && has(s, own, ref.Name) {
					p.Message += fmt.Sprintf("; Secret %s/%s is not used, because the Pods are in namespace %s", own, ref.Name, l.namespace)
				}
				found = append(found, p)
			}
		}
	}
	return found
}

// has reports whether a namespace has a Secret with usable content.
func has(s *mirror.Snapshot, namespace, name string) bool {
	for range s.Named(model.KindSecret, namespace, name) {
		return true
	}
	return false
}

// of reports whether the field refers to the Secret or ConfigMap of a Lack. The argument ref is the parsed resource
// name of the Lack.
func (n naming) of(ref access.Reference, l Lack) bool {
	if n.use.ConfigMap {
		return n.use.Of == ref.Namespace
	}
	return n.use.Namespace == "" || n.use.Namespace == l.namespace
}

// selects reports whether the record selects workloads of the Lack's identity.
func (n naming) selects(l Lack) bool {
	selectors := access.Selectors(n.by)
	return access.SelectsAll(selectors) || access.Selected(selectors, l.labels)
}

// problem returns the problem for a field. If the record and the proxies are in different namespaces, only the message
// for readers who see everything mentions rights and references.
func (l Lack) problem(n naming) input.Problem {
	key := n.by.Meta().Key
	const still = "; Pods that have an earlier version still use it" // Envoy retains removed secrets
	effect := fmt.Sprintf("new gateway Pods of namespace %s cannot complete TLS handshakes for this server", l.namespace) + still
	if key.Kind == model.KindDestinationRule {
		effect = fmt.Sprintf("new Pods of namespace %s cannot connect by this rule", l.namespace) + still
	}
	p := input.NotFound(key, n.use.Field, l.why+"; "+effect)
	if !l.missing && key.Namespace != l.namespace {
		p.Message, p.Whole = "the Secret may not be used; "+effect, p.Message
	}
	return p
}
