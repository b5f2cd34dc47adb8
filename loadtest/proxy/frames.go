package proxy

import (
	"errors"
	"fmt"
	"io"
	"strconv"

	"golang.org/x/net/http2"
)

// control processes a frame other than DATA.
func (c *session) control(h http2.FrameHeader) error {
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(c, payload); err != nil {
		return err
	}
	if h.Type == http2.FrameHeaders || h.Type == http2.FrameContinuation {
		c.header = appendFrame(c.header, h, payload)
		if !h.Flags.Has(http2.FlagHeadersEndHeaders) { // the same bit in both types
			return nil
		}
		defer func() { c.header = nil }()
		return c.decode(c.header)
	}
	return c.decode(appendFrame(nil, h, payload))
}

func appendFrame(b []byte, h http2.FrameHeader, payload []byte) []byte {
	b = append(b, byte(h.Length>>16), byte(h.Length>>8), byte(h.Length), byte(h.Type), byte(h.Flags),
		byte(h.StreamID>>24), byte(h.StreamID>>16), byte(h.StreamID>>8), byte(h.StreamID))
	return append(b, payload...)
}

func (c *session) decode(raw []byte) error {
	in := inputs.Get().(*input)
	in.buf.Reset(raw)
	frame, err := in.framer.ReadFrame()
	if err != nil { // a failed framer cannot be used again
		return c.framing("%v", err)
	}
	defer inputs.Put(in)
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		return c.settings(f)
	case *http2.PingFrame:
		if f.IsAck() {
			c.pong = true
			if c == c.sim.session {
				c.sim.settle()
			}
			return nil
		}
		_ = c.frames().WritePing(true, f.Data)
	case *http2.WindowUpdateFrame:
		if f.StreamID == 0 {
			c.sendConn += int(f.Increment)
		} else {
			c.sendStream += int(f.Increment)
		}
		c.drain()
	case *http2.GoAwayFrame:
		c.sim.fleet.count.goAways.Add(1) // the stream continues until the server ends it, as in an agent
	case *http2.RSTStreamFrame:
		return status{"reset " + f.ErrCode.String(), "RST_STREAM"}
	case *http2.MetaHeadersFrame:
		return c.headers(f)
	}
	return nil
}

func (c *session) settings(f *http2.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	err := f.ForeachSetting(func(s http2.Setting) error {
		switch s.ID {
		case http2.SettingInitialWindowSize:
			c.sendStream += int(s.Val) - c.initialSend
			c.initialSend = int(s.Val)
		case http2.SettingMaxFrameSize:
			c.maxFrame = int(min(s.Val, 64<<10))
		}
		return nil
	})
	_ = c.frames().WriteSettingsAck()
	c.drain()
	return err
}

// headers processes the response's headers or trailers.
func (c *session) headers(f *http2.MetaHeadersFrame) error {
	var st status
	for _, kv := range f.Fields {
		switch kv.Name {
		case ":status":
			if kv.Value != "200" {
				return status{"http " + kv.Value, "not gRPC"}
			}
		case "grpc-status":
			st.code = kv.Value
		case "grpc-message":
			st.message = kv.Value
		case "navarch-store":
			c.sim.fleet.storeID.Store(kv.Value)
		}
	}
	if st.code != "" || f.StreamEnded() {
		st.code = codeName(st.code)
		return st
	}
	return nil
}

// codeName returns the name of a gRPC status code (https://grpc.github.io/grpc/core/md_doc_statuscodes.html).
func codeName(code string) string {
	names := []string{"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
		"PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal",
		"Unavailable", "DataLoss", "Unauthenticated"}
	if i, err := strconv.Atoi(code); err == nil && i >= 0 && i < len(names) {
		return names[i]
	}
	return "none"
}

// framing counts a violation of the framing and returns it as an error.
func (c *session) framing(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	c.sim.violation(FramingError, nil, text)
	return errors.New(text)
}
