package access

import (
	"cmp"
	"iter"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// The forms of names of Secrets (istio: pilot/pkg/model/credentials/resource.go).
const (
	SecretPrefix        = xds.SecretPrefix        // NAME, or NAMESPACE/NAME
	GatewaySecretPrefix = "kubernetes-gateway://" // NAMESPACE/NAME
)

// Reference is a Secret that an object makes workloads use.
type Reference struct {
	Namespace string // of the Secret; empty: the workload's
	Name      string
}

// References are the Secrets that a record refers to, as workloads ask for them with their private keys; some may come twice. Kinds:
// Gateway (the credentialNames of servers that end TLS), DestinationRule with a workloadSelector, EnvoyFilter (any text of a patch's
// value that is the name of a Secret). Other kinds refer to none.
func References(r model.Record) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		for name := range namesIn(r) {
			if ref, ok := ParseName(name); ok && !yield(ref) {
				return
			}
		}
	}
}

// PullSecret is the Secret with whose credentials proxies fetch the module of a WasmPlugin or TrafficExtension: of the record's own namespace. False: it names
// none, or fetches no image.
func PullSecret(r model.Record) (ref Reference, ok bool) {
	e, is := r.(*model.TrafficExtension)
	if !is || len(e.Spec.GetTargetRefs()) > 0 {
		return Reference{}, false
	}
	wasm := e.Spec.GetWasm()
	return Reference{e.Key.Namespace, wasm.GetImagePullSecret()}, extension.Registry(wasm) != ""
}

// AllReferences are References, and PullSecret.
func AllReferences(r model.Record) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		if ref, ok := PullSecret(r); ok && !yield(ref) {
			return
		}
		for ref := range References(r) {
			if !yield(ref) {
				return
			}
		}
	}
}

// SecretUse is a Secret that a record makes workloads use, with or without its private key.
type SecretUse struct {
	Namespace string            // of these workloads; empty: of any
	Name      string            // of the Secret
	Selector  map[string]string // labels of these workloads; empty: all
	Of        string            // namespace of the Secret; empty: that of the workload
}

// SecretUses are the Secrets that have to be there for a record to be served, some twice: those of References, and those with certificates of
// authorities that go with them (caCertCredentialName; NAME-cacert, of a client or a mutual server; NAME of a NAME-cacert), and PullSecret. root is the mesh's
// root namespace.
func SecretUses(r model.Record, root string) (all []SecretUse) {
	namespace := r.Meta().Key.Namespace
	switch t := r.(type) {
	case *model.Gateway:
		namespace = ""
	case *model.EnvoyFilter:
		if len(t.Spec.GetTargetRefs()) > 0 {
			return nil
		}
		if namespace == root {
			namespace = ""
		}
	case *model.TrafficExtension:
		ref, ok := PullSecret(r)
		if !ok {
			return nil
		}
		if namespace == root {
			namespace = ""
		}
		return []SecretUse{{Namespace: namespace, Name: ref.Name, Selector: Selector(r), Of: ref.Namespace}}
	}
	add := func(name string) {
		if ref, ok := ParseName(name); ok && (ref.Namespace == "" || namespace == "" || ref.Namespace == namespace) {
			all = append(all, SecretUse{Namespace: cmp.Or(ref.Namespace, namespace), Name: ref.Name, Selector: Selector(r)})
		}
	}
	for name := range namesIn(r) {
		add(name)
		if short, is := strings.CutSuffix(name, authorities); is {
			add(short)
		}
		if _, is := r.(*model.DestinationRule); is {
			add(name + authorities)
		}
	}
	if g, is := r.(*model.Gateway); is {
		for _, s := range g.Spec.GetServers() {
			switch s.GetTls().GetMode() {
			case networkingv1.ServerTLSSettings_MUTUAL, networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL:
				add(s.GetTls().GetCaCertCredentialName())
				for _, name := range append(s.GetTls().GetCredentialNames(), s.GetTls().GetCredentialName()) {
					if name != "" {
						add(name + authorities)
					}
				}
			}
		}
	}
	return all
}

const authorities = xds.AuthoritiesSuffix

// ParseName reads the name of a Secret in any of its forms, of which a name alone, as credentialName has it, is one. False: it is
// none.
func ParseName(name string) (ref Reference, ok bool) {
	rest, qualified := strings.CutPrefix(name, GatewaySecretPrefix)
	if !qualified {
		rest = strings.TrimPrefix(name, SecretPrefix)
	}
	if namespace, short, both := strings.Cut(rest, "/"); both {
		return Reference{namespace, short}, namespace != "" && short != "" && !strings.Contains(short, "/")
	}
	return Reference{Name: rest}, !qualified && rest != ""
}

// namesIn are the names in a record.
func namesIn(r model.Record) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch t := r.(type) {
		case *model.Gateway:
			for _, s := range t.Spec.GetServers() {
				if terminates(s.GetTls().GetMode()) && !all(append([]string{s.GetTls().GetCredentialName()}, s.GetTls().GetCredentialNames()...), yield) {
					return
				}
			}
		case *model.DestinationRule:
			if len(t.Spec.GetWorkloadSelector().GetMatchLabels()) == 0 {
				return // for gateways alone, and their clusters are not given Secrets yet
			}
			for p := range traffic.All(t.Spec) {
				if !yield(p.GetTls().GetCredentialName()) {
					return
				}
			}
		case *model.EnvoyFilter:
			for _, p := range t.Spec.GetConfigPatches() {
				if !texts(structpb.NewStructValue(p.GetPatch().GetValue()), yield) {
					return
				}
			}
		}
	}
}

func all(names []string, yield func(string) bool) bool {
	for _, name := range names {
		if !yield(name) {
			return false
		}
	}
	return true
}

// terminates says whether a server in a mode shows a certificate of a Secret
// (https://istio.io/latest/docs/reference/config/networking/gateway/#ServerTLSSettings-TLSmode).
func terminates(m networkingv1.ServerTLSSettings_TLSmode) bool {
	switch m {
	case networkingv1.ServerTLSSettings_SIMPLE, networkingv1.ServerTLSSettings_MUTUAL, networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL:
		return true
	case networkingv1.ServerTLSSettings_PASSTHROUGH, networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH, networkingv1.ServerTLSSettings_ISTIO_MUTUAL:
		return false
	}
	return false
}

// texts walks a value for names of Secrets that say of themselves what they are. False: stop.
func texts(v *structpb.Value, yield func(string) bool) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		if strings.HasPrefix(k.StringValue, SecretPrefix) || strings.HasPrefix(k.StringValue, GatewaySecretPrefix) {
			return yield(k.StringValue)
		}
	case *structpb.Value_StructValue:
		for _, field := range k.StructValue.GetFields() {
			if !texts(field, yield) {
				return false
			}
		}
	case *structpb.Value_ListValue:
		for _, one := range k.ListValue.GetValues() {
			if !texts(one, yield) {
				return false
			}
		}
	}
	return true
}

// reaches says whether a record that refers to Secrets is for workloads of a namespace, and the labels that it selects among them;
// none: all. A Gateway selects in all namespaces, as in Istio; an EnvoyFilter of the root namespace does, too.
func reaches(r model.Record, root, namespace string) (selector map[string]string, ok bool) {
	switch t := r.(type) {
	case *model.Gateway:
		ok = true
	case *model.DestinationRule:
		ok = t.Key.Namespace == namespace
	case *model.EnvoyFilter:
		ok = (t.Key.Namespace == namespace || t.Key.Namespace == root) && len(t.Spec.GetTargetRefs()) == 0
	}
	return Selector(r), ok
}

// Selector are the labels by which a record that may refer to Secrets selects workloads; empty: it selects all.
func Selector(r model.Record) map[string]string {
	switch t := r.(type) {
	case *model.Gateway:
		return t.Spec.GetSelector()
	case *model.DestinationRule:
		return t.Spec.GetWorkloadSelector().GetMatchLabels()
	case *model.EnvoyFilter:
		return t.Spec.GetWorkloadSelector().GetLabels()
	case *model.TrafficExtension:
		return t.Spec.GetSelector().GetMatchLabels()
	}
	return nil
}

// Use is whether some object makes a workload use a Secret.
type Use uint8

// The values of Use.
const (
	Unreferred Use = iota // no object of its mesh that reaches the workload's namespace refers to it
	Unselected            // some do, and select other workloads
	Unlabelled            // some do, by labels, and the source knows none of the workload
	Referred
)

// UseOf says whether one of the records that may refer to a Secret of an identity's own namespace does so for its workloads. labels
// are the sets of labels that the source has for them; what a proxy says of itself is none. It is asked only where a selector decides.
func UseOf(candidates iter.Seq[model.Record], root string, who view.Identity, secret string, labels func() []map[string]string) Use {
	use := Unreferred
	for r := range candidates {
		selector, reaches := reaches(r, root, who.Namespace)
		if !reaches || !refers(r, who.Namespace, secret) {
			continue
		}
		if len(selector) == 0 {
			return Referred
		}
		sets := labels()
		if len(sets) == 0 {
			use = max(use, Unlabelled)
		} else {
			use = max(use, Unselected)
		}
		for _, set := range sets {
			if model.Matches(selector, set) {
				return Referred
			}
		}
	}
	return use
}

func refers(r model.Record, namespace, secret string) bool {
	for ref := range References(r) {
		if ref.Name == secret && (ref.Namespace == "" || ref.Namespace == namespace) {
			return true
		}
	}
	return false
}
