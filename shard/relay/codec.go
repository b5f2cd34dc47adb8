package relay

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// frame is one encoded message. Its buffers are reference counted. Sending a frame releases them.
type frame struct{ data mem.BufferSlice }

// rawCodec passes encoded messages on, without decoding or copying them. It has the name of gRPC's protobuf codec,
// because the peers expect that name.
type rawCodec struct{}

// Name implements encoding.CodecV2. It returns "proto".
func (rawCodec) Name() string { return "proto" }

// Marshal implements encoding.CodecV2. It returns the buffers of v and empties v, since gRPC then owns the buffers. It
// returns an error unless v is a *frame.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("relay: cannot send a %T", v)
	}
	data := f.data
	f.data = nil
	return data, nil
}

// Unmarshal implements encoding.CodecV2. It stores data in v without a copy. It adds a reference to data, which the
// owner of v must free. It returns an error unless v is a *frame.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("relay: cannot receive a %T", v)
	}
	data.Ref()
	f.data = data
	return nil
}
