package relay

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// agentReport contains the newest report of the agent. A report is a request that gets no response. The relay sends it
// on every upstream connection that carries a delta stream of Envoy.
type agentReport struct {
	mu      sync.Mutex
	data    []byte        // encoded; nil: no report yet
	changed chan struct{} // closed when data is replaced
}

func newAgentReport() *agentReport { return &agentReport{changed: make(chan struct{})} }

// next returns a channel that is closed when the next report replaces the present one.
func (s *agentReport) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// message returns the encoded report in a new slice; nil: no report yet.
func (s *agentReport) message() mem.BufferSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		return nil
	}
	return message(s.data)
}

// Report sends a report to the control plane, as a request of a type without responses. typeURL must not be a type that
// Envoy uses. wrong is the message of the request's error detail. An empty message means healthy, and the request then
// has no error detail. Report does not wait for the transmission. Each present and later upstream connection that
// carries a delta stream of Envoy receives the report, after Envoy's first request. Only the newest report is sent,
// whatever its type. Report is safe for concurrent use.
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

// internal is the google.rpc.Code of an unhealthy application, as Istio's agents send it.
const internal = 13
