package show

import (
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	httpwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/wasm/v3"
	networkwasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/wasm/v3"
	wasmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/wasm/v3"
	"google.golang.org/protobuf/proto"
)

// extensionRows returns the row of an extension (the configuration of one filter): its name, its type, and the source
// of its code.
func extensionRows(_ Filter, m proto.Message) [][]string {
	config, _ := m.(*corev3.TypedExtensionConfig)
	kind := string(config.GetTypedConfig().MessageName())
	kind = kind[strings.LastIndexByte(kind, '.')+1:]
	content := "-"
	switch inner, _ := config.GetTypedConfig().UnmarshalNew(); of := inner.(type) {
	case *httpwasmv3.Wasm:
		content = codeOf(of.GetConfig())
	case *networkwasmv3.Wasm:
		content = codeOf(of.GetConfig())
	case *luav3.Lua:
		content = "Lua"
	}
	return [][]string{{config.GetName(), orDash(kind), content}}
}

// codeOf returns the URI or the file of a Wasm module's code; "-" if neither is set.
func codeOf(p *wasmv3.PluginConfig) string {
	code := p.GetVmConfig().GetCode()
	if uri := code.GetRemote().GetHttpUri().GetUri(); uri != "" {
		return uri
	}
	if file := code.GetLocal().GetFilename(); file != "" {
		return file
	}
	return "-"
}
