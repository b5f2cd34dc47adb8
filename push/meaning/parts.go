package meaning

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// partsRoom limits what a parts stores: the encoded size in bytes of all messages whose decoded forms are stored.
const partsRoom = 4 << 20

// parts caches decoded parts of filter chains, because most chains of all listeners have equal filters and equal TLS
// settings. Connection managers and TCP proxies are not stored, because they differ from chain to chain.
type parts struct {
	filters map[anyKey]proto.Message // shared and read-only
	sockets map[socketKey]tls
	room    int // bytes that may still be stored
}

// anyKey identifies a message in an Any.
type anyKey struct{ url, value string }

// socketKey identifies a transport socket.
type socketKey struct {
	name   string
	config anyKey
}

// newParts returns an empty cache.
func newParts() *parts { return &parts{map[anyKey]proto.Message{}, map[socketKey]tls{}, partsRoom} }

// unshared contains the types whose settings differ from chain to chain.
var unshared = map[string]bool{xds.TypeURL(&hcmv3.HttpConnectionManager{}): true, xds.TypeURL(&tcpv3.TcpProxy{}): true}

// filter decodes the settings of a filter. The result is shared and read-only. The error is that of decoding.
func (p *parts) filter(config *anypb.Any) (proto.Message, error) {
	if unshared[config.GetTypeUrl()] {
		return config.UnmarshalNew()
	}
	key := anyKey{config.GetTypeUrl(), string(config.GetValue())}
	if known := p.filters[key]; known != nil {
		return known, nil
	}
	m, err := config.UnmarshalNew()
	if err == nil && p.takes(key) {
		p.filters[key] = m
	}
	return m, err
}

// tls returns the TLS settings of a transport socket.
func (p *parts) tls(of *corev3.TransportSocket) tls {
	if of.GetTypedConfig() == nil {
		return socketTLS(of)
	}
	key := socketKey{of.GetName(), anyKey{of.GetTypedConfig().GetTypeUrl(), string(of.GetTypedConfig().GetValue())}}
	t, known := p.sockets[key]
	if !known {
		if t = socketTLS(of); p.takes(key.config) {
			p.sockets[key] = t
		}
	}
	return t
}

// takes reports whether the cache has room for the decoded form of a message. If so, it reduces the room.
func (p *parts) takes(from anyKey) bool {
	if p.room < len(from.value) {
		return false
	}
	p.room -= len(from.value) + 100 // an estimate of what an empty message takes
	return true
}
