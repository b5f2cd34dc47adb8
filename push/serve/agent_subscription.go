package serve

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/delta"
)

// AgentType is a type beside Envoy's own: agents ask for it on the stream that they carry for Envoy, and keep the answer for
// themselves. A client has one resource of it, or none. It is pushed when it changes (Server.AsideChanged).
type AgentType struct {
	// TypeURL is what is asked for; not one of xds.Type.
	TypeURL string
	// Resource is the client's; nil: there is none. It is called at every turn of a stream that subscribed, under the
	// stream's lock: it must take constant time, not block and not call the Server. Equal content should be one pointer, so
	// that its bytes are shared.
	Resource func(Client, View) *AgentResource
}

// AgentResource is an encoded resource of an agent type, shared by all streams that send it. Immutable.
type AgentResource struct {
	Name    string
	Version string // hash of the body, in hexadecimal

	delta, sotw mem.Buffer // the field `resources` of a response of either protocol
	size        int        // of delta, bytes
}

var agentMarshal = proto.MarshalOptions{Deterministic: true}

// EncodeAgentResource makes a resource of a message, in an Any of its own type. An error is a message that does not marshal.
func EncodeAgentResource(name string, m proto.Message) (*AgentResource, error) {
	body := &anypb.Any{}
	if err := anypb.MarshalFrom(body, m, agentMarshal); err != nil {
		return nil, fmt.Errorf("encode agent resource %q: %w", name, err)
	}
	return EncodeAgentResourceBody(name, body)
}

// EncodeAgentResourceBody makes a resource of an encoded message. An error is a name or type URL that is not UTF-8.
func EncodeAgentResourceBody(name string, body *anypb.Any) (*AgentResource, error) {
	sum := sha256.Sum256(body.Value)
	r := &AgentResource{Name: name, Version: hex.EncodeToString(sum[:16])}
	resource := &discoveryv3.Resource{Name: name, Version: r.Version, Resource: body}
	incremental, err := agentMarshal.Marshal(&discoveryv3.DeltaDiscoveryResponse{Resources: []*discoveryv3.Resource{resource}})
	if err != nil {
		return nil, fmt.Errorf("encode agent resource %q: %w", name, err)
	}
	whole, err := agentMarshal.Marshal(&discoveryv3.DiscoveryResponse{Resources: []*anypb.Any{body}})
	if err != nil {
		return nil, fmt.Errorf("encode agent resource %q: %w", name, err)
	}
	r.delta, r.sotw, r.size = mem.SliceBuffer(incremental), mem.SliceBuffer(whole), len(incremental)
	return r, nil
}

// Body is a copy of what is in it, for debugging and tests.
func (r *AgentResource) Body() *anypb.Any {
	whole := &discoveryv3.DiscoveryResponse{}
	if err := proto.Unmarshal(r.sotw.ReadOnlyData(), whole); err != nil {
		panic("serve: an agent resource that was encoded does not decode: " + err.Error())
	}
	return whole.Resources[0]
}

// agentSubscription is what one stream knows of one agent type. It has no clock and no socket.
type agentSubscription struct {
	sotw, subscribed bool

	all     bool     // subscribed to whatever there is; else to names
	names   []string // sorted
	awaited []string // names to be answered, whatever is held of them

	holds   holding // once what is in flight has arrived
	before  holding // before what is in flight
	refused string  // a version that the client refused; it is not sent again
	serial  uint64
	nonce   uint64 // in flight; 0: nothing is
	set     bool   // that has a resource
	size    int    // of that, bytes
	since   int64  // when it was sent, unix nanoseconds
}

// maxAgentNames bounds what a client can make a stream remember: an agent type has one resource.
const maxAgentNames = 64

// maxVersion is the length in bytes of the longest version that is kept; ours are shorter.
const maxVersion = 64

// maxAgentName is the length in bytes of the longest name that is asked for; others are left out.
const maxAgentName = 256

// agentNames are the names of a request, sorted.
func agentNames(all iter.Seq[string]) []string {
	return slices.DeleteFunc(delta.Collect(all), func(n string) bool { return len(n) > maxAgentName })
}

// tailSize bounds what a response has beside resources, names and type, with gRPC's prefix; bytes.
const tailSize = 64

// maxRefusalText is how much of a client's words is kept, bytes.
const maxRefusalText = 512

const wildcard = "*"

type holding struct {
	any           bool
	name, version string
}

// notice is one response of an agent type.
type notice struct {
	resource *AgentResource // nil: only removals
	removed  []string
	url      string
	nonce    string
	revision int64
	size     int // bytes on the wire, framing included
}

// request takes a request; refusal is the client's text where it refused what was in flight, acked how many bytes it has
// answered. The strings of m live only until it returns; res is the newest resource.
func (s *agentSubscription) request(m delta.Message, res *AgentResource) (refusal string, acked int) {
	if m.Nonce != "" && s.nonce != 0 && m.Nonce == nonceOf(s.nonce) {
		refusal, acked = s.answered(m), s.size
	}
	switch {
	case !s.subscribed:
		s.open(m, res)
	case s.sotw:
		if names := agentNames(m.Subscribe); m.Nonce == "" || !slices.Equal(names, s.names) {
			s.holds, s.all, s.names = holding{}, len(names) == 0, names
		}
	default:
		s.unsubscribe(delta.Collect(m.Unsubscribe))
		s.subscribe(agentNames(m.Subscribe))
	}
	return refusal, acked
}

// answered settles what is in flight. A client that refuses keeps what it had; a refused removal is not repeated.
func (s *agentSubscription) answered(m delta.Message) (refusal string) {
	if m.Failed {
		refusal = "refused without a word"
		if m.Error != "" {
			refusal = strings.ToValidUTF8(m.Error[:min(len(m.Error), maxRefusalText)], "")
		}
	}
	switch {
	case s.set && m.Failed:
		s.refused, s.holds = s.holds.version, s.before
	case s.set:
		s.refused = ""
	}
	s.nonce, s.before = 0, holding{}
	return refusal
}

// open is the first request: what the client says that it holds is believed.
func (s *agentSubscription) open(m delta.Message, res *AgentResource) {
	s.subscribed = true
	names := agentNames(m.Subscribe)
	s.all = len(names) == 0 || slices.Contains(names, wildcard)
	names = slices.DeleteFunc(names, func(n string) bool { return n == wildcard })
	s.names = slices.Clone(names[:min(len(names), maxAgentNames)])
	s.awaited = slices.Clone(s.names)
	if s.sotw {
		if res != nil && m.Version == res.Version {
			s.holds, s.awaited = holding{true, res.Name, res.Version}, nil
		}
		return
	}
	if m.Initial == nil {
		return
	}
	for name, version := range m.Initial {
		switch {
		case len(name) > maxAgentName:
		case res == nil || name != res.Name:
			s.owe(strings.Clone(name))
		case version == res.Version:
			s.awaited = slices.DeleteFunc(s.awaited, func(n string) bool { return n == name })
			fallthrough
		default:
			s.holds = holding{true, res.Name, strings.Clone(version[:min(len(version), maxVersion)])}
		}
	}
}

func (s *agentSubscription) owe(name string) {
	if len(s.awaited) < maxAgentNames && !slices.Contains(s.awaited, name) {
		s.awaited = append(s.awaited, name)
	}
}

// subscribe adds names; each is answered, also where it was sent before.
func (s *agentSubscription) subscribe(names []string) {
	for _, name := range names {
		if s.refused = ""; name == wildcard {
			s.all = true
			continue
		}
		s.owe(name)
		if i, listed := slices.BinarySearch(s.names, name); !listed && len(s.names) < maxAgentNames {
			s.names = slices.Insert(s.names, i, name)
		}
	}
}

func (s *agentSubscription) unsubscribe(names []string) {
	for _, name := range names {
		if name == wildcard {
			s.all = false
		}
		s.awaited = slices.DeleteFunc(s.awaited, func(n string) bool { return n == name })
		s.names = slices.DeleteFunc(s.names, func(n string) bool { return n == name })
	}
	if len(names) > 0 && !s.wants(s.holds.name) {
		s.holds = holding{}
	}
}

func (s *agentSubscription) wants(name string) bool {
	_, listed := slices.BinarySearch(s.names, name)
	return s.all || listed
}

// due is the change that brings the client up to date; false where there is none, or something is in flight.
func (s *agentSubscription) due(res *AgentResource) (set bool, removed []string, ok bool) {
	if s.nonce != 0 || !s.subscribed {
		return false, nil, false
	}
	if res != nil && !s.wants(res.Name) {
		res = nil
	}
	current := res != nil && s.holds.any && s.holds.name == res.Name
	news := res != nil && (!current || s.holds.version != res.Version || slices.Contains(s.awaited, res.Name))
	set = news && res.Version != s.refused
	gone := s.holds.any && !current && (res == nil || set)
	if s.sotw { // there is no word for a removal but an empty response, where something was sent
		return set, nil, set || gone
	}
	for _, name := range s.awaited {
		if res == nil || name != res.Name {
			removed = append(removed, name)
		}
	}
	if gone && !slices.Contains(removed, s.holds.name) {
		removed = append(removed, s.holds.name)
	}
	slices.Sort(removed)
	return set, removed, set || len(removed) > 0
}

// next is the next response, which then is in flight.
func (s *agentSubscription) next(url string, revision int64, res *AgentResource, now time.Time) (notice, bool) {
	set, removed, ok := s.due(res)
	if !ok {
		return notice{}, false
	}
	n := notice{removed: removed, url: url, revision: revision, size: tailSize + len(url)}
	s.before = s.holds
	if set {
		n.resource = res
		n.size += res.size
		s.holds = holding{true, res.Name, res.Version}
	} else if s.sotw || slices.Contains(removed, s.holds.name) {
		s.holds = holding{}
	}
	for _, name := range removed {
		n.size += len(name) + 4
	}
	s.awaited = nil
	s.serial++
	s.nonce, s.set, s.size, s.since = s.serial, set, n.size, now.UnixNano()
	n.nonce = nonceOf(s.nonce)
	return n, true
}

func nonceOf(n uint64) string { return "a" + strconv.FormatUint(n, 10) }
