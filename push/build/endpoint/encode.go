package endpoint

import (
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/model"
)

// encoder makes messages of endpoints whose bytes are encoded already. Of the 100,000 endpoints of one host nearly all are alike but for their address:
// what is alike is encoded once. The bytes are those of lbEndpoint, in the same order: fields by number, and then the oneof.
type encoder struct {
	alike map[likeness][]byte
	slab  []byte
}

// likeness is all that decides an endpoint's bytes but for its address. Comparable.
type likeness struct {
	workload, namespace, name, revision, cluster string
	health                                       model.Health
	weight                                       uint32
	mtls                                         bool
}

// slabSize is the number of bytes that are allocated at once for encoded endpoints.
const slabSize = 64 << 10

func (c *encoder) lbEndpoint(m model.Member, weight uint32, mtls bool) *endpointv3.LbEndpoint {
	e := m.Endpoint
	if isUnix(e.Address) {
		return lbEndpoint(m, weight, mtls)
	}
	key := likeness{e.Workload, e.Namespace, canonicalName(e), canonicalRevision(e), e.Cluster, e.Health, weight, mtls}
	rest, known := c.alike[key]
	if !known {
		whole := lbEndpoint(m, weight, mtls)
		whole.HostIdentifier = nil
		var err error
		if rest, err = (proto.MarshalOptions{Deterministic: true}).Marshal(whole); err != nil {
			return lbEndpoint(m, weight, mtls) // with the error that encoding it has
		}
		if c.alike == nil {
			c.alike = map[likeness][]byte{}
		}
		c.alike[key] = rest
	}
	if need := len(rest) + len(e.Address) + 32; cap(c.slab)-len(c.slab) < need {
		c.slab = make([]byte, 0, max(slabSize, need))
	}
	at := len(c.slab)
	c.slab = appendHost(append(c.slab, rest...), e.Address, m.Port)
	raw := &endpointv3.LbEndpoint{}
	raw.ProtoReflect().SetUnknown(c.slab[at:len(c.slab):len(c.slab)])
	return raw
}

// Numbers of fields in Envoy's messages (envoy/config/endpoint/v3/endpoint_components.proto, envoy/config/core/v3/address.proto).
const (
	hostEndpoint         = 1 // of LbEndpoint
	endpointAddress      = 1 // of Endpoint
	addressSocketAddress = 1 // of Address
	socketAddress        = 2 // of SocketAddress
	socketPort           = 3
)

// appendHost appends the field of LbEndpoint that says where it is: an IP with a port.
func appendHost(b []byte, address string, port uint32) []byte {
	socket := protowire.SizeTag(socketAddress) + protowire.SizeBytes(len(address)) + protowire.SizeTag(socketPort) + protowire.SizeVarint(uint64(port))
	inAddress := protowire.SizeTag(addressSocketAddress) + protowire.SizeBytes(socket)
	inEndpoint := protowire.SizeTag(endpointAddress) + protowire.SizeBytes(inAddress)
	b = protowire.AppendVarint(protowire.AppendTag(b, hostEndpoint, protowire.BytesType), uint64(inEndpoint))
	b = protowire.AppendVarint(protowire.AppendTag(b, endpointAddress, protowire.BytesType), uint64(inAddress))
	b = protowire.AppendVarint(protowire.AppendTag(b, addressSocketAddress, protowire.BytesType), uint64(socket))
	b = protowire.AppendString(protowire.AppendTag(b, socketAddress, protowire.BytesType), address)
	return protowire.AppendVarint(protowire.AppendTag(b, socketPort, protowire.VarintType), uint64(port))
}
