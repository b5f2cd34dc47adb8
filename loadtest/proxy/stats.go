package proxy

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"navarch.io/navarch/loadtest/gauge"
	"navarch.io/navarch/push/xds"
)

// Example describes one violation, for people.
type Example struct {
	Proxy  string `json:"proxy"`
	Type   string `json:"type,omitempty"`
	Name   string `json:"name,omitempty"`
	Detail string `json:"detail"`
}

func (e Example) String() string {
	return fmt.Sprintf("%s %s %s: %s", e.Proxy, e.Type, e.Name, e.Detail)
}

// maxExamples is the number of examples that are kept of one kind.
const maxExamples = 5

// Violations counts one kind of violation.
type Violations struct {
	Count    uint64    `json:"count"`
	Examples []Example `json:"examples,omitempty"`
}

// TypeStats counts one resource type. Bytes are those of gRPC messages with their 5-byte prefixes.
type TypeStats struct {
	Responses uint64 `json:"responses"`
	Resources uint64 `json:"resources"`
	Removed   uint64 `json:"removed"`
	BytesIn   uint64 `json:"bytes_in"`
	Requests  uint64 `json:"requests"`
	BytesOut  uint64 `json:"bytes_out"`
	Acks      uint64 `json:"acks"`
	Nacks     uint64 `json:"nacks"`
}

// Stats are the counters of a fleet since its start. Stats of several processes can be merged.
type Stats struct {
	Proxies    int `json:"proxies"`    // proxies that were added and not removed
	Connected  int `json:"connected"`  // proxies that have a stream now
	Joined     int `json:"joined"`     // proxies that are completely warm now
	Sampled    int `json:"sampled"`    // proxies that decode and validate all contents
	Unacked    int `json:"unacked"`    // responses on open streams without ACK or NACK
	Goroutines int `json:"goroutines"` // of this process
	// Dials counts connection attempts, Streams the opened streams, GoAways the servers' GOAWAY frames.
	Dials   uint64 `json:"dials"`
	Streams uint64 `json:"streams"`
	GoAways uint64 `json:"go_aways"`
	Moves   uint64 `json:"moves"` // streams moved to an owner, make before break
	// Ended counts streams that the fleet did not end, by gRPC status. "io" means a broken connection, "dial" a failed
	// one.
	Ended map[string]uint64 `json:"ended,omitempty"`
	// Errors contains one example for each key of Ended.
	Errors map[string]string    `json:"errors,omitempty"`
	Types  map[string]TypeStats `json:"types"` // by CDS, EDS, LDS, RDS, SDS and agent
	// SocketIn and SocketOut are bytes of HTTP/2 (inside of TLS).
	SocketIn  uint64 `json:"socket_in"`
	SocketOut uint64 `json:"socket_out"`
	// Join is the time from the dial until all is warm, for first connects and cold reconnects. Resume is the time from
	// the dial until the requests of a resumed stream are sent. AckAfter is the time from a complete response to its ACK.
	Join     *gauge.Histogram    `json:"join"`
	Resume   *gauge.Histogram    `json:"resume"`
	AckAfter *gauge.Histogram    `json:"ack_after"`
	Found    map[Kind]Violations `json:"violations,omitempty"`
}

// Merge adds the Stats of another process.
func (s *Stats) Merge(o Stats) {
	s.Proxies += o.Proxies
	s.Connected += o.Connected
	s.Joined += o.Joined
	s.Sampled += o.Sampled
	s.Unacked += o.Unacked
	s.Goroutines += o.Goroutines
	s.Dials += o.Dials
	s.Streams += o.Streams
	s.GoAways += o.GoAways
	s.Moves += o.Moves
	s.SocketIn += o.SocketIn
	s.SocketOut += o.SocketOut
	s.fill()
	s.Join.Merge(o.Join)
	s.Resume.Merge(o.Resume)
	s.AckAfter.Merge(o.AckAfter)
	for key, n := range o.Ended {
		s.Ended[key] += n
	}
	for key, text := range o.Errors {
		s.Errors[key] = text
	}
	for t, c := range o.Types {
		s.Types[t] = s.Types[t].plus(c, 1)
	}
	for kind, v := range o.Found {
		mine := s.Found[kind]
		mine.Count += v.Count
		mine.Examples = append(slices.Clone(mine.Examples), v.Examples...)
		mine.Examples = mine.Examples[:min(len(mine.Examples), maxExamples)]
		s.Found[kind] = mine
	}
}

// fill allocates the maps and histograms of a zero Stats.
func (s *Stats) fill() {
	for _, h := range []**gauge.Histogram{&s.Join, &s.Resume, &s.AckAfter} {
		if *h == nil {
			*h = &gauge.Histogram{}
		}
	}
	for _, m := range []*map[string]uint64{&s.Ended} {
		if *m == nil {
			*m = map[string]uint64{}
		}
	}
	if s.Errors == nil {
		s.Errors = map[string]string{}
	}
	if s.Types == nil {
		s.Types = map[string]TypeStats{}
	}
	if s.Found == nil {
		s.Found = map[Kind]Violations{}
	}
}

// plus returns c + sign*o, with sign 1 or -1.
func (c TypeStats) plus(o TypeStats, sign int) TypeStats {
	add := func(a *uint64, b uint64) { *a += uint64(sign) * b }
	add(&c.Responses, o.Responses)
	add(&c.Resources, o.Resources)
	add(&c.Removed, o.Removed)
	add(&c.BytesIn, o.BytesIn)
	add(&c.Requests, o.Requests)
	add(&c.BytesOut, o.BytesOut)
	add(&c.Acks, o.Acks)
	add(&c.Nacks, o.Nacks)
	return c
}

// Since returns the difference to an earlier Stats of the same fleet, for Types, sockets and counters. Histograms and
// violations are those of s.
func (s Stats) Since(earlier Stats) Stats {
	s.Types = maps.Clone(s.Types)
	for t, c := range earlier.Types {
		s.Types[t] = s.Types[t].plus(c, -1)
	}
	s.SocketIn -= earlier.SocketIn
	s.SocketOut -= earlier.SocketOut
	s.Dials -= earlier.Dials
	s.Streams -= earlier.Streams
	s.GoAways -= earlier.GoAways
	s.Moves -= earlier.Moves
	return s
}

// Total returns the sum over all types.
func (s Stats) Total() TypeStats {
	var sum TypeStats
	for _, c := range s.Types {
		sum = sum.plus(c, 1)
	}
	return sum
}

// Violated returns the number of violations of all kinds.
func (s Stats) Violated() uint64 {
	var n uint64
	for _, v := range s.Found {
		n += v.Count
	}
	return n
}

// agentType is the index of the agent types, after xds' types.
const agentType = int(xds.NumTypes)

// typeCounters are the counters of one type.
type typeCounters struct {
	responses, resources, removed, bytesIn, requests, bytesOut, acks, nacks atomic.Uint64
}

func (c *typeCounters) read() TypeStats {
	return TypeStats{
		Responses: c.responses.Load(), Resources: c.resources.Load(), Removed: c.removed.Load(), BytesIn: c.bytesIn.Load(),
		Requests: c.requests.Load(), BytesOut: c.bytesOut.Load(), Acks: c.acks.Load(), Nacks: c.nacks.Load(),
	}
}

// counters are the counters that all proxies of a fleet update.
type counters struct {
	types                                  [agentType + 1]typeCounters
	dials, streams, goAways, moves         atomic.Uint64
	socketIn, socketOut                    atomic.Uint64
	proxies, connected, joined, sampledNow atomic.Int64
	unacked                                atomic.Int64
	join, resume, ackAfter                 gauge.Histogram

	mu     sync.Mutex
	ended  map[string]uint64
	errors map[string]string
	found  map[Kind]Violations
}

// violation counts one violation and keeps the first examples.
func (c *counters) violation(k Kind, e Example) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil {
		c.found = map[Kind]Violations{}
	}
	v := c.found[k]
	if v.Count++; len(v.Examples) < maxExamples {
		v.Examples = append(slices.Clone(v.Examples), e)
	}
	c.found[k] = v
}

// end counts a stream that has ended.
func (c *counters) end(key, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended == nil {
		c.ended, c.errors = map[string]uint64{}, map[string]string{}
	}
	c.ended[key]++
	c.errors[key] = text
}

func typeName(t int) string {
	if t == agentType {
		return "agent"
	}
	return xds.Type(t).String()
}
