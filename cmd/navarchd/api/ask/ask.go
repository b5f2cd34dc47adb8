// Package ask carries questions of /api/v1 from one replica to the others, over mutually authenticated connections. A
// question has the identity of its caller as the asked replica verified it, and what that caller may see.
//
// Owns: one connection for each question and replica, while it is asked.
// Reads: the records of the fleet, certificates.
// Never: accepts a caller's identity from anything but a replica that has proved to be one; waits for a replica longer
// than Patience beyond the question's own time.
//
// # Proof
//
// A process is a replica if its certificate has the key of this process's own certificate, as with an operator's files
// that all replicas share. It is one, too, if the mesh's own CA issued the certificate with both the DNS name of the
// control plane and an identity of the control plane. The CA gives that name to no workload.
package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// Method is the gRPC method of a question. Request and response are a google.protobuf.BytesValue with JSON: a Question,
// and a Reply.
const Method = "/" + service + "/Ask"

const service = "navarch.api.v1.Replicas"

// Patience is the time in which a replica has to answer, in addition to the time that the question itself waits.
const Patience = 2 * time.Second

// Bounds of a question.
const (
	maxQuestion = 16 << 10
	maxBody     = 4 << 20
	maxPacked   = 8 << 20  // of a question with a body
	maxReply    = 64 << 20 // a dump of one proxy has tens of megabytes
	maxReplicas = 256      // asked at once
)

// ErrUnable matches errors about a replica that may run but cannot be asked: its version is older, or one of the two
// cannot prove to be a replica.
var ErrUnable = errors.New("it cannot be asked")

// Question is a question of a caller that another replica has authenticated.
type Question struct {
	Endpoint string     `json:"endpoint"`
	Query    url.Values `json:"query,omitempty"`
	Caller   Caller     `json:"caller"`
	// Of are the names of the replicas to ask; nil: all.
	Of []string `json:"-"`
	// Body has the bytes of a posted request. They are compressed on their way (Packed).
	Body   []byte `json:"-"`
	Packed []byte `json:"body,omitempty"`
}

// Caller is a verified caller and what it may see: everything, or the namespaces of its tenant.
type Caller struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant,omitempty"`
	All    bool   `json:"all,omitempty"`
}

// Reply is the answer of one replica.
type Reply struct {
	Revision int64           `json:"revision"` // of the store, that it has planned
	Part     json.RawMessage `json:"part,omitempty"`
	// Status is an HTTP status if the replica has no part to give; 0: it has.
	Status int    `json:"status,omitempty"`
	Text   string `json:"text,omitempty"`
}

// Heard is a reply, or why a replica gave none.
type Heard struct {
	Replica string
	Reply   Reply
	Err     error
}

// Replicas asks the other replicas.
type Replicas struct {
	Self    string                 // name of this replica
	Members func() []member.Record // the fleet; nil before it is known
	Proof   Proof
}

// Ask asks all other replicas that serve proxies, each once, and returns when all have answered or their time is over.
// wait is the time that the question itself may take.
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
		asking.Go(func() { h.Reply, h.Err = r.askOne(ctx, addresses[i], raw) })
	}
	asking.Wait()
	return heard
}

// askOne asks one replica over a connection of its own. The error names the reason for operators.
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
	answer := &wrapperspb.BytesValue{}
	if err := conn.Invoke(ctx, Method, wrapperspb.Bytes(raw), answer); err != nil {
		return reply, explained(ctx, err)
	}
	if err := json.Unmarshal(answer.GetValue(), &reply); err != nil {
		return reply, fmt.Errorf("its answer cannot be read: %w", err)
	}
	return reply, nil
}

// explained returns a failed call's error for operators.
func explained(ctx context.Context, err error) error {
	said := status.Convert(err)
	switch {
	case said.Code() == codes.DeadlineExceeded || errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", Patience)
	case said.Code() == codes.Unimplemented:
		return fmt.Errorf("%w: its version does not answer /api/v1", ErrUnable)
	case said.Code() == codes.PermissionDenied || strings.Contains(said.Message(), "authentication handshake failed"):
		return fmt.Errorf("%w: %s", ErrUnable, said.Message())
	}
	return errors.New(said.Message())
}

// Server answers the questions of other replicas.
type Server struct {
	Proof Proof
	// Answer answers a question within ctx.
	Answer func(ctx context.Context, q Question) Reply
	// Admitted is called when a connection has proved to be a replica's.
	Admitted func(ctx context.Context) error
}

// Register registers the service.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Ask", Handler: handle}}}, s)
}

func handle(srv any, ctx context.Context, read func(any) error, ic grpc.UnaryServerInterceptor) (any, error) {
	in := &wrapperspb.BytesValue{}
	if err := read(in); err != nil {
		return nil, err
	}
	call := func(ctx context.Context, in any) (any, error) {
		return srv.(*Server).ask(ctx, in.(*wrapperspb.BytesValue).GetValue())
	}
	if ic == nil {
		return call(ctx, in)
	}
	return ic(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: Method}, call)
}

// ask answers a replica. Errors are gRPC statuses: PermissionDenied for other clients.
func (s *Server) ask(ctx context.Context, raw []byte) (*wrapperspb.BytesValue, error) {
	if err := s.Proof.caller(ctx); err != nil {
		return nil, status.Errorf(codes.PermissionDenied, "only replicas of this control plane are answered: %v", err)
	}
	if err := s.Admitted(ctx); err != nil {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
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

// Failed returns the reply of a replica without a part.
func Failed(code int, err error) Reply { return Reply{Status: code, Text: err.Error()} }

// OK reports whether the reply has a part.
func (r Reply) OK() bool { return r.Status == 0 || r.Status == http.StatusOK }
