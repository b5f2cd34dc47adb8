package listener

import (
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/build/patch"
	"navarch.io/navarch/push/xds"
)

// pieces splits the build of an inbound listener into pieces, and calls the function pause between them. Such a
// listener has several chains for each port of the workload, and all filters of policies and patches in each chain. A
// nil *pieces does not split the build.
type pieces struct{ pause func() }

// pauseOf returns the function to call between pieces. For a nil receiver it returns nil.
func (p *pieces) pauseOf() func() {
	if p == nil {
		return nil
	}
	return p.pause
}

// next calls the function pause at the end of a piece.
func (p *pieces) next() {
	if p != nil {
		p.pause()
	}
}

// BuildInPieces does the same as Build, and calls the function pause between the chains of the listener. The error is
// that of Build.
func (v VirtualInbound) BuildInPieces(pause func()) (*xds.Resource, error) {
	v.pieces = &pieces{pause}
	r, _, err := v.build()
	return r, err
}

// chainsField is the number of the field filter_chains.
var chainsField = (&listenerv3.Listener{}).ProtoReflect().Descriptor().Fields().ByName("filter_chains").Number()

// encode validates and encodes a listener, chain by chain. The bytes and errors are those of the whole listener.
func (p *pieces) encode(l *listenerv3.Listener) (*xds.Resource, error) {
	rest := patch.WithoutChains(l)
	valid := rest.ValidateAll() == nil
	chains := make([]proto.Message, 0, len(l.FilterChains))
	refs := newReferences()
	for _, c := range l.FilterChains {
		valid = valid && c.ValidateAll() == nil
		refs.addChain(c)
		chains = append(chains, c)
		p.pause()
	}
	if !valid {
		return nil, fmt.Errorf("listener %s: %w", l.Name, l.ValidateAll())
	}
	refs.addChain(l.DefaultFilterChain)
	return xds.EncodeInPieces(xds.Listener, l.Name, rest, chainsField, chains, p.pause, refs.refs...)
}
