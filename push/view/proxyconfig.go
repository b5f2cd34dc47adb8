package view

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/mirror"
	"navarch.io/navarch/store/proxyconfig"
)

// proxyConfigKey is the metadata key of a node's ProxyConfig. Injection merges the Pod's annotation
// proxy.istio.io/config into the ProxyConfig.
const proxyConfigKey = "PROXY_CONFIG"

// readOfProxyConfig lists the fields of a ProxyConfig that the control plane reads, by their JSON and protobuf names.
var readOfProxyConfig = []string{"proxyHeaders", "proxy_headers", "connectionSettings", "connection_settings", "tracing",
	"gatewayTopology", "gateway_topology"}

// longestProxyConfig is the maximum total size, in encoded bytes, of the fields in readOfProxyConfig.
const longestProxyConfig = 16 << 10

// stated caches the decoded ProxyConfigs of nodes, because proxies of one workload have equal ProxyConfigs.
var stated = configurations{most: 64}

// configurations interns decoded ProxyConfigs: it returns the same value for equal bytes. When it is full, it drops all
// entries. It is safe for concurrent use.
type configurations struct {
	most int // maximum number of entries, each of longestProxyConfig bytes at most

	mu    sync.Mutex // guards known; no other lock is acquired while mu is held
	known map[string]*proxyconfig.Settings
}

// of returns the settings in a ProxyConfig, which is encoded as fields of a Struct. Settings that Envoy would reject
// are left out. The error is a decoding error.
func (c *configurations) of(fields []byte) (*proxyconfig.Settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, is := c.known[string(fields)]; is {
		return s, nil
	}
	whole, config := &structpb.Struct{}, &meshv1.ProxyConfig{}
	if err := proto.Unmarshal(fields, whole); err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(whole)
	if err != nil {
		return nil, err
	}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, config); err != nil {
		return nil, err
	}
	s, _ := proxyconfig.Of(config)
	if len(c.known) >= c.most {
		clear(c.known)
	}
	if c.known == nil {
		c.known = map[string]*proxyconfig.Settings{}
	}
	c.known[string(fields)] = &s
	return &s, nil
}

// proxyConfig sets n.ProxyConfig from the encoded Structs in parts, which are merged. The error names the field.
func (n *Node) proxyConfig(parts [][]byte) error {
	const what = "node.metadata." + proxyConfigKey
	var read []byte
	for _, part := range parts {
		for len(part) > 0 {
			number, _, entry, rest, err := field(part, what)
			if err != nil {
				return err
			}
			whole := part[:len(part)-len(rest)]
			if part = rest; number != structFields || entry == nil {
				continue
			}
			if err := entries(whole, what, 0, func(key []byte, _ value) {
				if slices.Contains(readOfProxyConfig, borrow(key)) {
					read = append(read, whole...)
				}
			}); err != nil {
				return err
			}
		}
	}
	if len(read) > longestProxyConfig {
		return fmt.Errorf("%s: %d bytes of headers, connections, topology and spans; %d at most", what, len(read), longestProxyConfig)
	}
	var err error
	if n.ProxyConfig, err = stated.of(read); err != nil {
		// The text is cut, because protojson may quote the client's whole text.
		return fmt.Errorf("%s: want a ProxyConfig: %.200s", what, err.Error())
	}
	return nil
}

// settingsOf returns two results. The result own contains the settings that apply to a node. The result mesh contains
// the settings of the mesh's defaultConfig. A node's own ProxyConfig replaces defaultConfig as a whole, except for
// connection settings. If the ProxyConfig lacks connection settings, the node gets those of the mesh (istio:
// pilot/pkg/model, ProxyConfigOrDefault; pilot/pkg/networking/core, resolveConnectionSettings).
func (x *Index) settingsOf(s *mirror.Snapshot, n Node) (own, mesh proxyconfig.Settings) {
	if of := s.Mesh(); x.mesh != of {
		x.mesh = of
		x.defaults, _ = proxyconfig.Of(of.Spec.GetDefaultConfig())
	}
	own = x.defaults
	if n.ProxyConfig != nil {
		own = *n.ProxyConfig
		if own.Listeners.Connections == "" {
			own.Listeners.Connections = x.defaults.Listeners.Connections
			own.Listeners.Gateway.Edge = x.defaults.Listeners.Gateway.Edge
		}
	}
	return own, x.defaults
}

// configure sets the fields of a View that ProxyConfigs decide.
func (v *View) configure(own, mesh proxyconfig.Settings, n Node) {
	v.Scope.HeaderCase = own.HeaderCase && n.Caps.Has(xds.CapHeaderCase)
	if n.Kind != Sidecar {
		return // the method router sets the fields of gateways; applications without a proxy leave them empty
	}
	v.Scope.Routes, v.Workload.HeaderCase = own.Routes, v.Scope.HeaderCase
	own.Listeners.Gateway = mesh.Listeners.Gateway // sidecars do not read these settings, so inputs must not differ by them
	v.Inputs.Listeners = proxyconfig.OwnOf(own.Listeners, mesh.Listeners)
	v.Workload.Listeners = v.Inputs.Listeners
}
