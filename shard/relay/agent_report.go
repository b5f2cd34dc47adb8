package relay

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// agentReport is a request of the agent that has no response. The newest one is sent on every upstream connection of
// Envoy's delta streams.
type agentReport struct {
	mu      sync.Mutex
	data    []byte        // encoded; nil: no report yet
	changed chan struct{} // closed when data is replaced
}

func newAgentReport() *agentReport { return &agentReport{changed: make(chan struct{})} }

// next returns a channel that is closed at the next change.
func (s *agentReport) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// message returns the report to send now; nil: none.
func (s *agentReport) message() mem.BufferSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		return nil
	}
	return message(s.data)
}

// Report sends a report to the control plane, of a type that Envoy does not use and without a response. An empty wrong
// means healthy; otherwise it is sent as the request's error. The report is sent on Envoy's delta streams now, and on
// each connection that replaces them, until the next report. Without a stream of Envoy it is sent on the next one. Safe
// for concurrent use.
func (r *Relay) Report(typeURL, wrong string) {
	data := appendText(nil, requestType, typeURL)
	if wrong != "" {
		detail := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), internal)
		detail = appendText(detail, 2, wrong)
		data = protowire.AppendBytes(protowire.AppendTag(data, requestError, protowire.BytesType), detail)
	}
	s := r.report
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = data
	close(s.changed)
	s.changed = make(chan struct{})
}

// internal is the code that Istio's agents use for an unhealthy application (google.rpc.Code).
const internal = 13
