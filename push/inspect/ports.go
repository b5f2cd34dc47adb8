package inspect

import "google.golang.org/protobuf/types/known/structpb"

// ServicePort is a port of a service in front of a gateway.
type ServicePort struct {
	Service   string   `json:"service"`   // "Kind namespace/name"
	Addresses []string `json:"addresses"` // virtual IP addresses of the service; empty: none
	Port      uint32   `json:"port"`      // number of the port at the service
	Pod       uint32   `json:"pod"`       // number of the port at the gateway's Pod
}

// PortsMetadata is the field of the node's metadata in a dump with the ports of the services in front of a gateway, as
// a list of ServicePort. Proxies themselves do not state it.
const PortsMetadata = "NAVARCH_SERVICE_PORTS"

// portsValue encodes ports for the node's metadata.
func portsValue(all []ServicePort) *structpb.Value {
	out := &structpb.ListValue{}
	for _, p := range all {
		addresses := &structpb.ListValue{}
		for _, a := range p.Addresses {
			addresses.Values = append(addresses.Values, structpb.NewStringValue(a))
		}
		out.Values = append(out.Values, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"service": structpb.NewStringValue(p.Service), "addresses": structpb.NewListValue(addresses),
			"port": structpb.NewNumberValue(float64(p.Port)), "pod": structpb.NewNumberValue(float64(p.Pod))}}))
	}
	return structpb.NewListValue(out)
}
