package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/delta"
	"navarch.io/navarch/push/fanout"
	"navarch.io/navarch/store/obs"
)

// Answer is a type of requests from operators' tools, such as istio.io/debug. A request gets one response, and nothing
// is pushed. An ACK or a NACK gets no response. On a proxy's stream, a request gets no response while two answers wait
// to be sent. If the first request of a stream is of such a type, the stream belongs to a tool. Navarch plans nothing
// for a tool's stream, and the stream does not wait for admission. Agents send such requests on a proxy's stream.
type Answer struct {
	// TypeURL is the requested type. It must not be that of an xds.Type or an AgentType.
	TypeURL string
	// Resources returns the resources for the names in a request. The parameter names has at most 16 elements of at
	// most 512 bytes, and is nil for a request without names. Resources may keep the slice. The goroutine that reads
	// the stream calls Resources and waits for the result, so the call may take long. Resources is called for any
	// number of streams concurrently, so it must bound its concurrent work. The error must be a gRPC status. A tool's
	// stream ends with this status. A proxy's stream continues, and gets a response without resources.
	Resources func(ctx context.Context, c Client, names []string) ([]*discoveryv3.Resource, error)
}

// These bound the work and the memory that callers can cause.
const (
	maxAnswers   = 2   // answers that may wait on a proxy's stream; further requests get no response
	maxQuestion  = 16  // names in one request
	maxQueryName = 512 // bytes of a name
	// maxUnread is the time in which a client must read an answer, in units of Config.WriteTimeout. Answers may be
	// large, and connections of tools may be slow.
	maxUnread = 4
)

// answer is one response to a tool's request.
type answer struct {
	url     string
	message proto.Message // a DiscoveryResponse or a DeltaDiscoveryResponse; nil once it is encoded
	late    *time.Timer   // fires if the client does not read in time
	done    func()        // releases the answer in the budget of the caller's identity
	ended   atomic.Bool
}

// over stops the timeout and releases the budget. It is called as soon as the answer was written or will never be
// written, because the memory is then free. Further calls have no effect.
func (a *answer) over() {
	if !a.ended.Swap(true) {
		a.late.Stop()
		a.done()
	}
}

// Get returns a buffer of n bytes from gRPC's default pool (mem.BufferPool).
func (a *answer) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put ends the answer (mem.BufferPool). gRPC calls it with the bytes of the answer after it has written them.
func (a *answer) Put(*[]byte) { a.over() }

// encode returns the bytes of the answer for gRPC, and releases the message. It fails if the message does not marshal.
func (a *answer) encode() (mem.BufferSlice, error) {
	raw, err := proto.Marshal(a.message)
	if err != nil {
		return nil, err
	}
	a.message = nil                                  // free it while the bytes are being written
	if mem.IsBelowBufferPoolingThreshold(cap(raw)) { // gRPC does not call Put for so few bytes
		a.over()
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return mem.BufferSlice{mem.NewBuffer(&raw, a)}, nil
}

// nonces makes the nonces of one stream's answers. The nonces have a random part, so that nonces of different streams
// differ, also between processes. Only the goroutine that reads the stream uses a value of this type.
type nonces struct {
	random string // empty before the first nonce
	last   uint64 // number of the last nonce
}

// next returns a new nonce: the stream's random text, and a number.
func (n *nonces) next() string {
	if n.random == "" {
		n.random = rand.Text()
	}
	n.last++
	return n.random + "-" + strconv.FormatUint(n.last, 10)
}

// made reports whether the method next has returned the given nonce.
func (n *nonces) made(nonce string) bool {
	digits, ours := strings.CutPrefix(nonce, n.random+"-")
	if !ours || n.random == "" {
		return false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return err == nil && number > 0 && number <= n.last
}

// reply answers a request of the i-th type in Config.Answers. A request with the nonce of an earlier answer of this
// stream is an ACK, and a request with error_detail is a NACK. Neither of them gets a response. Other nonces are
// ignored, because istioctl sends the current time as response_nonce with each request, even the first (istio pkg/adsc
// ADSC.Send). The error is the gRPC status with which a tool's stream must end.
func (st *stream) reply(ctx context.Context, i int, m delta.Message) error {
	if m.Failed || st.answered.made(m.Nonce) {
		return nil
	}
	st.step = inQuestion
	if st.proxy == nil && m.Node != nil {
		st.client.ID, _ = nodeID(m.Node) // for log lines; tools need not send a node id
	}
	a := &st.srv.cfg.Answers[i]
	resources, done, err := st.resources(ctx, a, m)
	if err != nil && st.proxy == nil {
		return err // the end of the stream is logged
	}
	if err != nil {
		st.srv.clients.Warn("a tool's question was not answered", status.Code(err).String(), append(st.about(err), obs.KeyType, a.TypeURL)...)
	}
	one := st.made(a.TypeURL, resources, done)
	if st.proxy == nil {
		if _, written := st.pushTimed(&outgoing{answer: one}, time.Now()); !written {
			return status.Error(codes.Aborted, "the stream is broken")
		}
		return nil
	}
	st.answer(one)
	st.mark(fanout.Config, time.Now())
	return nil
}

// resources calls a.Resources for the names in a request, if the caller's budget permits one more answer. The answer
// counts against the budget until the function done is called. After an error, done has no effect.
func (st *stream) resources(ctx context.Context, a *Answer, m delta.Message) (all []*discoveryv3.Resource, done func(), err error) {
	done = func() {}
	var asked []string
	for name := range names(m.Subscribe) {
		if len(asked) == maxQuestion || len(name) > maxQueryName {
			return nil, done, status.Errorf(codes.InvalidArgument, "%s: more than %d names, or one of more than %d bytes",
				a.TypeURL, maxQuestion, maxQueryName)
		}
		asked = append(asked, strings.Clone(name)) // the name lives only until the request is freed
	}
	asks, err := st.place.Ask()
	if err != nil {
		return nil, done, st.bounded(BoundQuestions, err)
	}
	made := false
	defer func() {
		if !made { // Resources failed or panicked
			asks()
		}
	}()
	if all, err = a.Resources(ctx, st.client, asked); err != nil {
		return nil, done, err
	}
	made = true
	return all, asks, nil
}

// made returns an answer with resources. The function done releases the budget. If the client does not read the answer
// in time, its connection is closed. gRPC would keep the bytes until they are read, even after the stream has ended on
// both sides.
func (st *stream) made(url string, resources []*discoveryv3.Resource, done func()) *answer {
	one, patience := &answer{url: url, message: st.response(url, resources), done: done}, maxUnread*st.srv.cfg.WriteTimeout
	one.late = time.AfterFunc(time.Hour, func() {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not read: %s not written in %v", url, patience)) {
			st.srv.cfg.Hooks.Timeout(true)
		} else if st.hangUp != nil {
			_ = st.hangUp() // the connection may be closed already
		}
		one.over()
	})
	one.late.Reset(patience) // starts the timer only after one.late is set, because the timer's function uses it
	st.unread = append(slices.DeleteFunc(st.unread, func(a *answer) bool { return a.ended.Load() }), one)
	return one
}

// unreadOver ends all unread answers of a stream whose client has disconnected. gRPC has already released the bytes of
// these answers.
func (st *stream) unreadOver() {
	for _, one := range st.unread {
		one.over()
	}
}

// response returns a response with resources, in the stream's protocol (delta or state of the world). In state of the
// world, the response's version is a hash of the resources.
func (st *stream) response(url string, resources []*discoveryv3.Resource) proto.Message {
	control := &corev3.ControlPlane{Identifier: st.srv.cfg.Identifier}
	nonce := st.answered.next()
	if !st.sotw {
		return &discoveryv3.DeltaDiscoveryResponse{TypeUrl: url, Nonce: nonce, Resources: resources, ControlPlane: control}
	}
	version := []byte(url)
	bodies := make([]*anypb.Any, len(resources))
	for i, r := range resources {
		bodies[i] = r.Resource
		version = append(version, r.Resource.GetValue()...)
	}
	sum := sha256.Sum256(version)
	return &discoveryv3.DiscoveryResponse{TypeUrl: url, Nonce: nonce, VersionInfo: hex.EncodeToString(sum[:16]),
		Resources: bodies, ControlPlane: control}
}

// answer queues an answer to be sent. If maxAnswers answers already wait, or if the stream has ended, it drops the
// answer.
func (x *exchange) answer(one *answer) {
	queued := false
	x.locked(func() {
		if queued = !x.closed && len(x.answers) < maxAnswers; queued {
			x.answers = append(x.answers, one)
		}
	})
	if !queued {
		one.over()
	}
}

// nextAnswer removes and returns the oldest queued answer, or nil. The caller holds the lock.
func (x *exchange) nextAnswer() *answer {
	if len(x.answers) == 0 {
		return nil
	}
	one := x.answers[0]
	x.answers = slices.Delete(x.answers, 0, 1)
	return one
}
