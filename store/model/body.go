package model

import (
	"fmt"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
)

// emptyBody makes an empty body for each kind: a message of this package, or one of Istio.
var emptyBody = [NumKinds]func() proto.Message{
	KindMesh:                  func() proto.Message { return &meshv1.MeshConfig{} },
	KindService:               func() proto.Message { return &ServiceSpec{} },
	KindServiceEntry:          func() proto.Message { return &ServiceSpec{} },
	KindEndpoints:             func() proto.Message { return &EndpointsSpec{} },
	KindVirtualService:        func() proto.Message { return &networkingv1.VirtualService{} },
	KindDestinationRule:       func() proto.Message { return &networkingv1.DestinationRule{} },
	KindSidecar:               func() proto.Message { return &networkingv1.Sidecar{} },
	KindEnvoyFilter:           func() proto.Message { return &networkingv1.EnvoyFilter{} },
	KindPeerAuthentication:    func() proto.Message { return &PolicySpec{} },
	KindAuthorizationPolicy:   func() proto.Message { return &PolicySpec{} },
	KindRequestAuthentication: func() proto.Message { return &PolicySpec{} },
	KindSecret:                func() proto.Message { return &SecretSpec{} },
	KindGateway:               func() proto.Message { return &networkingv1.Gateway{} },
	KindSecretReader:          func() proto.Message { return &SecretReaderSpec{} },
	KindWorkload:              func() proto.Message { return &WorkloadSpec{} },
	KindServiceAccount:        func() proto.Message { return &ServiceAccountSpec{} },
	KindWorkloadGroup:         func() proto.Message { return &networkingv1.WorkloadGroup{} },
	KindNamespace:             func() proto.Message { return &ServiceAccountSpec{} },
	KindNetworkGateways:       func() proto.Message { return &NetworkGatewaysSpec{} },
	KindTelemetry:             func() proto.Message { return &telemetryv1.Telemetry{} },
	KindWasmPlugin:            func() proto.Message { return &extensionsv1.TrafficExtension{} },
	KindTrafficExtension:      func() proto.Message { return &extensionsv1.TrafficExtension{} },
	KindProxyConfig:           func() proto.Message { return &proxyconfigv1.ProxyConfig{} },
}

// messages returns the name of the body's message for each kind; empty for kinds without a row in emptyBody.
var messages = sync.OnceValue(func() (names [NumKinds]protoreflect.FullName) {
	for kind, empty := range emptyBody {
		if empty != nil {
			names[kind] = proto.MessageName(empty())
		}
	}
	return names
})

// NewBody returns a new empty body for records of a kind: the protobuf message with the content of such a record. It
// returns nil for values that are not kinds.
func NewBody(kind Kind) proto.Message {
	if kind >= NumKinds || emptyBody[kind] == nil {
		return nil
	}
	return emptyBody[kind]()
}

// belongs reports whether a message is the body of a kind.
func belongs(body proto.Message, kind Kind) bool {
	return kind < NumKinds && messages()[kind] != "" && proto.MessageName(body) == messages()[kind]
}

// setBody stores the body in the field of wire for its type. Errors: the body does not belong to the kind, or does not
// encode.
func setBody(wire *RecordValue, kind Kind, body proto.Message) error {
	if !belongs(body, kind) {
		return fmt.Errorf("body %T does not belong to kind %v", body, kind)
	}
	switch b := body.(type) {
	case *ServiceSpec:
		wire.Body = &RecordValue_Service{Service: b}
	case *EndpointsSpec:
		wire.Body = &RecordValue_Endpoints{Endpoints: b}
	case *PolicySpec:
		wire.Body = &RecordValue_Policy{Policy: b}
	case *SecretSpec:
		wire.Body = &RecordValue_Secret{Secret: b}
	case *SecretReaderSpec:
		wire.Body = &RecordValue_SecretReader{SecretReader: b}
	case *WorkloadSpec:
		wire.Body = &RecordValue_Workload{Workload: b}
	case *ServiceAccountSpec:
		wire.Body = &RecordValue_ServiceAccount{ServiceAccount: b}
	case *NetworkGatewaysSpec:
		wire.Body = &RecordValue_NetworkGateways{NetworkGateways: b}
	default:
		raw, err := canonical.Marshal(body)
		if err != nil {
			return err
		}
		wire.Body = &RecordValue_Istio{Istio: raw}
	}
	return nil
}

// getBody returns the body in wire. Errors: it is missing, does not decode, or does not belong to the kind.
func getBody(wire *RecordValue, kind Kind) (body proto.Message, err error) {
	switch b := wire.Body.(type) {
	case *RecordValue_Service:
		body = b.Service
	case *RecordValue_Endpoints:
		body = b.Endpoints
	case *RecordValue_Policy:
		body = b.Policy
	case *RecordValue_Secret:
		body = b.Secret
	case *RecordValue_SecretReader:
		body = b.SecretReader
	case *RecordValue_Workload:
		body = b.Workload
	case *RecordValue_ServiceAccount:
		body = b.ServiceAccount
	case *RecordValue_NetworkGateways:
		body = b.NetworkGateways
	case *RecordValue_Istio:
		if body = NewBody(kind); body == nil || body.ProtoReflect().Descriptor().ParentFile() == File_store_model_record_proto {
			break
		}
		return body, proto.Unmarshal(b.Istio, body)
	case nil:
		return nil, fmt.Errorf("body is missing")
	}
	if _, istio := wire.Body.(*RecordValue_Istio); istio || !belongs(body, kind) {
		return nil, fmt.Errorf("body %T does not belong to kind %v", wire.Body, kind)
	}
	return body, nil
}

// typed returns the typed record for a body.
func typed(head Head, body proto.Message) (Record, error) {
	switch b := body.(type) {
	case *ServiceSpec:
		return &Service{head, b}, nil
	case *EndpointsSpec:
		return &Endpoints{head, b}, nil
	case *PolicySpec:
		return newPolicy(head, b), nil
	case *SecretSpec:
		return &Secret{head, b}, nil
	case *SecretReaderSpec:
		return &SecretReader{head, b}, nil
	case *WorkloadSpec:
		return &Workload{head, b}, nil
	case *ServiceAccountSpec:
		return &ServiceAccount{head, b}, nil
	case *NetworkGatewaysSpec:
		return &NetworkGateways{head, b}, nil
	case *meshv1.MeshConfig:
		return &Mesh{head, b}, nil
	case *networkingv1.VirtualService:
		return &VirtualService{head, b}, nil
	case *networkingv1.DestinationRule:
		return &DestinationRule{head, b}, nil
	case *networkingv1.Sidecar:
		return &Sidecar{head, b}, nil
	case *networkingv1.EnvoyFilter:
		return &EnvoyFilter{head, b}, nil
	case *networkingv1.Gateway:
		return &Gateway{head, b}, nil
	case *networkingv1.WorkloadGroup:
		return &WorkloadGroup{head, b}, nil
	case *telemetryv1.Telemetry:
		return &Telemetry{head, b}, nil
	case *extensionsv1.TrafficExtension:
		return &TrafficExtension{head, b}, nil
	case *proxyconfigv1.ProxyConfig:
		return &ProxyConfig{head, b}, nil
	}
	return nil, fmt.Errorf("no record type for body %T", body)
}
