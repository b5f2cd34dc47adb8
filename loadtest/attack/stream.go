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

// request is a request of delta ADS.
type request = discoveryv3.DeltaDiscoveryRequest

// answer contains the parts of a response that the attackers use.
type answer struct{ typeURL, nonce string }

const typeField, nonceField = 4, 5 // field numbers of DeltaDiscoveryResponse

// codec encodes requests and decodes only type and nonce of responses, to save the attackers' processor time.
type codec struct{}

func (codec) Name() string { return "proto" }

// Marshal encodes a request. The error names another type.
func (codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return proto.Marshal(m)
}

// Unmarshal decodes type and nonce of a response. The error reports that the message is not valid.
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

// line is a stream, as seen by the function that sends on it.
type line struct {
	ctx   context.Context // ends with the stream
	send  func(*request) error
	heard <-chan answer // the newest responses; older ones may be dropped
}

// stream opens a stream, calls speak while it reads, and returns the result. With first it ends after the first
// response.
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
		_ = speak(line{inner, send, heard}) // the reader gets the stream's error
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
		default: // speak does not read responses
		}
	}
}

// came returns the result of a call from its error.
func came(ctx context.Context, err error) string {
	if code := status.Code(err); ctx.Err() == nil && code != codes.DeadlineExceeded { // otherwise the attacker ended the call
		return code.String()
	}
	return kept
}

// node returns a node of the stolen identity with an invented name.
func (w *attacker) node(name string) *node {
	namespace, account := w.identity()
	return &node{namespace: namespace, account: account, name: name, labels: map[string]string{"app": name}}
}

// invented returns a name that no other try uses.
func (w *attacker) invented(i int) string {
	return w.attack.Name + "-" + strconv.Itoa(w.index) + "-" + strconv.Itoa(w.tries) + "-" + strconv.Itoa(i)
}
