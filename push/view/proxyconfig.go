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

// proxyConfigKey is the key of a node's metadata that has its ProxyConfig: as injection wrote it, with the annotation proxy.istio.io/config of the Pod.
const proxyConfigKey = "PROXY_CONFIG"

// readOfProxyConfig lists the fields of a ProxyConfig that the control plane reads, as JSON and as protobuf have them.
var readOfProxyConfig = []string{"proxyHeaders", "proxy_headers", "connectionSettings", "connection_settings", "tracing"}

// longestProxyConfig bounds, in bytes as they are encoded, what is read of a node's ProxyConfig.
const longestProxyConfig = 16 << 10

// stated are the ProxyConfigs that many nodes have alike: proxies of one workload say the same.
var stated = configurations{most: 64}

// configurations gives one value for equal bytes. Safe for concurrent use.
type configurations struct {
	most int // of them, of longestProxyConfig bytes at most each

	mu    sync.Mutex // a leaf: guards known
	known map[string]*proxyconfig.Settings
}

// of reads encoded fields of a Struct. What Envoy would refuse is left out: store/normal says so of the Pod's annotation and of the mesh.
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

// proxyConfig reads the encoded Structs that the ProxyConfig came in.
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
		return fmt.Errorf("%s: %d bytes of headers, connections and spans; %d at most", what, len(read), longestProxyConfig)
	}
	var err error
	if n.ProxyConfig, err = stated.of(read); err != nil {
		return fmt.Errorf("%s: want a ProxyConfig: %.200s", what, err.Error()) // it may have the client's text whole
	}
	return nil
}

// settingsOf are what counts for a node, and the mesh's: its own ProxyConfig, where it sends one, else the mesh's defaultConfig; connections that its own
// says nothing of are the mesh's, too (istio: pilot/pkg/model, ProxyConfigOrDefault; pilot/pkg/networking/core, resolveConnectionSettings).
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
		}
	}
	return own, x.defaults
}

// configure adds to a view what a ProxyConfig makes of it.
func (v *View) configure(own, mesh proxyconfig.Settings, n Node) {
	v.Scope.HeaderCase = own.HeaderCase && n.Caps.Has(xds.CapHeaderCase)
	if n.Kind != Sidecar {
		return // others have no listeners, and no routes, that this version plans with their own settings
	}
	v.Scope.Routes, v.Workload.HeaderCase = own.Routes, v.Scope.HeaderCase
	v.Inputs.Listeners = proxyconfig.OwnOf(own.Listeners, mesh.Listeners)
	v.Workload.Listeners = v.Inputs.Listeners
}
