package patch

import (
	"errors"
	"fmt"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	networkingv1 "istio.io/api/networking/v1alpha3"

	"navarch.io/navarch/store/model"
	"navarch.io/navarch/store/problem"
)

// messages maps the applyTo of a patch to the constructor of a message. The patch's value must be a message of this
// type. Patches with another applyTo are not supported.
var messages = map[networkingv1.EnvoyFilter_ApplyTo]func() proto.Message{
	networkingv1.EnvoyFilter_LISTENER:            func() proto.Message { return &listenerv3.Listener{} },
	networkingv1.EnvoyFilter_LISTENER_FILTER:     func() proto.Message { return &listenerv3.ListenerFilter{} },
	networkingv1.EnvoyFilter_FILTER_CHAIN:        func() proto.Message { return &listenerv3.FilterChain{} },
	networkingv1.EnvoyFilter_NETWORK_FILTER:      func() proto.Message { return &listenerv3.Filter{} },
	networkingv1.EnvoyFilter_HTTP_FILTER:         func() proto.Message { return &hcmv3.HttpFilter{} },
	networkingv1.EnvoyFilter_ROUTE_CONFIGURATION: func() proto.Message { return &routev3.RouteConfiguration{} },
	networkingv1.EnvoyFilter_VIRTUAL_HOST:        func() proto.Message { return &routev3.VirtualHost{} },
	networkingv1.EnvoyFilter_HTTP_ROUTE:          func() proto.Message { return &routev3.Route{} },
	networkingv1.EnvoyFilter_CLUSTER:             func() proto.Message { return &clusterv3.Cluster{} },
	networkingv1.EnvoyFilter_BOOTSTRAP:           func() proto.Message { return &bootstrapv3.Bootstrap{} },
	networkingv1.EnvoyFilter_EXTENSION_CONFIG:    func() proto.Message { return &corev3.TypedExtensionConfig{} },
}

// Problem returns an error if a patch cannot be applied to any resource. push/plan leaves such patches out. The error
// is a model.Problem that names the EnvoyFilter and the field. The possible reasons are:
//
//   - The operation or the value is missing.
//   - The value does not decode.
//   - A value to add, insert or replace violates a constraint of Envoy's API. A value to merge may be an incomplete
//     message, so its constraints are not checked.
//   - A BOOTSTRAP patch merges a field that only the agent may set.
//
// The result is nil for REMOVE, and for an applyTo that this package does not support.
func Problem(p model.Patch) error {
	message := messages[p.Config().GetApplyTo()]
	if message == nil {
		return nil // the normaliser reports such a patch (store/normal/fields), and no builder applies it
	}
	value := valueOf(p, message().ProtoReflect().Type())
	switch op := operation(p); {
	case op == networkingv1.EnvoyFilter_Patch_REMOVE:
		return nil
	case op == networkingv1.EnvoyFilter_Patch_INVALID:
		return faultOf(p, problem.Required, "patch.operation", errors.New("is missing"))
	case value.err != nil:
		return value.err
	case merges(p):
		if b, is := value.message.(*bootstrapv3.Bootstrap); is {
			return validateBootstrap(p, b)
		}
		return nil
	}
	if err := value.check(); err != nil {
		return fault(p, "patch.value", err)
	}
	return nil
}

// validateType returns an error if a field of the patch's value does not have the type that Envoy's API states, or if
// the value has an Any of an unknown type. It ignores unknown fields and violated constraints. A patch without a value,
// or with an unsupported applyTo, is valid.
func validateType(p model.Patch) error {
	message, value := messages[p.Config().GetApplyTo()], p.Config().GetPatch().GetValue()
	if message == nil || value == nil || valueOf(p, message().ProtoReflect().Type()).err == nil {
		return nil
	}
	if err := unmarshal(value, message(), true); err != nil {
		return fault(p, "patch.value", err)
	}
	return nil
}

// Validate validates every patch of an EnvoyFilter. The first result has an error for each value with a wrongly typed
// field, an unknown enumeration value, or an Any of an unknown type. If it is not empty, the caller must refuse the
// whole object. The second result has the errors of Problem for the remaining patches. All errors are model.Problems.
func Validate(f *model.EnvoyFilter) (refused, warned []error) {
	for i := range f.Spec.GetConfigPatches() {
		p := model.Patch{Filter: f, Index: i}
		if err := validateType(p); err != nil {
			refused = append(refused, err)
		} else if err := Problem(p); err != nil {
			warned = append(warned, err)
		}
	}
	return refused, warned
}

// fault returns the error of an invalid field of a patch. The parameter field is the field's path within the patch,
// such as patch.value.
func fault(p model.Patch, field string, err error) error {
	return faultOf(p, problem.Invalid, field, err)
}

// faultOf returns the same error as fault, but with the given code instead of problem.Invalid.
func faultOf(p model.Patch, code problem.Code, field string, err error) error {
	return model.Fault(p.Filter.Key, code, fmt.Sprintf("spec.configPatches[%d].%s", p.Index, field), err)
}

// Refused returns a model.Problem for a patch whose value decodes, but would be refused by Envoy. The parameter err,
// which must not be nil, is the reason. If err is or wraps a model.Problem, Refused returns that Problem.
func Refused(p model.Patch, err error) error {
	return fault(p, "patch.value", err)
}
