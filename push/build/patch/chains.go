package patch

import (
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A listener may have tens of thousands of chains, so it is copied and validated chain by chain.

// WithoutChains returns a new listener with all fields of l except filter_chains. The new listener shares the values of
// these fields with l.
func WithoutChains(l *listenerv3.Listener) *listenerv3.Listener {
	rest := &listenerv3.Listener{}
	l.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if fd.Name() != "filter_chains" {
			rest.ProtoReflect().Set(fd, v)
		}
		return true
	})
	return rest
}

// cloneInPieces returns a copy of a listener. It calls the function pause, which may be nil, between the listener's
// chains.
func cloneInPieces(l *listenerv3.Listener, pause func()) *listenerv3.Listener {
	out := proto.Clone(WithoutChains(l)).(*listenerv3.Listener)
	for _, c := range l.FilterChains {
		out.FilterChains = append(out.FilterChains, proto.Clone(c).(*listenerv3.FilterChain))
		if pause != nil {
			pause()
		}
	}
	return out
}

// checkChains returns the error of Check for a listener. It calls the function pause between the listener's chains.
func checkChains(l *listenerv3.Listener, pause func()) error {
	ok := Check(WithoutChains(l)) == nil
	for i := 0; ok && i < len(l.FilterChains); i++ {
		ok = Check(l.FilterChains[i]) == nil
		pause()
	}
	if ok {
		return nil
	}
	return Check(l) // the error names the field of the listener
}
