package access

import (
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"
	typev1 "istio.io/api/type/v1beta1"

	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/traffic"
	"navarch.io/navarch/push/view"
	"navarch.io/navarch/store/model"
)

// Reference is a Secret that an object makes workloads use.
type Reference struct {
	Namespace string // namespace of the Secret; empty: the workload's namespace
	Name      string
}

// References returns a sequence of the Secrets whose private keys a record makes workloads use. Secrets may repeat. The
// sequence has the names that ParseName parses in these places:
//   - Gateways: credentialName and credentialNames of servers with the TLS mode SIMPLE, MUTUAL or OPTIONAL_MUTUAL
//   - DestinationRules: credentialName
//   - EnvoyFilters: strings that begin with kubernetes:// or kubernetes-gateway:// in the values of patches
//
// For other kinds the sequence is empty.
func References(r model.Record) iter.Seq[Reference] {
	return func(yield func(Reference) bool) {
		for name := range namesIn(r) {
			if ref, ok := ParseName(name); ok && !yield(ref) {
				return
			}
		}
	}
}

// PullSecret returns the Secret with the credentials for the image of a WasmPlugin or TrafficExtension. Both objects
// become records of kind model.TrafficExtension. The Secret is in the namespace of the record. The result ok is false
// if the record is of another kind, applies to no workload, or fetches its module without credentials. If ok is false,
// ref must be ignored.
func PullSecret(r model.Record) (ref Reference, ok bool) {
	e, is := r.(*model.TrafficExtension)
	if !is || len(Selectors(r)) == 0 {
		return Reference{}, false
	}
	wasm := e.Spec.GetWasm()
	return Reference{e.Key.Namespace, wasm.GetImagePullSecret()}, extension.Registry(wasm) != ""
}

// AllReferences returns a sequence with the Secret of PullSecret, if any, and then the Secrets of References.
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

// ParseName parses the name of a Secret, as in credentialName. The forms are NAME and NAMESPACE/NAME. The prefix
// model.SecretCredential may precede both forms. The prefix model.GatewaySecretCredential may precede only
// NAMESPACE/NAME. For other texts ok is false, and ref must be ignored.
func ParseName(name string) (ref Reference, ok bool) {
	rest, qualified := strings.CutPrefix(name, model.GatewaySecretCredential)
	if !qualified {
		rest = strings.TrimPrefix(name, model.SecretCredential)
	}
	if namespace, short, both := strings.Cut(rest, "/"); both {
		return Reference{namespace, short}, namespace != "" && short != "" && !strings.Contains(short, "/")
	}
	return Reference{Name: rest}, !qualified && rest != ""
}

// namesIn returns a sequence of the names of Secrets in a record, in any form that ParseName parses. Names may be
// empty.
func namesIn(r model.Record) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch t := r.(type) {
		case *model.Gateway:
			for _, s := range t.Spec.GetServers() {
				names := append([]string{s.GetTls().GetCredentialName()}, s.GetTls().GetCredentialNames()...)
				if terminates(s.GetTls().GetMode()) && !all(names, yield) {
					return
				}
			}
		case *model.DestinationRule:
			for _, p := range traffic.All(t.Spec) {
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

// all yields the names. It returns false if yield ended the iteration.
func all(names []string, yield func(string) bool) bool {
	for _, name := range names {
		if !yield(name) {
			return false
		}
	}
	return true
}

// terminates reports whether a server with a TLS mode needs a certificate from a Secret
// (https://istio.io/latest/docs/reference/config/networking/gateway/#ServerTLSSettings-TLSmode).
func terminates(m networkingv1.ServerTLSSettings_TLSmode) bool {
	switch m {
	case networkingv1.ServerTLSSettings_SIMPLE, networkingv1.ServerTLSSettings_MUTUAL, networkingv1.ServerTLSSettings_OPTIONAL_MUTUAL:
		return true
	case networkingv1.ServerTLSSettings_PASSTHROUGH, networkingv1.ServerTLSSettings_AUTO_PASSTHROUGH,
		networkingv1.ServerTLSSettings_ISTIO_MUTUAL:
		return false
	}
	return false
}

// texts yields the strings in a value, at any depth, that begin with one of the two prefixes of Secret names. It
// returns false if yield ended the iteration.
func texts(v *structpb.Value, yield func(string) bool) bool {
	switch k := v.GetKind().(type) {
	case *structpb.Value_StringValue:
		if model.NamesSecret(k.StringValue) {
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

// reaches reports whether a record that refers to Secrets applies to workloads of a namespace. As in Istio, a Gateway
// selects workloads in all namespaces. An EnvoyFilter of the root namespace without targetRefs also applies to all
// namespaces.
func reaches(r model.Record, root, namespace string) (ok bool) {
	switch t := r.(type) {
	case *model.Gateway:
		ok = true
	case *model.DestinationRule:
		ok = t.Key.Namespace == namespace
	case *model.EnvoyFilter:
		ok = t.Key.Namespace == namespace || t.Key.Namespace == root && len(t.Spec.GetTargetRefs()) == 0
	}
	return ok
}

// Selectors returns the workload selectors of a Gateway, DestinationRule, EnvoyFilter or TrafficExtension. The record
// applies to a workload if one of the selectors matches the workload's labels. An empty or nil selector matches all
// workloads. For a record with targetRefs, the result has a selector for each Gateway of the Gateway API among the
// targets. It is nil if all targets are of other kinds. For records of other kinds the result has no meaning. The maps
// may be those of the record and must not be changed.
func Selectors(r model.Record) []map[string]string {
	var selector map[string]string
	var targets []*typev1.PolicyTargetReference
	switch t := r.(type) {
	case *model.Gateway:
		selector = t.Spec.GetSelector()
	case *model.DestinationRule:
		selector = t.Spec.GetWorkloadSelector().GetMatchLabels()
	case *model.EnvoyFilter:
		selector, targets = t.Spec.GetWorkloadSelector().GetLabels(), t.Spec.GetTargetRefs()
	case *model.TrafficExtension:
		selector, targets = t.Spec.GetSelector().GetMatchLabels(), t.Spec.GetTargetRefs()
	}
	if len(targets) == 0 {
		return []map[string]string{selector}
	}
	var all []map[string]string
	for _, name := range model.TargetGateways(targets) {
		all = append(all, map[string]string{model.GatewayName: name})
	}
	return all
}

// Selected reports whether one of a record's selectors matches one of the sets of labels. It returns false without a
// selector or without a set.
func Selected(selectors, sets []map[string]string) bool {
	return slices.ContainsFunc(selectors, func(selector map[string]string) bool {
		return slices.ContainsFunc(sets, func(set map[string]string) bool { return model.Matches(selector, set) })
	})
}

// SelectsAll reports whether one of a record's selectors is empty. An empty selector matches all workloads.
func SelectsAll(selectors []map[string]string) bool {
	return slices.ContainsFunc(selectors, func(selector map[string]string) bool { return len(selector) == 0 })
}

// Use states whether the workloads of an identity use a Secret, according to the objects that refer to the Secret.
type Use uint8

// The values of Use.
const (
	Unreferred Use = iota // no object that applies to the identity's namespace refers to the Secret
	Unselected            // some objects refer to the Secret, but select other workloads
	Unlabelled            // some objects refer to the Secret and select by labels, but the labels are unknown
	Referred              // an object that selects a workload of the identity refers to the Secret
)

// UseOf returns the use of a Secret by the workloads of an identity. The argument secret is the name of a Secret in the
// identity's namespace. The argument candidates has the records that may refer to the Secret. Records that do not refer
// to the Secret are ignored. The argument root is the mesh's root namespace. UseOf considers only References, not
// PullSecret.
//
// The function labels returns the sets of labels of the identity's workloads. An empty result means that the labels are
// unknown. The labels must come from the configuration, not from proxies. UseOf calls labels only if a selector
// decides, and may call labels several times.
func UseOf(candidates iter.Seq[model.Record], root string, who view.Identity, secret string, labels func() []map[string]string) Use {
	use := Unreferred
	for r := range candidates {
		selectors := Selectors(r)
		if len(selectors) == 0 || !reaches(r, root, who.Namespace) || !refers(r, who.Namespace, secret) {
			continue
		}
		if SelectsAll(selectors) {
			return Referred
		}
		sets := labels()
		if len(sets) == 0 {
			use = max(use, Unlabelled)
		} else {
			use = max(use, Unselected)
		}
		if Selected(selectors, sets) {
			return Referred
		}
	}
	return use
}

// refers reports whether a record refers to a Secret of a namespace.
func refers(r model.Record, namespace, secret string) bool {
	for ref := range References(r) {
		if ref.Name == secret && (ref.Namespace == "" || ref.Namespace == namespace) {
			return true
		}
	}
	return false
}
