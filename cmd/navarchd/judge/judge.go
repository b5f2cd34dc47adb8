// Package judge finds errors in single records. Without this package, the errors would appear only when proxy
// configuration is built. The validation webhook and previews report them before the record is stored. Most of the
// errors only warn; see Record.
//
// Owns: nothing.
// Reads: one record, and a snapshot of the stored records.
// Never: stores or plans a record.
package judge

import (
	"fmt"

	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/extension"
	"navarch.io/navarch/push/plan/input"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// Record returns the errors of a record. It has the type validate.Judge: an error in refused refuses the object, and an
// error in warned becomes a warning.
//
// For an EnvoyFilter, refused has an error for each value that does not decode as Envoy's message. warned has the other
// errors of its patches (patch.Validate). For a CUSTOM policy, warned has an error if the provider is not in the mesh
// configuration, or if the provider's service is missing or ambiguous. For an extension, warned has an error if
// navarch-agent cannot load its module. Without an error, and for other kinds, both results are nil. If known is nil,
// policies are not checked.
func Record(r model.Record, known *mirror.Snapshot) (refused, warned []error) {
	switch t := r.(type) {
	case *model.EnvoyFilter:
		return patch.Validate(t)
	case *model.Policy:
		return nil, unaskable(t, known)
	case *model.TrafficExtension:
		return nil, unloadable(t)
	}
	return nil, nil
}

// unaskable returns an error for a CUSTOM policy whose provider, or the provider's service, is missing or ambiguous.
// Such a policy refuses all requests that it matches.
func unaskable(p *model.Policy, known *mirror.Snapshot) []error {
	m := model.Authorization(p)
	if m.GetAction() != securityv1.AuthorizationPolicy_CUSTOM || known == nil {
		return nil
	}
	provider := m.GetProvider().GetName()
	refuses := func(format string, args ...any) []error {
		return []error{input.NotFound(p.Key, "spec.provider.name",
			fmt.Sprintf("%q cannot be queried: ", provider)+fmt.Sprintf(format, args...)+"; requests that the policy matches are refused")}
	}
	service, _, ok := extauthz.Service(known.Mesh().Spec, provider)
	if !ok {
		return refuses("%s", extauthz.Unknown)
	}
	host, _, namespaces := input.ServicesOf(known, service)
	switch {
	case namespaces == 0:
		return refuses("there is no service %q", service)
	case namespaces > 1:
		return refuses("services of %d namespaces have the host %q: want NAMESPACE/%s", namespaces, host, host)
	}
	return nil
}

// unloadable returns an error for an extension whose module only Istio's agent can fetch.
func unloadable(e *model.TrafficExtension) []error {
	const own = xds.CapLua | xds.CapWasmHTTP | xds.CapWasmNetwork // of navarch-agent's Envoy
	way, why := extension.WayOf(e, own)
	if way.Runs() {
		return nil
	}
	follows := "passes without it"
	if way == extension.Closed {
		follows = "is refused"
	}
	field := "spec.url"
	if e.Key.Kind == model.KindTrafficExtension {
		field = "spec.wasm.url"
	}
	return []error{input.Warning(e.Key, problem.NotSupported, field,
		fmt.Sprintf("does not load with navarch-agent (%s), only with Istio's agent: with navarch-agent the traffic that it matches %s",
			why, follows))}
}
