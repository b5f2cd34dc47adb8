package proxyconfig

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	meshv1 "istio.io/api/mesh/v1alpha1"
)

func config(t *testing.T, text string) *meshv1.ProxyConfig {
	t.Helper()
	c := &meshv1.ProxyConfig{}
	if err := protojson.Unmarshal([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

// unread are the fields that make no other Settings: they are for gateways, for agents, or reported
// (store/normal/fields).
var unread = []protoreflect.FullName{
	"istio.mesh.v1alpha1.ProxyConfig.ConnectionSettings.cluster_per_connection_buffer_limit_bytes",
	"istio.mesh.v1alpha1.ProxyConfig.ConnectionSettings.listener_connection_limit",
	"istio.mesh.v1alpha1.ProxyConfig.ConnectionSettings.global_downstream_connection_limit",
	"istio.mesh.v1alpha1.Tracing.zipkin", "istio.mesh.v1alpha1.Tracing.lightstep", "istio.mesh.v1alpha1.Tracing.datadog",
	"istio.mesh.v1alpha1.Tracing.stackdriver", "istio.mesh.v1alpha1.Tracing.open_census_agent", "istio.mesh.v1alpha1.Tracing.tls_settings",
}

// Every field of the supported messages is part of the Settings, by which plans distinguish proxies, including fields
// of later versions of the API.
func TestSettingsHaveEveryField(t *testing.T) {
	for of, least := range map[protoreflect.Name]int{"proxy_headers": 8, "connection_settings": 8, "tracing": 8, "gateway_topology": 3} {
		base := &meshv1.ProxyConfig{}
		field := base.ProtoReflect().Descriptor().Fields().ByName(of)
		base.ProtoReflect().Mutable(field)
		plain, _ := Of(base)
		count := 0
		var each func(md protoreflect.MessageDescriptor, of func(*meshv1.ProxyConfig) protoreflect.Message)
		each = func(md protoreflect.MessageDescriptor, in func(*meshv1.ProxyConfig) protoreflect.Message) {
			for i := range md.Fields().Len() {
				fd := md.Fields().Get(i)
				want := !slices.Contains(unread, fd.FullName())
				if below := fd.Message(); below != nil && !fd.IsMap() && below.Fields().Len() > 0 && below.ParentFile() == md.ParentFile() && want {
					each(below, func(c *meshv1.ProxyConfig) protoreflect.Message { return in(c).Mutable(fd).Message() })
					continue // the empty message may have no effect
				}
				c := proto.CloneOf(base)
				set(in(c), fd)
				got, faults := Of(c)
				if differs := got != plain; differs != want || len(faults) > 0 {
					t.Errorf("%s: other settings: %v, want %v (%v)", fd.FullName(), differs, want, faults)
				}
				if again, _ := Of(proto.CloneOf(c)); again != got {
					t.Errorf("%s: equal ProxyConfigs have other settings", fd.FullName())
				}
				count++
			}
		}
		each(field.Message(), func(c *meshv1.ProxyConfig) protoreflect.Message { return c.ProtoReflect().Mutable(field).Message() })
		if count < least {
			t.Errorf("%s: %d fields", of, count)
		}
	}
}

// set sets a field to a value that Envoy accepts.
func set(m protoreflect.Message, fd protoreflect.FieldDescriptor) {
	switch {
	case fd.IsMap():
		tag := &meshv1.Tracing_CustomTag{Type: &meshv1.Tracing_CustomTag_Literal{Literal: &meshv1.Tracing_Literal{Value: "blue"}}}
		m.Mutable(fd).Map().Set(protoreflect.ValueOfString("team").MapKey(), protoreflect.ValueOfMessage(tag.ProtoReflect()))
	case fd.Kind() == protoreflect.MessageKind:
		below := m.Mutable(fd).Message()
		if value := below.Descriptor().Fields().ByName("value"); value != nil && below.Descriptor().FullName().Parent() == "google.protobuf" {
			set(below, value)
		}
	case fd.Kind() == protoreflect.BoolKind:
		m.Set(fd, protoreflect.ValueOfBool(true))
	case fd.Kind() == protoreflect.EnumKind:
		m.Set(fd, protoreflect.ValueOfEnum(1))
	case fd.Kind() == protoreflect.StringKind:
		m.Set(fd, protoreflect.ValueOfString("x"))
	case fd.Kind() == protoreflect.Int32Kind:
		m.Set(fd, protoreflect.ValueOfInt32(70000))
	case fd.Kind() == protoreflect.Uint32Kind:
		m.Set(fd, protoreflect.ValueOfUint32(70000))
	case fd.Kind() == protoreflect.DoubleKind:
		m.Set(fd, protoreflect.ValueOfFloat64(7))
	default:
		panic(fd.FullName())
	}
}

// A setting that Envoy would refuse is left out alone, and named.
func TestWhatEnvoyRefusesIsLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "", `{"tracing": {}, "proxyHeaders": {}, "connectionSettings": {}}`: "",
		`{"proxyHeaders": {"server": {"value": "a\r\nset-cookie: b"}}}`:                              "proxyHeaders.server.value",
		`{"connectionSettings": {"httpIdleTimeout": "-1s"}}`:                                         "connectionSettings.httpIdleTimeout",
		`{"connectionSettings": {"listenerPerConnectionBufferLimitBytes": -1}}`:                      "connectionSettings.listenerPerConnectionBufferLimitBytes",
		`{"connectionSettings": {"httpMaxConcurrentStreams": 0}}`:                                    "connectionSettings.httpMaxConcurrentStreams",
		`{"connectionSettings": {"http2InitialConnectionWindowSize": 65534}}`:                        "connectionSettings.http2InitialConnectionWindowSize",
		`{"gatewayTopology": {"numTrustedProxies": 1, "forwardClientCertDetails": 9}}`:               "gatewayTopology.forwardClientCertDetails",
		`{"tracing": {"sampling": 100.5}}`:                                                           "tracing.sampling",
		`{"tracing": {"sampling": "NaN"}}`:                                                           "tracing.sampling",
		`{"tracing": {"customTags": {"a": {"header": {"name": "x\n"}}}}}`:                            "tracing.customTags[a]",
		`{"tracing": {"customTags": {"": {"literal": {"value": "x"}}}}}`:                             "tracing.customTags[]",
		`{"tracing": {"customTags": {"b": {}}}}`:                                                     "tracing.customTags[b]",
		`{"tracing": {"customTags": {"a": {"literal": {"value": "\n"}}}, "maxPathTagLength": 4000}}`: "",
	} {
		c := config(t, text)
		before := proto.CloneOf(c)
		got, faults := Of(c)
		var fields []string
		for _, f := range faults {
			fields = append(fields, f.Field)
		}
		if len(fields) > 1 || len(fields) == 1 && fields[0] != want || len(fields) == 0 && want != "" {
			t.Errorf("%s: faults %v, want %q", text, faults, want)
		}
		if !proto.Equal(c, before) {
			t.Errorf("%s: it was changed", text)
		}
		if want == "" {
			continue
		}
		// The other settings equal those of a ProxyConfig without the fault.
		var rest []*meshv1.ProxyConfig
		for _, p := range []Part{got.Listeners.Headers, got.Listeners.Connections, got.Tracing} {
			rest = append(rest, p.Config())
		}
		for _, r := range rest {
			if _, again := Of(r); len(again) > 0 {
				t.Errorf("%s: %v is left", text, again)
			}
		}
	}
}

func TestNamesOfFields(t *testing.T) {
	s, _ := Of(config(t, `{"proxyHeaders": {"server": {"value": "a"}, "attemptCount": {"disabled": true}, "xForwardedHost": {"enabled": true}}, "connectionSettings": {"httpIdleTimeout": "1s"}}`))
	if got, want := s.Routes.String()+"; "+s.Listeners.String(), "proxyHeaders.attemptCount, proxyHeaders.xForwardedHost; proxyHeaders.server, connectionSettings.httpIdleTimeout"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	s, _ = Of(config(t, `{"connectionSettings": {"profile": "EDGE"},
		"gatewayTopology": {"numTrustedProxies": 1, "forwardClientCertDetails": "SANITIZE", "proxyProtocol": {}}}`))
	const all = "connectionSettings.profile, gatewayTopology.numTrustedProxies, gatewayTopology.forwardClientCertDetails, " +
		"gatewayTopology.proxyProtocol"
	if got, want := s.Listeners.String(), all; got != want {
		t.Errorf("of gateways: got %q, want %q", got, want)
	}
	if none := (Listeners{}).String() + (Routes{}).String(); none != "" {
		t.Errorf("nothing is said, and the name is %q", none)
	}
}

func TestOwn(t *testing.T) {
	for _, c := range []struct{ proxy, mesh, or string }{{"a", "a", "a"}, {"", "", ""}, {"", "a", ""}, {"b", "a", "b"}} {
		own := OwnOf(c.proxy, c.mesh)
		if own.Stated != (c.proxy != c.mesh) || own.Or(c.mesh) != c.or {
			t.Errorf("%+v: %+v, then %q", c, own, own.Or(c.mesh))
		}
	}
	if keys := slices.Collect(maps.Keys(map[Own[Listeners]]bool{{}: true, OwnOf(Listeners{}, Listeners{}): true})); len(keys) != 1 {
		t.Error("nothing said is not one thing")
	}
}
