package relay

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// saying is a request of the agent's own that is never answered: the newest one is sent on every upstream connection of Envoy's delta streams.
type saying struct {
	mu      sync.Mutex
	data    []byte        // encoded; nil: nothing was said yet
	changed chan struct{} // closed when data is another
}

func newSaying() *saying { return &saying{changed: make(chan struct{})} }

// next is closed at the next change.
func (s *saying) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// message is what is to be said now; nil: nothing.
func (s *saying) message() mem.BufferSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		return nil
	}
	return message(s.data)
}

// Say says something to the control plane that has no answer, of a type that Envoy does not ask for: that is well (empty wrong), or what is wrong with
// it, as the error of a request. It is said on Envoy's delta streams, at once and on each connection that takes their place, and until something else is
// said; on none where Envoy has none. Safe for concurrent use.
func (r *Relay) Say(typeURL, wrong string) {
	data := appendText(nil, requestType, typeURL)
	if wrong != "" {
		detail := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), internal)
		detail = appendText(detail, 2, wrong)
		data = protowire.AppendBytes(protowire.AppendTag(data, requestError, protowire.BytesType), detail)
	}
	s := r.saying
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = data
	close(s.changed)
	s.changed = make(chan struct{})
}

// internal is the code that stock agents give an application that is not well (google.rpc.Code).
const internal = 13
