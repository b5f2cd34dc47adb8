package endpoint

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// encoder encodes endpoints. A host may have 100,000 endpoints, most of which differ only in their address. The encoder
// encodes the part that many endpoints have in common only once. The bytes equal those of lbEndpoint, in the same
// order: fields by number, then the oneof.
type encoder struct {
	common map[commonKey][]byte // encoded endpoints without an address
	slab   []byte               // memory for the next encoded endpoints
}

// commonKey holds all inputs of an endpoint's bytes except its address. It is comparable.
type commonKey struct {
	workload, namespace, name, revision, cluster string
	health                                       model.Health
	weight                                       uint32
	mtls                                         bool
}

// slabSize is the largest number of bytes that are allocated at once for encoded endpoints. The first slab has room for
// one endpoint, since most services have few, and each further slab has twice the size of the slab before.
const slabSize = 64 << 10

// lbEndpoint returns an endpoint whose encoding equals that of the function lbEndpoint. The bytes of an endpoint with
// an IP are unknown fields of the message. So the message has no fields that can be read.
func (c *encoder) lbEndpoint(m model.Member, weight uint32, mtls bool) *endpointv3.LbEndpoint {
	e := m.Endpoint
	if isUnix(e.Address) {
		return lbEndpoint(m, weight, mtls)
	}
	key := commonKey{e.Workload, e.Namespace, canonicalName(e), canonicalRevision(e), e.Cluster, e.Health, weight, mtls}
	rest, known := c.common[key]
	if !known {
		whole := lbEndpoint(m, weight, mtls)
		whole.HostIdentifier = nil
		var err error
		if rest, err = (proto.MarshalOptions{Deterministic: true}).Marshal(whole); err != nil {
			return lbEndpoint(m, weight, mtls) // the caller's encoding returns the error
		}
		if c.common == nil {
			c.common = map[commonKey][]byte{}
		}
		c.common[key] = rest
	}
	if need := len(rest) + len(e.Address) + 32; cap(c.slab)-len(c.slab) < need {
		c.slab = make([]byte, 0, max(min(2*cap(c.slab), slabSize), need))
	}
	at := len(c.slab)
	c.slab = appendHost(append(c.slab, rest...), e.Address, m.Port)
	raw := &endpointv3.LbEndpoint{}
	raw.ProtoReflect().SetUnknown(c.slab[at:len(c.slab):len(c.slab)])
	return raw
}

// These are field numbers of Envoy's messages (envoy/config/endpoint/v3/endpoint_components.proto,
// envoy/config/core/v3/address.proto).
const (
	hostEndpoint         = 1 // LbEndpoint.endpoint
	endpointAddress      = 1 // Endpoint.address
	addressSocketAddress = 1 // Address.socket_address
	socketAddress        = 2 // SocketAddress.address
	socketPort           = 3 // SocketAddress.port_value
)

// appendHost appends the field LbEndpoint.endpoint with an IP address and a port.
func appendHost(b []byte, address string, port uint32) []byte {
	socket := protowire.SizeTag(socketAddress) + protowire.SizeBytes(len(address)) +
		protowire.SizeTag(socketPort) + protowire.SizeVarint(uint64(port))
	inAddress := protowire.SizeTag(addressSocketAddress) + protowire.SizeBytes(socket)
	inEndpoint := protowire.SizeTag(endpointAddress) + protowire.SizeBytes(inAddress)
	b = protowire.AppendVarint(protowire.AppendTag(b, hostEndpoint, protowire.BytesType), uint64(inEndpoint))
	b = protowire.AppendVarint(protowire.AppendTag(b, endpointAddress, protowire.BytesType), uint64(inAddress))
	b = protowire.AppendVarint(protowire.AppendTag(b, addressSocketAddress, protowire.BytesType), uint64(socket))
	b = protowire.AppendString(protowire.AppendTag(b, socketAddress, protowire.BytesType), address)
	return protowire.AppendVarint(protowire.AppendTag(b, socketPort, protowire.VarintType), uint64(port))
}
