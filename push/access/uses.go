package access

import (
	"cmp"
	"fmt"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
)

const authorities = model.AuthoritiesSuffix

// ConfigMap parses the name of a ConfigMap with certificates of authorities. ok is false for other names, and for a
// malformed one.
func ConfigMap(name string) (ref Reference, ok bool) {
	namespace, short, is := model.ConfigMapOf(name)
	return Reference{namespace, short}, is && short != ""
}

// SecretUse is a Secret or ConfigMap that a record makes workloads use, with or without its private key.
type SecretUse struct {
	Namespace string            // of these workloads; empty for all namespaces
	Name      string            // of the Secret or ConfigMap
	Selector  map[string]string // labels of these workloads; empty for all workloads
	Of        string            // namespace of the Secret or ConfigMap; empty for the workload's namespace
	ConfigMap bool              // Name is a ConfigMap's
	Gateways  bool              // the workloads are those that Gateways select, in Namespace
	Field     string            // of the record, which has the name; empty for an EnvoyFilter
}

// uses collects the SecretUses of one record.
type uses struct {
	all []SecretUse
	of  SecretUse // Namespace, Selector and Gateways of each
}

// add adds a Secret, or a ConfigMap, by its name in a field.
func (u *uses) add(field, name string) {
	one := u.of
	one.Field = field
	if ref, is := ConfigMap(name); is {
		one.Name, one.Of, one.ConfigMap = ref.Name, ref.Namespace, true
		u.all = append(u.all, one)
		if short, derived := strings.CutSuffix(ref.Name, authorities); derived {
			one.Name = short
			u.all = append(u.all, one)
		}
		return
	}
	ref, ok := ParseName(name)
	if ok && (ref.Namespace == "" || one.Namespace == "" || ref.Namespace == one.Namespace) {
		one.Namespace, one.Name = cmp.Or(ref.Namespace, one.Namespace), ref.Name
		u.all = append(u.all, one)
	}
}

// addPair adds a Secret with a private key, and where a CA is in it, NAME for a NAME-cacert.
func (u *uses) addPair(field, name string) {
	if _, is := ConfigMap(name); is {
		return // has no private key
	}
	u.add(field, name)
	if short, is := strings.CutSuffix(name, authorities); is {
		u.add(field, short)
	}
}

// SecretUses lists the Secrets and ConfigMaps that have to exist so that a record takes effect. They may repeat. They
// are those of References and PullSecret, and the related ones with certificates of authorities: caCertCredentialName,
// NAME-cacert for a client or a mutual server, and NAME for a NAME-cacert. root is the mesh's root namespace.
func SecretUses(r model.Record, root string) (all []SecretUse) {
	for _, selector := range Selectors(r) {
		u := &uses{of: SecretUse{Namespace: r.Meta().Key.Namespace, Selector: selector}}
		u.record(r, root)
		all = append(all, u.all...)
	}
	return all
}

// record adds the Secrets and ConfigMaps of a record for the workloads of one of its selectors.
func (u *uses) record(r model.Record, root string) {
	switch t := r.(type) {
	case *model.Gateway:
		u.of.Namespace = ""
		for i, s := range t.Spec.GetServers() {
			u.server(fmt.Sprintf("spec.servers[%d].tls", i), s.GetTls())
		}
	case *model.DestinationRule:
		if u.of.Gateways = len(u.of.Selector) == 0; u.of.Gateways {
			u.of.Namespace = "" // a rule does not say in which namespaces gateways are
		}
		for at, p := range traffic.All(t.Spec) {
			u.client(at, p.GetTls())
		}
	case *model.EnvoyFilter:
		if t.Key.Namespace == root && len(t.Spec.GetTargetRefs()) == 0 {
			u.of.Namespace = ""
		}
		for name := range namesIn(r) {
			u.addPair("", name)
		}
	case *model.TrafficExtension:
		ref, ok := PullSecret(r)
		if !ok {
			return
		}
		u.of.Name, u.of.Of = ref.Name, ref.Namespace
		if t.Key.Namespace == root && len(t.Spec.GetTargetRefs()) == 0 {
			u.of.Namespace = ""
		}
		u.all = append(u.all, u.of)
	}
}

// server adds the Secrets of a server of a Gateway.
func (u *uses) server(at string, tls *networkingv1.ServerTLSSettings) {
	if !terminates(tls.GetMode()) {
		return
	}
	clients := tls.GetMode() != networkingv1.ServerTLSSettings_SIMPLE
	own := func(field, name string) {
		if name == "" {
			return
		}
		u.addPair(at+"."+field, name)
		if clients && tls.GetCaCertCredentialName() == "" {
			u.add(at+"."+field, name+authorities)
		}
	}
	own("credentialName", tls.GetCredentialName())
	for i, name := range tls.GetCredentialNames() {
		own(fmt.Sprintf("credentialNames[%d]", i), name)
	}
	if name := tls.GetCaCertCredentialName(); clients && name != "" {
		u.addTrust(at+".caCertCredentialName", name)
	}
}

// addTrust adds a Secret or ConfigMap of authorities, and NAME for a NAME-cacert.
func (u *uses) addTrust(field, name string) {
	u.add(field, name)
	if short, is := strings.CutSuffix(name, authorities); is && !strings.HasPrefix(name, model.ConfigMapCredential) {
		u.add(field, short)
	}
}

// client adds the Secrets of a DestinationRule's TLS.
func (u *uses) client(at traffic.At, tls *networkingv1.ClientTLSSettings) {
	name, trust := tls.GetCredentialName(), tls.GetCaCertCredentialName()
	if name != "" {
		u.addPair(at.String()+".tls.credentialName", name)
	}
	switch {
	case trust != "":
		u.addTrust(at.String()+".tls.caCertCredentialName", trust)
	case name != "":
		u.add(at.String()+".tls.credentialName", name+authorities)
	}
}
