// Package proxyconfig reads the fields of a ProxyConfig that the control plane itself applies. All other fields are for
// agents and for injection. There is a ProxyConfig of the mesh (defaultConfig), and a proxy may send its own
// (PROXY_CONFIG in the metadata of its node).
//
// Owns: nothing. Reads: no other package of Navarch. Never: uses Envoy's protobuf types.
//
// A PROXY_CONFIG of a node replaces the mesh's defaultConfig, as with istiod. Injection merges the current
// defaultConfig into the PROXY_CONFIG. A later edit of defaultConfig therefore reaches only running proxies that send
// no PROXY_CONFIG.
//
// Most settings affect only listeners. Proxies with equal settings share these listeners. Settings that affect routes
// and clusters divide the proxies into groups with the same outbound configuration. There are only three such settings,
// all booleans (Routes and HeaderCase), so that no text or number of a client creates a group. For this reason
// clusterPerConnectionBufferLimitBytes is reported and not applied. Settings that Envoy would refuse are left out.
package proxyconfig

import (
	"encoding/base64"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"
)

// Settings are the settings that the control plane applies, grouped by the resources that they affect. Equal
// ProxyConfigs have equal (==) Settings. The zero Settings are Istio's defaults.
type Settings struct {
	Routes Routes // affect virtual hosts and their routes
	// HeaderCase preserves the case of HTTP/1 header names (proxyHeaders.preserveHttp1HeaderCase). It affects clusters
	// and listeners.
	HeaderCase bool
	Listeners  Listeners // affect only listeners
	// Tracing is the field tracing, without tracer and tlsSettings. It is empty if the ProxyConfig has no tracing.
	Tracing Part
}

// Routes are the settings that affect virtual hosts and their routes. Two values can be compared with ==.
type Routes struct {
	NoAttempts    bool // requests are sent without the number of their attempt (proxyHeaders.attemptCount.disabled)
	ForwardedHost bool // requests are sent with the host before a rewrite (proxyHeaders.xForwardedHost.enabled)
}

// String returns the names of the fields that are set, separated by commas. If no field is set, the result is empty.
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

// Listeners are the settings that affect listeners. Two values can be compared with ==.
type Listeners struct {
	Headers     Part    // proxyHeaders, without the fields in Routes and HeaderCase
	Connections Part    // connectionSettings, without the profile and unsupported fields
	Gateway     Gateway // affect only listeners of gateways
}

// Gateway are the settings that affect only listeners of gateways. Two values can be compared with ==. The zero Gateway
// has Istio's defaults.
type Gateway struct {
	Edge           bool   // connectionSettings.profile is EDGE: limits for clients outside of the mesh
	TrustedProxies uint32 // gatewayTopology.numTrustedProxies: number of trusted proxies in front of the gateway
	// ClientCertificates is gatewayTopology.forwardClientCertDetails; 0: not stated.
	ClientCertificates meshv1.ForwardClientCertDetails
	ProxyProtocol      bool // gatewayTopology.proxyProtocol: each connection begins with a PROXY header
}

// edge are the connection settings that the profile EDGE states
// (https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/#ProxyConfig).
var edge = &meshv1.ProxyConfig_ConnectionSettings{
	ListenerPerConnectionBufferLimitBytes: wrapperspb.Int32(32 << 10),
	HttpIdleTimeout:                       durationpb.New(time.Hour),
	HttpStreamIdleTimeout:                 durationpb.New(5 * time.Minute),
	HttpRequestTimeout:                    durationpb.New(5 * time.Minute),
	HttpRequestHeadersTimeout:             durationpb.New(time.Minute),
	HttpMaxConcurrentStreams:              wrapperspb.Int32(100),
	Http2InitialStreamWindowSize:          wrapperspb.Int32(64 << 10),
	Http2InitialConnectionWindowSize:      wrapperspb.Int32(1 << 20),
	HttpHeadersWithUnderscoresAction:      meshv1.ProxyConfig_ConnectionSettings_HEADERS_WITH_UNDERSCORES_REJECT_REQUEST,
	HttpMergeSlashes:                      wrapperspb.Bool(true),
	HttpPathWithEscapedSlashesAction:      meshv1.ProxyConfig_ConnectionSettings_UNESCAPE_AND_REDIRECT,
}

// OfGateway returns the settings for the listeners of a gateway. With the profile EDGE, connection settings that l does
// not state get the values of the profile. Without this profile, the result is l.
func (l Listeners) OfGateway() Listeners {
	if l.Gateway.Edge {
		s := proto.CloneOf(edge)
		stated := l.Connections.Config().GetConnectionSettings()
		stated.ProtoReflect().Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			s.ProtoReflect().Set(fd, v)
			return true
		})
		l.Connections = partOf(&meshv1.ProxyConfig{ConnectionSettings: s})
	}
	return l
}

// String returns the names of the fields that are set, separated by commas. If no field is set, the result is empty.
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
	for _, of := range []struct {
		set   bool
		field string
	}{
		{l.Gateway.Edge, "connectionSettings.profile"}, {l.Gateway.TrustedProxies > 0, "gatewayTopology.numTrustedProxies"},
		{l.Gateway.ClientCertificates != 0, "gatewayTopology.forwardClientCertDetails"},
		{l.Gateway.ProxyProtocol, "gatewayTopology.proxyProtocol"},
	} {
		if of.set {
			fields = append(fields, of.field)
		}
	}
	return strings.Join(fields, ", ")
}

// Part is a part of a ProxyConfig, encoded as deterministic protobuf, so that equal parts have equal (==) Parts. An
// empty Part means that the ProxyConfig does not state this part.
type Part string

// MarshalText returns the Part in base64, for JSON. The error is always nil.
func (p Part) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, []byte(p)), nil
}

// UnmarshalText is the inverse of MarshalText. If the text is not base64, UnmarshalText returns an error, and p has the
// bytes before the fault. The decoded bytes are not checked, so the text must be from MarshalText.
func (p *Part) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	*p = Part(raw)
	return err
}

// partOf returns the Part of a ProxyConfig that has no other fields.
func partOf(c *meshv1.ProxyConfig) Part {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil { // c contains text that is not UTF-8, which no decoder accepts
		return ""
	}
	return Part(raw)
}

// Config returns a new ProxyConfig with only this part. For an empty Part the ProxyConfig is empty. Config panics if
// the Part is not an encoded ProxyConfig.
func (p Part) Config() *meshv1.ProxyConfig {
	c := &meshv1.ProxyConfig{}
	if err := proto.Unmarshal([]byte(p), c); err != nil {
		panic(err) // unreachable: partOf encoded it
	}
	return c
}

// Own is a proxy's own setting in place of the mesh's defaultConfig. It is comparable. The zero Own means that the
// mesh's setting applies.
type Own[T comparable] struct {
	Stated bool // the proxy has its own setting
	Is     T    // the proxy's setting; zero unless Stated
}

// OwnOf returns the proxy's setting if it differs from the mesh's, otherwise the zero Own.
func OwnOf[T comparable](proxy, mesh T) Own[T] {
	if proxy == mesh {
		return Own[T]{}
	}
	return Own[T]{Stated: true, Is: proxy}
}

// Or returns the proxy's own setting if Stated is true, otherwise mesh.
func (o Own[T]) Or(mesh T) T {
	if o.Stated {
		return o.Is
	}
	return mesh
}

// Of returns the Settings of a ProxyConfig, which it does not change; nil yields the zero Settings. Values that Envoy
// would refuse are left out of the Settings, and returned as faults. Without such values the faults are nil.
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
		out.Listeners.Gateway.Edge = s.Profile == meshv1.ProxyConfig_ConnectionSettings_EDGE
		// Besides Profile, the fields that are cleared here are not supported.
		s.Profile, s.ClusterPerConnectionBufferLimitBytes, s.ListenerConnectionLimit, s.GlobalDownstreamConnectionLimit = 0, nil, nil, nil
		r.connections(s)
		out.Listeners.Connections = partOf(&meshv1.ProxyConfig{ConnectionSettings: s})
	}
	r.topology(c.GetGatewayTopology(), &out.Listeners.Gateway)
	if c.GetTracing() != nil {
		t := proto.CloneOf(c.GetTracing())
		t.Tracer, t.TlsSettings = nil, nil // read from the bootstrap
		r.tracing(t)
		out.Tracing = partOf(&meshv1.ProxyConfig{Tracing: t})
	}
	return out, r.faults
}
