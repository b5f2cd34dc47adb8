package proxyconfig

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	meshv1 "istio.io/api/mesh/v1alpha1"
)

// Fault is a value of a ProxyConfig that is left out of the Settings, in most cases because Envoy would refuse the
// value.
type Fault struct {
	Field   string // path below the ProxyConfig, such as "tracing.sampling"
	Message string // text for users, with the accepted values
}

// Bounds of HTTP/2 in Envoy (config.core.v3.Http2ProtocolOptions).
const (
	leastWindow = 65535
	most        = 1<<31 - 1
)

// longestServer is the largest accepted length of the server header, in bytes.
const longestServer = 256

// reading collects faults.
type reading struct{ faults []Fault }

// fault adds a fault.
func (r *reading) fault(field, format string, args ...any) {
	r.faults = append(r.faults, Fault{field, fmt.Sprintf(format, args...)})
}

// plain reports whether Envoy accepts a text as a header's name or value (HTTP_HEADER_VALUE of protoc-gen-validate, not
// strict).
func plain(text string) bool { return !strings.ContainsAny(text, "\x00\n\r") }

// headers checks the server header, and removes an invalid one.
func (r *reading) headers(h *meshv1.ProxyConfig_ProxyHeaders) {
	if value := h.GetServer().GetValue(); !plain(value) || len(value) > longestServer {
		r.fault("proxyHeaders.server.value", "%.40q is no value of a header of %d bytes at most; left out", value, longestServer)
		h.Server.Value = ""
	}
}

// connections checks the settings of connections, and removes invalid ones.
func (r *reading) connections(s *meshv1.ProxyConfig_ConnectionSettings) {
	for _, of := range []struct {
		name string
		at   **durationpb.Duration
	}{
		{"httpIdleTimeout", &s.HttpIdleTimeout}, {"httpMaxConnectionDuration", &s.HttpMaxConnectionDuration},
		{"httpDrainTimeout", &s.HttpDrainTimeout},
		{"httpRequestTimeout", &s.HttpRequestTimeout}, {"httpRequestHeadersTimeout", &s.HttpRequestHeadersTimeout},
		{"httpStreamIdleTimeout", &s.HttpStreamIdleTimeout}, {"httpMaxStreamDuration", &s.HttpMaxStreamDuration},
	} {
		if d := *of.at; d != nil && (d.CheckValid() != nil || d.AsDuration() < 0) {
			r.fault("connectionSettings."+of.name, "%v is not a duration of zero or more; left out", d.AsDuration())
			*of.at = nil
		}
	}
	for _, of := range []struct {
		name  string
		at    **wrapperspb.Int32Value
		least int32
	}{
		{"listenerPerConnectionBufferLimitBytes", &s.ListenerPerConnectionBufferLimitBytes, 0},
		{"httpMaxConcurrentStreams", &s.HttpMaxConcurrentStreams, 1},
		{"http2InitialStreamWindowSize", &s.Http2InitialStreamWindowSize, leastWindow},
		{"http2InitialConnectionWindowSize", &s.Http2InitialConnectionWindowSize, leastWindow},
	} {
		if n := *of.at; n != nil && n.GetValue() < of.least {
			r.fault("connectionSettings."+of.name, "%d is not in %d-%d; left out", n.GetValue(), of.least, most)
			*of.at = nil
		}
	}
}

// topology reads the settings for the proxies in front of a gateway. The argument t may be nil.
func (r *reading) topology(t *meshv1.Topology, out *Gateway) {
	out.TrustedProxies, out.ProxyProtocol = t.GetNumTrustedProxies(), t.GetProxyProtocol() != nil
	if _, known := meshv1.ForwardClientCertDetails_name[int32(t.GetForwardClientCertDetails())]; !known {
		r.fault("gatewayTopology.forwardClientCertDetails", "%d is not known; left out", t.GetForwardClientCertDetails())
		return
	}
	out.ClientCertificates = t.GetForwardClientCertDetails()
}

// tracing checks the settings of tracing, and removes invalid ones.
func (r *reading) tracing(t *meshv1.Tracing) {
	if !(t.GetSampling() >= 0 && t.GetSampling() <= 100) { // also excludes NaN
		r.fault("tracing.sampling", "%v is not in 0-100; left out", t.GetSampling())
		t.Sampling = 0
	}
	for _, name := range slices.Sorted(maps.Keys(t.GetCustomTags())) {
		tag := t.GetCustomTags()[name]
		var value string
		switch of := tag.GetType().(type) {
		case *meshv1.Tracing_CustomTag_Literal:
			value = of.Literal.GetValue()
		case *meshv1.Tracing_CustomTag_Environment:
			value = of.Environment.GetName()
		case *meshv1.Tracing_CustomTag_Header:
			if value = of.Header.GetName(); !plain(value) {
				value = ""
			}
		}
		if name == "" || value == "" {
			r.fault(fmt.Sprintf("tracing.customTags[%s]", name),
				"want a name, and a literal, an environment variable or a header; left out")
			delete(t.CustomTags, name)
		}
	}
}
