package serve

import (
	"errors"
	"fmt"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"navarch.io/navarch/push/xds"
)

// Field numbers of core.v3.Node and core.v3.Extension.
const nodeExtensions, extensionName = 9, 1

// parseNode decodes a node without its extensions (a stock Envoy sends 516 of them, 61 KB, which would keep 142 KiB of
// objects); what they amount to is the capabilities.
func parseNode(raw []byte) (*corev3.Node, xds.Caps, error) {
	if raw == nil {
		return nil, 0, errors.New("the first request of a stream has no node")
	}
	var caps xds.Caps
	listed := false
	rest := make([]byte, 0, min(len(raw), 4096))
	for b := raw; len(b) > 0; {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, 0, fmt.Errorf("node: not protobuf: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(num, kind, b[n:])
		if size < 0 {
			return nil, 0, fmt.Errorf("node: field %d: not protobuf: %w", num, protowire.ParseError(size))
		}
		if num == nodeExtensions && kind == protowire.BytesType {
			listed = true
			extension, _ := protowire.ConsumeBytes(b[n:])
			caps |= capOf(extension)
		} else {
			rest = append(rest, b[:n+size]...)
		}
		b = b[n+size:]
	}
	node := &corev3.Node{}
	if err := proto.Unmarshal(rest, node); err != nil {
		return nil, 0, fmt.Errorf("node: %w", err)
	}
	if node.GetId() == "" {
		return nil, 0, errors.New("node.id: is empty")
	}
	if !listed {
		caps = xds.StockCaps
	}
	return node, caps, nil
}

// capOf is the capability of one encoded core.v3.Extension.
func capOf(extension []byte) xds.Caps {
	for len(extension) > 0 {
		num, kind, n := protowire.ConsumeTag(extension)
		if n < 0 {
			return 0
		}
		size := protowire.ConsumeFieldValue(num, kind, extension[n:])
		if size < 0 {
			return 0
		}
		if num == extensionName && kind == protowire.BytesType {
			name, _ := protowire.ConsumeBytes(extension[n:])
			return xds.CapOf(string(name))
		}
		extension = extension[n+size:]
	}
	return 0
}
