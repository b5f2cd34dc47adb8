package access

import (
	"cmp"
	"fmt"
	"strings"

	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/store/model"
)

// authorities is the suffix of the name of a Secret that has the CAs for another Secret (NAME-cacert for NAME).
const authorities = model.AuthoritiesSuffix

// ConfigMap parses the name of a ConfigMap with CAs, configmap://NAMESPACE/NAME. For all other names ok is false, and
// ref must be ignored.
func ConfigMap(name string) (ref Reference, ok bool) {
	namespace, short, is := model.ConfigMapOf(name)
	return Reference{namespace, short}, is && short != ""
}

// SecretUse is a Secret or ConfigMap that a record makes workloads use, for its private key, its CAs or its
// credentials.
type SecretUse struct {
	Namespace string            // namespace of the workloads; empty: all namespaces
	Name      string            // name of the Secret or ConfigMap
	Selector  map[string]string // labels of the workloads; empty: all workloads
	Of        string            // namespace of the Secret or ConfigMap; empty: the workload's namespace
	ConfigMap bool              // Name is the name of a ConfigMap
	Gateways  bool              // only the workloads in Namespace that Gateways select
	Field     string            // path of the field with the name; empty for EnvoyFilters and TrafficExtensions
}

// uses collects the SecretUses of one record.
type uses struct {
	all []SecretUse
	of  SecretUse // template of the elements, with Namespace, Selector and Gateways set
}

// add adds the Secret or ConfigMap that a field names. For a ConfigMap NAME-cacert it also adds the ConfigMap NAME. It
// ignores a Secret outside of the workloads' namespace.
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

// addPair adds a Secret with a private key. For the Secret NAME-cacert it also adds the Secret NAME.
func (u *uses) addPair(field, name string) {
	if _, is := ConfigMap(name); is {
		return // a ConfigMap has no private key
	}
	u.add(field, name)
	if short, is := strings.CutSuffix(name, authorities); is {
		u.add(field, short)
	}
}

// SecretUses returns the Secrets and ConfigMaps that a record may need to take effect. Elements may repeat. The
// argument root is the mesh's root namespace. For kinds that do not refer to Secrets, the result is nil.
//
// The result has the Secrets of References and PullSecret, and the Secrets and ConfigMaps with CAs. The field
// caCertCredentialName names the CAs. Without this field, the Secret NAME-cacert has the CAs for the Secret NAME. A
// server needs CAs only if it verifies clients. For a name NAME-cacert in a field, the result also has NAME, which may
// contain the CAs. A Secret outside of the workloads' namespace is left out, because the workloads cannot use it.
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
			u.of.Namespace = "" // gateways may be in any namespace
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

// addTrust adds a Secret or ConfigMap with CAs. For the Secret NAME-cacert it also adds NAME.
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
