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

// messages makes what the value of a patch is, by what it applies to. What is not here is not applied by this version.
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

// Problem says why a patch cannot be applied, whatever it would be applied to; nil: nothing is wrong with it in itself.
// Builders skip a patch with a problem and draw the rest; whoever shows problems to users calls this for every patch of
// an EnvoyFilter. A value that is merged may be a part of a message, so only values that are added or put in the place of
// another are held against the constraints of Envoy's API. The error names the EnvoyFilter and the field.
func Problem(p model.Patch) error {
	message := messages[p.Config().GetApplyTo()]
	if message == nil {
		return nil // the normaliser says so (store/normal/fields), and no builder applies it
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
			return agentsOwn(p, b)
		}
		return nil
	}
	if err := value.check(); err != nil {
		return fault(p, "patch.value", err)
	}
	return nil
}

// unreadable says why the value of a patch is no message of Envoy's: a field has another type there, or an Any is of a type that is not known.
// What Envoy has no field for, and what its API does not allow, is passed over: Problem says that. nil: it can be read, or there is none.
func unreadable(p model.Patch) error {
	message, value := messages[p.Config().GetApplyTo()], p.Config().GetPatch().GetValue()
	if message == nil || value == nil || valueOf(p, message().ProtoReflect().Type()).err == nil {
		return nil
	}
	if err := unmarshal(value, message(), true); err != nil {
		return fault(p, "patch.value", err)
	}
	return nil
}

// Judge looks at every patch of an EnvoyFilter: refused are those whose value is unreadable, warned the other Problems.
func Judge(f *model.EnvoyFilter) (refused, warned []error) {
	for i := range f.Spec.GetConfigPatches() {
		p := model.Patch{Filter: f, Index: i}
		if err := unreadable(p); err != nil {
			refused = append(refused, err)
		} else if err := Problem(p); err != nil {
			warned = append(warned, err)
		}
	}
	return refused, warned
}

// fault says which field of which patch is wrong.
func fault(p model.Patch, field string, err error) error {
	return faultOf(p, problem.Invalid, field, err)
}

func faultOf(p model.Patch, code problem.Code, field string, err error) error {
	return model.Fault(p.Filter.Key, code, fmt.Sprintf("spec.configPatches[%d].%s", p.Index, field), err)
}

// Refused is the problem of a patch whose value was read, and makes what Envoy refuses.
func Refused(p model.Patch, err error) error {
	return fault(p, "patch.value", err)
}
