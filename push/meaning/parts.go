package meaning

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"

	"navarch.io/navarch/push/xds"
)

// partsRoom limits the encoded size in bytes of all filters and TLS settings that a parts stores. The same limit holds
// for the filter chains.
const partsRoom = 4 << 20

// parts caches decoded parts of filter chains, because most chains of all listeners have equal filters and equal TLS
// settings. Connection managers and TCP proxies are not stored, because they differ from chain to chain. A parts also
// caches the models of whole chains, because a change leaves many chains of a listener as they are.
type parts struct {
	filters  map[anyKey]setting
	sockets  map[socketKey]tls
	room     int              // bytes of filters and TLS settings that may still be stored
	chains   map[string]chain // by encoding; dropped when their room is exhausted
	chained  int              // bytes of chains that are stored
	encoding []byte           // buffer for the encoding of one chain
	modelled int              // number of models of chains that were computed
}

// setting contains the settings of a filter. They are shared and read-only.
type setting struct {
	proto.Message
	policies *policies // model of an RBAC filter; nil for other filters
}

// anyKey identifies a message in an Any.
type anyKey struct{ url, value string }

// socketKey identifies a transport socket.
type socketKey struct {
	name   string
	config anyKey
}

// newParts returns an empty cache.
func newParts() *parts {
	return &parts{filters: map[anyKey]setting{}, sockets: map[socketKey]tls{}, room: partsRoom, chains: map[string]chain{}}
}

// chainOf returns the model of a chain. Chains with equal encodings have the same model, which is read-only.
func (p *parts) chainOf(m *listenerv3.FilterChain) chain {
	raw, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(p.encoding[:0], m)
	if err != nil {
		return p.modelOf(m)
	}
	p.encoding = raw
	if known, is := p.chains[string(raw)]; is {
		return known
	}
	c := p.modelOf(m)
	if p.chained += len(raw); p.chained > partsRoom {
		p.chained = len(raw)
		clear(p.chains)
	}
	p.chains[string(raw)] = c
	return c
}

// unshared contains the types whose settings differ from chain to chain.
var unshared = map[string]bool{xds.TypeURL(&hcmv3.HttpConnectionManager{}): true, xds.TypeURL(&tcpv3.TcpProxy{}): true}

// filter decodes the settings of a filter. The result is shared and read-only, except the settings of a connection
// manager or a TCP proxy. The error is that of decoding.
func (p *parts) filter(config *anypb.Any) (setting, error) {
	if unshared[config.GetTypeUrl()] {
		m, err := config.UnmarshalNew()
		return setting{Message: m}, err
	}
	key := anyKey{config.GetTypeUrl(), string(config.GetValue())}
	if known, is := p.filters[key]; is {
		return known, nil
	}
	m, err := config.UnmarshalNew()
	if err != nil {
		return setting{}, err
	}
	s := setting{m, policiesOf(m)}
	if p.takes(key) {
		p.filters[key] = s
	}
	return s, nil
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
