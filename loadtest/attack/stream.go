package attack

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/store/protowalk"
)

const deltaMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"

// request is one of delta ADS.
type request = discoveryv3.DeltaDiscoveryRequest

// answer is what is looked at of one: its type and nonce, and nothing of its contents.
type answer struct{ typeURL, nonce string }

const typeField, nonceField = 4, 5 // of DeltaDiscoveryResponse

// codec encodes messages, and decodes answers: an attacker's processor time is for attacking.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return proto.Marshal(m)
}

func (codec) Unmarshal(b []byte, v any) error {
	if m, ok := v.(proto.Message); ok {
		return proto.Unmarshal(b, m)
	}
	a, ok := v.(*answer)
	if !ok {
		return fmt.Errorf("%T is no answer", v)
	}
	return protowalk.Each(b, func(f protowalk.Field) error {
		switch {
		case f.Type != protowire.BytesType:
		case f.Number == typeField:
			a.typeURL = string(f.Bytes)
		case f.Number == nonceField:
			a.nonce = string(f.Bytes)
		}
		return nil
	})
}

// line is a stream, for who speaks on it.
type line struct {
	ctx   context.Context // ends with the stream
	send  func(*request) error
	heard <-chan answer // some of the newest answers
}

// stream opens one, speaks while it reads, and says how it ended. With first it ends at the first answer.
func (w *attacker) stream(ctx context.Context, conn *grpc.ClientConn, first bool, speak func(line) error) string {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := conn.NewStream(inner, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, deltaMethod)
	if err != nil {
		return came(ctx, err)
	}
	heard := make(chan answer, 8)
	var speaking sync.WaitGroup
	speaking.Go(func() {
		send := func(r *request) error {
			err := s.SendMsg(r)
			if err == nil {
				w.count(func(c *Count) { c.Requests++ })
			}
			return err
		}
		_ = speak(line{inner, send, heard}) // why it fails, reading tells
	})
	defer speaking.Wait()
	defer cancel()
	for {
		var a answer
		if err := s.RecvMsg(&a); err != nil {
			return came(ctx, err)
		}
		w.count(func(c *Count) { c.Answers++ })
		if first {
			return answered
		}
		select {
		case heard <- a:
		default: // nobody listens
		}
	}
}

// came is how a call ended.
func came(ctx context.Context, err error) string {
	if code := status.Code(err); ctx.Err() == nil && code != codes.DeadlineExceeded { // which is the attacker's own
		return code.String()
	}
	return kept
}

// node is one of the attacker's identity, under an invented name.
func (w *attacker) node(name string) *node {
	namespace, account := w.identity()
	return &node{namespace: namespace, account: account, name: name, labels: map[string]string{"app": name}}
}

// invented is a name that nobody else has.
func (w *attacker) invented(i int) string {
	return w.attack.Name + "-" + strconv.Itoa(w.index) + "-" + strconv.Itoa(w.tries) + "-" + strconv.Itoa(i)
}
