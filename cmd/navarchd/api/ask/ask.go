// Package ask sends requests for /api/v1 from the replica that received them to the other replicas, over mutually
// authenticated connections. Such a forwarded request is a question. A question names the caller, whom the first
// replica has authenticated, and the data that this caller may see.
//
// Owns: one connection for each question and replica, until the replica has answered.
// Reads: the records of the fleet's replicas, certificates.
// Never: accepts a caller's identity from a peer that has not proved that it is a replica; waits for a replica longer
// than the question itself may wait plus Patience.
//
// # Proof
//
// A peer proves by its certificate that it is a replica, in one of two ways. First: the certificate has the same key as
// this process's own certificate, because all replicas share an operator's files. Second: the mesh's own CA issued the
// certificate, with the DNS name and an identity of the control plane. The CA never issues that name to workloads.
package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/shard/member"
)

// Method is the full gRPC name of the method for a question. The request is a stream of google.protobuf.BytesValue,
// whose concatenated values are the JSON of a Question. Each value has at most maxPiece bytes. The response is one
// BytesValue with the JSON of a Reply. The server verifies that its peer is a replica before it decodes the first
// message.
const Method = "/" + service + "/Ask"

const service = "navarch.api.v1.Replicas"

// Patience is the time that a replica has for its answer, in addition to the time for which the question itself may
// wait.
const Patience = 2 * time.Second

// Bounds of a question.
const (
	maxQuestion = 16 << 10 // bytes of a question without a body
	maxBody     = 4 << 20  // bytes of an uncompressed body
	maxPacked   = 8 << 20  // bytes of a question with a body
	maxPiece    = 16 << 10 // bytes of one message; a client without proof may send 32 KiB
	maxReply    = 64 << 20 // bytes of a reply; a dump of one proxy has tens of megabytes
	maxReplicas = 256      // replicas that receive one question
)

// ErrUnable is matched by the error of a replica that may run but cannot be asked. Either its version is too old for
// /api/v1, or one of the two replicas cannot prove that it is a replica.
var ErrUnable = errors.New("it cannot be asked")

// Question is a request for /api/v1 that a replica passes on, with its authenticated caller.
type Question struct {
	Endpoint string     `json:"endpoint"`        // name below /api/v1/
	Query    url.Values `json:"query,omitempty"` // parameters of the request
	Caller   Caller     `json:"caller"`
	// Of lists the names of the replicas to ask. nil means all replicas, and an empty slice means no replica. The list
	// is not sent.
	Of []string `json:"-"`
	// Body is the body of a POST request, at most 4 MiB; nil for GET. It is sent compressed, in the field Packed, which
	// only this package sets.
	Body   []byte `json:"-"`
	Packed []byte `json:"body,omitempty"`
}

// Caller is an authenticated caller with the data that it may see: everything (All), or the namespaces of its Tenant.
// Exactly one of All and Tenant is set.
type Caller struct {
	Name   string `json:"name"` // a SPIFFE ID, "this machine", or the client's IP address
	Tenant string `json:"tenant,omitempty"`
	All    bool   `json:"all,omitempty"`
}

// Reply is the answer of one replica.
type Reply struct {
	// Revision is the revision of the store up to which the replica's proxies are notified. It is 0 if the replica
	// serves no proxies, has no plan yet, or has no part.
	Revision int64           `json:"revision"`
	Part     json.RawMessage `json:"part,omitempty"` // the replica's part of the answer
	// Status is the HTTP status of a failure, and Text is the reason. Status 0 or 200 means that the replica has a
	// part.
	Status int    `json:"status,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Heard is the result of asking one replica: Reply, or the error Err. If Err is not nil, Reply must be ignored.
type Heard struct {
	Replica string // name of the replica
	Reply   Reply
	Err     error
}

// Replicas sends questions to the other replicas. All fields are required. Any goroutine may call Ask.
type Replicas struct {
	Self    string                 // name of this replica
	Members func() []member.Record // returns the records of all replicas; nil before they are known
	Proof   Proof
}

// Ask sends a question once to each other replica that Question.Of selects. It leaves out warming replicas, and all
// replicas after the first 256. wait is the time for which the question itself may wait. Ask returns when all replicas
// have answered, at the latest after wait plus Patience, or when ctx ends. The result has one element for each asked
// replica, in the order of Members, with a Reply or an Err. The result is nil if no replica is asked. If the question
// is too large, it is not sent, and each element has the error.
func (r *Replicas) Ask(ctx context.Context, q Question, wait time.Duration) []Heard {
	raw, err := q.encode()
	var heard []Heard
	var addresses []string
	for _, m := range r.Members() {
		asked := q.Of == nil || slices.Contains(q.Of, m.Name)
		if asked && m.Name != r.Self && m.State != member.Warming && len(heard) < maxReplicas {
			heard, addresses = append(heard, Heard{Replica: m.Name, Err: err}), append(addresses, m.Address)
		}
	}
	if err != nil {
		return heard
	}
	ctx, cancel := context.WithTimeout(ctx, wait+Patience)
	defer cancel()
	var asking sync.WaitGroup
	for i := range heard {
		h := &heard[i]
		asking.Go(func() {
			h.Reply, h.Err = r.askOne(ctx, addresses[i], raw)
			if errors.Is(h.Err, errLate) {
				h.Err = fmt.Errorf("%w within %v", h.Err, wait+Patience)
			}
		})
	}
	asking.Wait()
	return heard
}

// askOne sends an encoded question to one replica, over a new connection. The text of the error is meant for operators.
func (r *Replicas) askOne(ctx context.Context, address string, raw []byte) (reply Reply, err error) {
	if address == "" {
		return reply, errors.New("its record has no address (--advertise-address, or POD_IP)")
	}
	conf, err := r.Proof.client()
	if err != nil {
		return reply, fmt.Errorf("%w: %w", ErrUnable, err)
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(conf)),
		grpc.WithDisableServiceConfig(), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReply)))
	if err != nil {
		return reply, err
	}
	defer conn.Close()
	answer, err := exchange(ctx, conn, raw)
	if err != nil {
		return reply, explained(ctx, err)
	}
	if err := json.Unmarshal(answer.GetValue(), &reply); err != nil {
		return reply, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return reply, nil
}

// exchange sends an encoded question in pieces, and returns the answer. Errors are those of the call.
func exchange(ctx context.Context, conn *grpc.ClientConn, raw []byte) (*wrapperspb.BytesValue, error) {
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, Method)
	if err != nil {
		return nil, err
	}
	for piece := range slices.Chunk(raw, maxPiece) {
		if err := call.SendMsg(wrapperspb.Bytes(piece)); err != nil { // io.EOF: RecvMsg has the reason
			break
		}
	}
	if err := call.CloseSend(); err != nil {
		return nil, err
	}
	answer := &wrapperspb.BytesValue{}
	return answer, call.RecvMsg(answer)
}

// errLate is the error of a replica that has not answered in time. Ask adds the time.
var errLate = errors.New("no answer")

// explained converts the error of a failed call into one for operators. The result may match ErrUnable or errLate.
func explained(ctx context.Context, err error) error {
	said := status.Convert(err)
	switch {
	case said.Code() == codes.DeadlineExceeded || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errLate
	case said.Code() == codes.Unimplemented:
		return fmt.Errorf("%w: its version does not answer /api/v1", ErrUnable)
	case said.Code() == codes.PermissionDenied || strings.Contains(said.Message(), "authentication handshake failed"):
		return fmt.Errorf("%w: %s", ErrUnable, said.Message())
	}
	return errors.New(said.Message())
}

// Server answers the questions of other replicas. All fields are required, and must be safe for concurrent use.
type Server struct {
	Proof Proof
	// Answer answers a question before ctx ends.
	Answer func(ctx context.Context, q Question) Reply
	// Admitted is called for each question, after its peer has proved that it is a replica. An error refuses the
	// question (ResourceExhausted).
	Admitted func(ctx context.Context) error
}

// Register adds the service to a gRPC server that requests and verifies client certificates.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil),
		Streams: []grpc.StreamDesc{{StreamName: "Ask", Handler: handle, ClientStreams: true}}}, s)
}

// handle is the gRPC handler of Method.
func handle(srv any, call grpc.ServerStream) error {
	answer, err := srv.(*Server).ask(call)
	if err != nil {
		return err
	}
	return call.SendMsg(answer)
}

// ask answers a replica. Errors are gRPC statuses. Other clients get PermissionDenied, and an error of Admitted becomes
// ResourceExhausted. An invalid question gets InvalidArgument, and a reply that does not encode gets Internal. Errors
// of the call are returned unchanged.
func (s *Server) ask(call grpc.ServerStream) (*wrapperspb.BytesValue, error) {
	ctx := call.Context()
	if err := s.Proof.caller(ctx); err != nil {
		return nil, status.Errorf(codes.PermissionDenied, "only replicas of this control plane are answered: %v", err)
	}
	if err := s.Admitted(ctx); err != nil {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	raw, err := received(call)
	if err != nil {
		return nil, err
	}
	q, err := decode(raw)
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "a question of %d bytes cannot be read: %v", len(raw), err)
	}
	if q.Caller.All == (q.Caller.Tenant != "") {
		return nil, status.Error(codes.InvalidArgument, "caller: want either all or a tenant")
	}
	out, err := json.Marshal(s.Answer(ctx, q))
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return wrapperspb.Bytes(out), nil
}

// received joins the pieces of a question. Errors: the question is too large, or the error of the call.
func received(call grpc.ServerStream) (raw []byte, err error) {
	for {
		piece := &wrapperspb.BytesValue{}
		switch err := call.RecvMsg(piece); {
		case errors.Is(err, io.EOF):
			return raw, nil
		case err != nil:
			return nil, err
		case len(raw)+len(piece.GetValue()) > maxPacked:
			return nil, status.Errorf(codes.InvalidArgument, "a question has at most %d bytes", maxPacked)
		}
		raw = append(raw, piece.GetValue()...)
	}
}

// Failed returns the reply of a replica without a part. code is an HTTP status other than 0 and 200. The text is that
// of err, which must not be nil.
func Failed(code int, err error) Reply { return Reply{Status: code, Text: err.Error()} }

// OK reports whether the reply has a part.
func (r Reply) OK() bool { return r.Status == 0 || r.Status == http.StatusOK }
