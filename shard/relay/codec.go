package relay

import (
	"fmt"

	"google.golang.org/grpc/mem"
)

// frame is one message as received. Its buffers are reference counted: sending a frame releases them.
type frame struct{ data mem.BufferSlice }

// rawCodec passes the received buffers on without a copy. Its name is proto, which peers expect.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, fmt.Errorf("relay: cannot send a %T", v)
	}
	data := f.data
	f.data = nil
	return data, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return fmt.Errorf("relay: cannot receive a %T", v)
	}
	data.Ref()
	f.data = data
	return nil
}
