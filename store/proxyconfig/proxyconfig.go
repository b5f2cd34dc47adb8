// Package proxyconfig reads the part of a ProxyConfig that the control plane itself acts on: of the mesh's (defaultConfig), and of those that
// proxies send (PROXY_CONFIG of their node's metadata). The rest is for agents and for injection.
//
// Owns: nothing.  Reads: nothing of ours.  Never: Envoy's protobuf.
//
// A PROXY_CONFIG of a node replaces the mesh's defaultConfig, as with istiod. Injection has merged both there, so an
// edit of defaultConfig reaches only those running proxies that send none.
//
// Headers and connections are read by listeners alone (view.Inputs.Listeners, view.Workload.Listeners), and spans
// where some are sent (view.Self.Tracing). Proxies with equal settings share these entries, and a proxy whose settings
// equal the mesh's has none of its own. Settings that routes and clusters read are part of the scope, and are three
// booleans (view.Scope.Routes, HeaderCase): no text or number that a client invents makes a scope. So
// clusterPerConnectionBufferLimitBytes is reported, not applied. Settings that Envoy would refuse are left out. A node
// with more than 16 KB of these settings is refused.
package proxyconfig

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"
)

// Settings are what is acted on, by what reads it. Comparable: equal ProxyConfigs have equal Settings. The zero Settings are Istio's defaults.
type Settings struct {
	Routes Routes
	// HeaderCase says that names of HTTP/1 headers keep their case (proxyHeaders.preserveHttp1HeaderCase); clusters and listeners read it.
	HeaderCase bool
	Listeners  Listeners
	// Tracing is what the proxy says of its spans; empty: its bootstrap has no tracer.
	Tracing Part
}

// Routes is what virtual hosts and their routes read. Comparable.
type Routes struct {
	NoAttempts    bool // requests do not say which attempt they are (proxyHeaders.attemptCount.disabled)
	ForwardedHost bool // requests say which host they were for before it was rewritten (proxyHeaders.xForwardedHost.enabled)
}

// String names the fields that say so; empty: none.
func (r Routes) String() string {
	var fields []string
	if r.NoAttempts {
		fields = append(fields, "proxyHeaders.attemptCount")
	}
	if r.ForwardedHost {
		fields = append(fields, "proxyHeaders.xForwardedHost")
	}
	return strings.Join(fields, ", ")
}

// Listeners is what listeners read. Comparable.
type Listeners struct {
	Headers     Part // proxyHeaders, without what Routes and HeaderCase say
	Connections Part // connectionSettings; empty: they are not stated
}

// String names the fields that are set; empty: none.
func (l Listeners) String() string {
	var fields []string
	name := func(within string, m protoreflect.Message) {
		for i := range m.Descriptor().Fields().Len() {
			if fd := m.Descriptor().Fields().Get(i); m.Has(fd) {
				fields = append(fields, within+"."+fd.JSONName())
			}
		}
	}
	name("proxyHeaders", l.Headers.Config().GetProxyHeaders().ProtoReflect())
	name("connectionSettings", l.Connections.Config().GetConnectionSettings().ProtoReflect())
	return strings.Join(fields, ", ")
}

// Part is a part of a ProxyConfig, in the encoding that equal parts have alike: deterministic protobuf. Empty: nothing of it is stated.
type Part string

// partOf is the Part of a ProxyConfig that has nothing else.
func partOf(c *meshv1.ProxyConfig) Part {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil { // of text that is not UTF-8, which no decoder lets in
		return ""
	}
	return Part(raw)
}

// Config is a ProxyConfig with this part alone; the caller's own.
func (p Part) Config() *meshv1.ProxyConfig {
	c := &meshv1.ProxyConfig{}
	if err := proto.Unmarshal([]byte(p), c); err != nil {
		panic(err) // partOf made it
	}
	return c
}

// Own is what a proxy says in place of the mesh's defaultConfig. Comparable; the zero Own says nothing: the mesh's counts.
type Own[T comparable] struct {
	Stated bool
	Is     T
}

// OwnOf is what a proxy says, where that is not what the mesh says.
func OwnOf[T comparable](proxy, mesh T) Own[T] {
	if proxy == mesh {
		return Own[T]{}
	}
	return Own[T]{Stated: true, Is: proxy}
}

// Or is what the proxy says, else what the mesh says.
func (o Own[T]) Or(mesh T) T {
	if o.Stated {
		return o.Is
	}
	return mesh
}

// Of reads a ProxyConfig; nil: nothing is stated. What Envoy would refuse is left out of the Settings, and is a fault.
func Of(c *meshv1.ProxyConfig) (Settings, []Fault) {
	r := &reading{}
	var out Settings
	if c.GetProxyHeaders() != nil {
		h := proto.CloneOf(c.GetProxyHeaders())
		out.Routes = Routes{NoAttempts: h.GetAttemptCount().GetDisabled().GetValue(),
			ForwardedHost: h.GetXForwardedHost().GetEnabled().GetValue()}
		out.HeaderCase = h.GetPreserveHttp1HeaderCase().GetValue()
		h.AttemptCount, h.XForwardedHost, h.PreserveHttp1HeaderCase = nil, nil, nil
		r.headers(h)
		if proto.Size(h) > 0 {
			out.Listeners.Headers = partOf(&meshv1.ProxyConfig{ProxyHeaders: h})
		}
	}
	if c.GetConnectionSettings() != nil {
		s := proto.CloneOf(c.GetConnectionSettings())
		// The profile EDGE is for gateways alone, and what is left out of the others here is reported (store/normal/fields).
		s.Profile, s.ClusterPerConnectionBufferLimitBytes, s.ListenerConnectionLimit, s.GlobalDownstreamConnectionLimit = 0, nil, nil, nil
		r.connections(s)
		out.Listeners.Connections = partOf(&meshv1.ProxyConfig{ConnectionSettings: s})
	}
	if c.GetTracing() != nil {
		t := proto.CloneOf(c.GetTracing())
		t.Tracer, t.TlsSettings = nil, nil // the bootstrap's
		r.tracing(t)
		out.Tracing = partOf(&meshv1.ProxyConfig{Tracing: t})
	}
	return out, r.faults
}
