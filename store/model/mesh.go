package model

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"
	networkingv1 "istio.io/api/networking/v1alpha3"
)

// MeshKey is the key of the only Mesh record.
var MeshKey = Key{Kind: KindMesh, Name: "mesh"}

// MeshGatewaysKey is the key of the NetworkGateways record with the gateways that the meshNetworks configuration states
// by address.
var MeshGatewaysKey = Key{Kind: KindNetworkGateways, Name: "meshNetworks"}

// MeshDefaults returns a MeshConfig with the default of each field whose default is not the zero value
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/). The caller owns the result.
func MeshDefaults() *meshv1.MeshConfig {
	return &meshv1.MeshConfig{
		ConnectTimeout:        durationpb.New(10 * time.Second),
		RootNamespace:         "istio-system",
		TrustDomain:           "cluster.local",
		EnableAutoMtls:        wrapperspb.Bool(true),
		EnableTracing:         true,
		EnablePrometheusMerge: wrapperspb.Bool(true),
		OutboundTrafficPolicy: &meshv1.MeshConfig_OutboundTrafficPolicy{Mode: meshv1.MeshConfig_OutboundTrafficPolicy_ALLOW_ANY},
		InboundTrafficPolicy:  &meshv1.MeshConfig_InboundTrafficPolicy{Mode: meshv1.MeshConfig_InboundTrafficPolicy_PASSTHROUGH},
		LocalityLbSetting:     &networkingv1.LocalityLoadBalancerSetting{Enabled: wrapperspb.Bool(true)},
		DefaultHttpRetryPolicy: &networkingv1.HTTPRetry{
			Attempts: 2,
			RetryOn:  "connect-failure,refused-stream,unavailable,cancelled,retriable-status-codes",
		},
		DefaultServiceExportTo:         []string{"*"},
		DefaultVirtualServiceExportTo:  []string{"*"},
		DefaultDestinationRuleExportTo: []string{"*"},
		ProxyListenPort:                15001,
		ProxyInboundListenPort:         15006,
		DefaultConfig:                  &meshv1.ProxyConfig{},
	}
}

// DefaultMesh returns the Mesh record of a mesh without configuration, with MeshDefaults. It always returns the same
// pointer. The record must not be modified. DefaultMesh is safe for concurrent use.
var DefaultMesh = sync.OnceValue(func() *Mesh {
	record, err := New(MeshKey, 0, MeshDefaults())
	if err != nil {
		panic(fmt.Sprintf("the default mesh configuration does not encode: %v", err))
	}
	return record.(*Mesh)
})
