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

// Answer is a type that is answered once for each request and never pushed: what operators' tools ask (istio.io/debug). A
// stream whose first request is of such a type asks for nothing else: it has no view and does not wait for admission.
type Answer struct {
	// TypeURL is what is asked for; neither one of xds.Type nor of an AgentType.
	TypeURL string
	// Resources are what a client gets for the names in its request. It is called by the goroutine that reads the stream, for
	// as many streams as ask, and may take its time: how much is made at once is for it to bound. An error is a gRPC status: it ends a stream that
	// only asks; a proxy's goes on, and gets no resources.
	Resources func(ctx context.Context, c Client, names []string) ([]*discoveryv3.Resource, error)
}

// Bounds of what callers can make a replica do and keep.
const (
	maxAnswers   = 2   // that wait to be sent on a proxy's stream; further requests are not answered
	maxQuestion  = 16  // names of one request
	maxQueryName = 512 // bytes of a name
	maxUnread    = 4   // times Config.WriteTimeout in which a client has to read an answer: some are large, and the tools of people may be far away
)

// answer is one response to a question.
type answer struct {
	url     string
	message proto.Message // a DiscoveryResponse or a DeltaDiscoveryResponse; nil once it is encoded
	late    *time.Timer   // the client has not read it in time
	done    func()        // tells the budget of the caller's identity
	ended   atomic.Bool
}

// over is called once nothing of the answer is kept, because it was written or will not be. Further calls do nothing.
func (a *answer) over() {
	if !a.ended.Swap(true) {
		a.late.Stop()
		a.done()
	}
}

// Get and Put implement mem.BufferPool, for the bytes of the answer alone: gRPC gives them back when it has written them.
func (a *answer) Get(n int) *[]byte { return mem.DefaultBufferPool().Get(n) }

// Put implements mem.BufferPool.
func (a *answer) Put(*[]byte) { a.over() }

// encode gives gRPC the bytes of an answer.
func (a *answer) encode() (mem.BufferSlice, error) {
	raw, err := proto.Marshal(a.message)
	if err != nil {
		return nil, err
	}
	a.message = nil                                  // the message is not kept beside its bytes
	if mem.IsBelowBufferPoolingThreshold(cap(raw)) { // gRPC would not give them back
		a.over()
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return mem.BufferSlice{mem.NewBuffer(&raw, a)}, nil
}

// nonces are those of one stream's answers. They have a part that is random, so that a nonce of another stream, of this
// process or another, is none of them; only the goroutine that reads the stream uses them.
type nonces struct {
	random string // empty: none was made yet
	last   uint64
}

func (n *nonces) next() string {
	if n.random == "" {
		n.random = rand.Text()
	}
	n.last++
	return n.random + "-" + strconv.FormatUint(n.last, 10)
}

// made says whether a nonce is of an answer of this stream.
func (n *nonces) made(nonce string) bool {
	digits, ours := strings.CutPrefix(nonce, n.random+"-")
	if !ours || n.random == "" {
		return false
	}
	number, err := strconv.ParseUint(digits, 10, 64)
	return err == nil && number > 0 && number <= n.last
}

// reply answers a request of the i-th type. One with the nonce of an answer of this stream acknowledges that, and one with
// error_detail refuses an answer: neither asks anything. Any other nonce means nothing, for istioctl sends the printed time as
// response_nonce with each request, the first one too (istio pkg/adsc ADSC.Send).
func (st *stream) reply(ctx context.Context, i int, m delta.Message) error {
	if m.Failed || st.answered.made(m.Nonce) {
		return nil
	}
	st.step = inQuestion
	if st.proxy == nil && m.Node != nil {
		st.client.ID, _ = nodeID(m.Node) // for log lines: a tool may send no node id
	}
	a := &st.srv.cfg.Answers[i]
	resources, done, err := st.resources(ctx, a, m)
	if err != nil && st.proxy == nil {
		return err // the stream ends, which is logged
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

// resources asks for them, where the caller may have one more answer made, and kept until done is called.
func (st *stream) resources(ctx context.Context, a *Answer, m delta.Message) (all []*discoveryv3.Resource, done func(), err error) {
	done = func() {}
	var asked []string
	for name := range names(m.Subscribe) {
		if len(asked) == maxQuestion || len(name) > maxQueryName {
			return nil, done, status.Errorf(codes.InvalidArgument, "%s: more than %d names, or one of more than %d bytes",
				a.TypeURL, maxQuestion, maxQueryName)
		}
		asked = append(asked, strings.Clone(name)) // it lives only until the request is freed
	}
	asks, err := st.place.Ask()
	if err != nil {
		return nil, done, st.bounded(BoundQuestions, err)
	}
	made := false
	defer func() {
		if !made { // Resources failed, or panicked
			asks()
		}
	}()
	if all, err = a.Resources(ctx, st.client, asked); err != nil {
		return nil, done, err
	}
	made = true
	return all, asks, nil
}

// made is an answer that was made. A client that takes too long to read it loses its connection: gRPC keeps the bytes until then, also of a stream that has ended on both
// sides.
func (st *stream) made(url string, resources []*discoveryv3.Resource, done func()) *answer {
	one, patience := &answer{url: url, message: st.response(url, resources), done: done}, maxUnread*st.srv.cfg.WriteTimeout
	one.late = time.AfterFunc(time.Hour, func() {
		if st.kill(status.Errorf(codes.DeadlineExceeded, "the client does not read: %s not written in %v", url, patience)) {
			st.srv.cfg.Hooks.Timeout(true)
		} else if st.hangUp != nil {
			_ = st.hangUp() // it may be closed already
		}
		one.over()
	})
	one.late.Reset(patience) // not before it is known to who may stop it
	st.unread = append(slices.DeleteFunc(st.unread, func(a *answer) bool { return a.ended.Load() }), one)
	return one
}

// unreadOver is called at the end of a stream whose client has gone: gRPC keeps nothing of it.
func (st *stream) unreadOver() {
	for _, one := range st.unread {
		one.over()
	}
}

// response is a message of the stream's protocol; tools tell one answer from another by the version, which is a hash.
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

// answer is the event that an answer is to be sent; where too many wait it is not.
func (x *exchange) answer(one *answer) {
	takes := false
	x.locked(func() {
		if takes = !x.closed && len(x.answers) < maxAnswers; takes {
			x.answers = append(x.answers, one)
		}
	})
	if !takes {
		one.over()
	}
}

// nextAnswer takes the oldest. Called with the lock held.
func (x *exchange) nextAnswer() *answer {
	if len(x.answers) == 0 {
		return nil
	}
	one := x.answers[0]
	x.answers = slices.Delete(x.answers, 0, 1)
	return one
}
