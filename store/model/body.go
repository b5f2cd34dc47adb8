package model

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
	proxyconfigv1 "istio.io/api/networking/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
)

// istioBody makes an empty Istio message for each kind whose records carry one. It is nil for kinds with messages of
// this package.
var istioBody = [NumKinds]func() proto.Message{
	KindMesh:             func() proto.Message { return &meshv1.MeshConfig{} },
	KindVirtualService:   func() proto.Message { return &networkingv1.VirtualService{} },
	KindDestinationRule:  func() proto.Message { return &networkingv1.DestinationRule{} },
	KindSidecar:          func() proto.Message { return &networkingv1.Sidecar{} },
	KindEnvoyFilter:      func() proto.Message { return &networkingv1.EnvoyFilter{} },
	KindGateway:          func() proto.Message { return &networkingv1.Gateway{} },
	KindWorkloadGroup:    func() proto.Message { return &networkingv1.WorkloadGroup{} },
	KindTelemetry:        func() proto.Message { return &telemetryv1.Telemetry{} },
	KindWasmPlugin:       func() proto.Message { return &extensionsv1.TrafficExtension{} },
	KindTrafficExtension: func() proto.Message { return &extensionsv1.TrafficExtension{} },
	KindProxyConfig:      func() proto.Message { return &proxyconfigv1.ProxyConfig{} },
}

func setBody(wire *RecordValue, kind Kind, body proto.Message) error {
	switch b := body.(type) {
	case *ServiceSpec:
		if kind != KindService && kind != KindServiceEntry {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_Service{Service: b}
	case *EndpointsSpec:
		if kind != KindEndpoints {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_Endpoints{Endpoints: b}
	case *PolicySpec:
		if !kind.IsPolicy() {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_Policy{Policy: b}
	case *SecretSpec:
		if kind != KindSecret {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_Secret{Secret: b}
	case *SecretReaderSpec:
		if kind != KindSecretReader {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_SecretReader{SecretReader: b}
	case *WorkloadSpec:
		if kind != KindWorkload {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_Workload{Workload: b}
	case *ServiceAccountSpec:
		if kind != KindServiceAccount && kind != KindNamespace {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_ServiceAccount{ServiceAccount: b}
	case *NetworkGatewaysSpec:
		if kind != KindNetworkGateways {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		wire.Body = &RecordValue_NetworkGateways{NetworkGateways: b}
	default:
		if kind >= NumKinds || istioBody[kind] == nil || !sameMessage(istioBody[kind](), body) {
			return fmt.Errorf("body %T does not belong to kind %v", body, kind)
		}
		raw, err := canonical.Marshal(body)
		if err != nil {
			return err
		}
		wire.Body = &RecordValue_Istio{Istio: raw}
	}
	return nil
}

func sameMessage(a, b proto.Message) bool {
	return a.ProtoReflect().Descriptor().FullName() == b.ProtoReflect().Descriptor().FullName()
}

func getBody(wire *RecordValue, kind Kind) (proto.Message, error) {
	switch b := wire.Body.(type) {
	case *RecordValue_Service:
		if kind == KindService || kind == KindServiceEntry {
			return b.Service, nil
		}
	case *RecordValue_Endpoints:
		if kind == KindEndpoints {
			return b.Endpoints, nil
		}
	case *RecordValue_Policy:
		if kind.IsPolicy() {
			return b.Policy, nil
		}
	case *RecordValue_Secret:
		if kind == KindSecret {
			return b.Secret, nil
		}
	case *RecordValue_SecretReader:
		if kind == KindSecretReader {
			return b.SecretReader, nil
		}
	case *RecordValue_Workload:
		if kind == KindWorkload {
			return b.Workload, nil
		}
	case *RecordValue_ServiceAccount:
		if kind == KindServiceAccount || kind == KindNamespace {
			return b.ServiceAccount, nil
		}
	case *RecordValue_NetworkGateways:
		if kind == KindNetworkGateways {
			return b.NetworkGateways, nil
		}
	case *RecordValue_Istio:
		if kind < NumKinds && istioBody[kind] != nil {
			body := istioBody[kind]()
			return body, proto.Unmarshal(b.Istio, body)
		}
	case nil:
		return nil, fmt.Errorf("body is missing")
	}
	return nil, fmt.Errorf("body %T does not belong to kind %v", wire.Body, kind)
}

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
