package relay

import (
	"sync"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// agentReport contains the newest report of the agent. A report is a discovery request to which the control plane sends
// no response. The relay sends it on every upstream connection (connection to the control plane) that carries a delta
// stream of Envoy.
type agentReport struct {
	mu      sync.Mutex
	data    []byte        // the encoded report; nil: there is no report yet
	changed chan struct{} // closed when data is replaced
}

func newAgentReport() *agentReport { return &agentReport{changed: make(chan struct{})} }

// next returns a channel that is closed when the next report replaces the present one.
func (s *agentReport) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// message returns the encoded report in a new slice, or nil if there is no report yet.
func (s *agentReport) message() mem.BufferSlice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.data == nil {
		return nil
	}
	return message(s.data)
}

// Report sends a report to the control plane, as a discovery request that gets no response. The parameter typeURL is
// the type of the request. It must not be a type that Envoy uses. The parameter wrong is the message of the request's
// error detail. If it is empty, the request has no error detail, which means healthy. Report does not wait for the
// transmission. Each present and later connection to the control plane that carries a delta stream of Envoy receives
// the report, after Envoy's first request. A newer report replaces an older one, even of another type. Report is safe
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

// internal is the google.rpc.Code that Istio's agents send for an unhealthy application.
const internal = 13
