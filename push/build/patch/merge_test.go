package patch

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	_ "navarch.io/navarch/push/build/patch/envoytypes"
	"navarch.io/navarch/store/model"
)

func fromYAML(t testing.TB, text string, into proto.Message) {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, into)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// filter returns an EnvoyFilter of one patch.
func filter(t testing.TB, config string) model.Patch {
	t.Helper()
	spec := &networkingv1.EnvoyFilter{}
	fromYAML(t, "configPatches: ["+config+"]", spec)
	return patchOf(t, spec)
}

func patchOf(t testing.TB, spec *networkingv1.EnvoyFilter) model.Patch {
	t.Helper()
	r, err := model.New(model.Key{Kind: model.KindEnvoyFilter, Namespace: "shop", Name: "f"}, 0, spec)
	if err != nil {
		t.Fatal(err)
	}
	return model.Patch{Filter: r.(*model.EnvoyFilter)}
}

func merge(t testing.TB, operation, value string) model.Patch {
	t.Helper()
	return filter(t, `{applyTo: CLUSTER, patch: {operation: `+operation+`, value: `+value+`}}`)
}

const (
	tlsType  = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext`
	httpType = `"@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions`
	rawType  = `"@type": type.googleapis.com/envoy.extensions.transport_sockets.raw_buffer.v3.RawBuffer`
)

func TestMerge(t *testing.T) {
	for _, c := range []struct{ name, have, value, want string }{
		{"fields that are not stated stay", `{name: a, connect_timeout: 1s}`, `{lb_policy: RANDOM}`, `{name: a, connect_timeout: 1s, lb_policy: RANDOM}`},
		{"camel case too", `{name: a}`, `{connectTimeout: 3s}`, `{name: a, connect_timeout: 3s}`},
		{"a duration is one value", `{connect_timeout: 1.5s}`, `{connect_timeout: 2s}`, `{connect_timeout: 2s}`},
		{"a wrapper is one value", `{per_connection_buffer_limit_bytes: 5}`, `{per_connection_buffer_limit_bytes: 0}`, `{per_connection_buffer_limit_bytes: 0}`},
		{"a percentage is one value", `{common_lb_config: {healthy_panic_threshold: {value: 50}}}`, `{common_lb_config: {healthy_panic_threshold: {value: 0}}}`,
			`{common_lb_config: {healthy_panic_threshold: {}}}`},
		{"messages are merged", `{outlier_detection: {interval: 1s}}`, `{outlier_detection: {base_ejection_time: 2s}}`, `{outlier_detection: {interval: 1s, base_ejection_time: 2s}}`},
		{"lists grow", `{circuit_breakers: {thresholds: [{max_retries: 1}]}}`, `{circuit_breakers: {thresholds: [{priority: HIGH}]}}`,
			`{circuit_breakers: {thresholds: [{max_retries: 1}, {priority: HIGH}]}}`},
		{"map entries are replaced", `{typed_extension_protocol_options: {a: {` + tlsType + `, sni: x}, b: {` + rawType + `}}}`, `{typed_extension_protocol_options: {a: {` + tlsType + `, allow_renegotiation: true}}}`,
			`{typed_extension_protocol_options: {a: {` + tlsType + `, allow_renegotiation: true}, b: {` + rawType + `}}}`},
		{"a oneof changes", `{type: EDS}`, `{cluster_type: {name: x}}`, `{cluster_type: {name: x}}`},
		{"an Any of one type is merged", `{transport_socket: {name: tls, typed_config: {` + tlsType + `, sni: x, common_tls_context: {alpn_protocols: [a]}}}}`,
			`{transport_socket: {name: tls, typed_config: {` + tlsType + `, allow_renegotiation: true, common_tls_context: {alpn_protocols: [b]}}}}`,
			`{transport_socket: {name: tls, typed_config: {` + tlsType + `, sni: x, allow_renegotiation: true, common_tls_context: {alpn_protocols: [a, b]}}}}`},
		{"an Any of another is replaced", `{transport_socket: {name: tls, typed_config: {` + tlsType + `, sni: x}}}`, `{transport_socket: {name: raw, typed_config: {` + rawType + `}}}`,
			`{transport_socket: {name: raw, typed_config: {` + rawType + `}}}`},
		{"a TypedStruct of a type nobody knows", `{}`, `{transport_socket: {name: x, typed_config: {"@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: a/b.C, value: {d: 1}}}}`,
			`{transport_socket: {name: x, typed_config: {"@type": type.googleapis.com/xds.type.v3.TypedStruct, type_url: a/b.C, value: {d: 1}}}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, want := &clusterv3.Cluster{}, &clusterv3.Cluster{}
			fromYAML(t, c.have, got)
			fromYAML(t, c.want, want)
			if err := Merge(merge(t, "MERGE", c.value), got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestMergeReplacesLists(t *testing.T) {
	got, want := &clusterv3.Cluster{}, &clusterv3.Cluster{}
	fromYAML(t, `{name: a, circuit_breakers: {thresholds: [{max_retries: 1}]}, transport_socket: {name: tls, typed_config: {`+tlsType+`, common_tls_context: {alpn_protocols: [a]}}}}`, got)
	fromYAML(t, `{name: a, circuit_breakers: {thresholds: [{priority: HIGH}]}, transport_socket: {name: tls, typed_config: {`+tlsType+`, common_tls_context: {alpn_protocols: [b]}}}}`, want)
	p := merge(t, "MERGE_AND_REPLACE_LIST", `{circuit_breakers: {thresholds: [{priority: HIGH}]}, transport_socket: {name: tls, typed_config: {`+tlsType+`, common_tls_context: {alpn_protocols: [b]}}}}`)
	if err := Merge(p, got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Error(d)
	}
}

// An error names the object and the field, and the target of the patch is unchanged.
func TestProblems(t *testing.T) {
	const at = "EnvoyFilter shop/f: spec.configPatches[0]."
	for _, c := range []struct{ name, config, want string }{
		{"fine", `{applyTo: CLUSTER, patch: {operation: MERGE, value: {lb_policy: RANDOM}}}`, ""},
		{"a part is fine where it is merged", `{applyTo: VIRTUAL_HOST, patch: {operation: MERGE, value: {include_request_attempt_count: true}}}`, ""},
		{"and not where it is added", `{applyTo: VIRTUAL_HOST, patch: {operation: ADD, value: {include_request_attempt_count: true}}}`, "patch.value: invalid VirtualHost.Name"},
		{"remove takes no value", `{applyTo: CLUSTER, patch: {operation: REMOVE}}`, ""},
		{"no value", `{applyTo: CLUSTER, patch: {operation: MERGE}}`, "patch.value: is missing"},
		{"no operation", `{applyTo: CLUSTER, patch: {value: {}}}`, "patch.operation: is missing"},
		{"unknown field", `{applyTo: CLUSTER, patch: {operation: MERGE, value: {lb_polizy: RANDOM}}}`, `patch.value: unknown field "lb_polizy"`},
		{"wrong type", `{applyTo: CLUSTER, patch: {operation: MERGE, value: {connect_timeout: [1]}}}`, `patch.value: unexpected token [`},
		{"unknown Any", `{applyTo: CLUSTER, patch: {operation: MERGE, value: {transport_socket: {name: a, typed_config: {"@type": type.googleapis.com/no.Such}}}}}`,
			`"type.googleapis.com/no.Such"`},
		{"not applied, which the normaliser says", `{applyTo: BOOTSTRAP, patch: {operation: MERGE, value: {}}}`, ""},
		{"bad filter inside", `{applyTo: HTTP_FILTER, patch: {operation: INSERT_FIRST, value: {name: lua, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, inline_kode: x}}}}`,
			`unknown field "inline_kode"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := filter(t, c.config)
			err := Problem(p)
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.HasPrefix(err.Error(), at) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s...%s", err, at, c.want)
			case err != nil && strings.Contains(err.Error(), "\u00a0"):
				t.Errorf("%q has a no-break space", err)
			}
			have := &clusterv3.Cluster{Name: "a"}
			if Merge(p, have) != nil && !proto.Equal(have, &clusterv3.Cluster{Name: "a"}) {
				t.Errorf("a refused patch changed %v", have)
			}
		})
	}
}

// Every kind of patch in common use decodes: its types are linked in.
func TestKnownTypes(t *testing.T) {
	for _, name := range []string{
		"filters.http.lua.v3.Lua", "filters.http.wasm.v3.Wasm", "filters.http.ext_authz.v3.ExtAuthz", "filters.http.ext_proc.v3.ExternalProcessor",
		"filters.http.local_ratelimit.v3.LocalRateLimit", "filters.http.ratelimit.v3.RateLimit", "filters.http.compressor.v3.Compressor",
		"filters.http.buffer.v3.Buffer", "filters.http.cors.v3.Cors", "filters.http.csrf.v3.CsrfPolicy", "filters.http.fault.v3.HTTPFault",
		"filters.http.grpc_json_transcoder.v3.GrpcJsonTranscoder", "filters.http.grpc_web.v3.GrpcWeb", "filters.http.header_to_metadata.v3.Config",
		"filters.http.jwt_authn.v3.JwtAuthentication", "filters.http.rbac.v3.RBAC", "filters.http.oauth2.v3.OAuth2", "filters.http.set_filter_state.v3.Config",
		"filters.network.tcp_proxy.v3.TcpProxy", "filters.network.http_connection_manager.v3.HttpConnectionManager", "filters.network.rbac.v3.RBAC",
		"filters.network.redis_proxy.v3.RedisProxy", "filters.network.mongo_proxy.v3.MongoProxy", "filters.listener.proxy_protocol.v3.ProxyProtocol",
		"access_loggers.file.v3.FileAccessLog", "access_loggers.grpc.v3.HttpGrpcAccessLogConfig", "access_loggers.open_telemetry.v3.OpenTelemetryAccessLogConfig",
		"compression.gzip.compressor.v3.Gzip", "compression.brotli.compressor.v3.Brotli", "upstreams.http.v3.HttpProtocolOptions",
		"transport_sockets.tls.v3.UpstreamTlsContext", "http.header_formatters.preserve_case.v3.PreserveCaseFormatterConfig",
		"clusters.dynamic_forward_proxy.v3.ClusterConfig", "load_balancing_policies.round_robin.v3.RoundRobin",
	} {
		p := merge(t, "MERGE", `{transport_socket: {typed_config: {"@type": type.googleapis.com/envoy.extensions.`+name+`}}}`)
		if err := Decode(p, &clusterv3.Cluster{}); err != nil {
			t.Error(err)
		}
	}
}

func TestClusterMatches(t *testing.T) {
	const (
		out, in = networkingv1.EnvoyFilter_SIDECAR_OUTBOUND, networkingv1.EnvoyFilter_SIDECAR_INBOUND
		name    = "outbound|80|v1|a.shop.svc"
	)
	for _, c := range []struct {
		match   string
		context networkingv1.EnvoyFilter_PatchContext
		name    string
		want    bool
	}{
		{`{}`, out, name, true},
		{`{}`, out, "BlackHoleCluster", true},
		{`{context: SIDECAR_INBOUND}`, out, name, false},
		{`{context: GATEWAY}`, out, name, false},
		{`{cluster: {service: a.shop.svc}}`, out, name, true},
		{`{cluster: {service: b.shop.svc}}`, out, name, false},
		{`{cluster: {portNumber: 80, subset: v1}}`, out, name, true},
		{`{cluster: {portNumber: 81}}`, out, name, false},
		{`{cluster: {subset: v2}}`, out, name, false},
		{`{cluster: {subset: v1}}`, out, "PassthroughCluster", false},
		{`{cluster: {name: PassthroughCluster, portNumber: 9}}`, out, "PassthroughCluster", true},
		{`{cluster: {name: PassthroughCluster}}`, out, name, false},
		{`{cluster: {service: mine.shop.svc, portNumber: 8080}}`, in, "inbound|8080||", true},
		{`{cluster: {service: other.shop.svc}}`, in, "inbound|8080||", false},
		{`{listener: {portNumber: 80}}`, out, name, false},
	} {
		p := filter(t, `{applyTo: CLUSTER, match: `+c.match+`, patch: {operation: MERGE, value: {}}}`)
		if got := ClusterMatches(p, c.context, c.name, "mine.shop.svc"); got != c.want {
			t.Errorf("%s against %v %s: %v", c.match, c.context, c.name, got)
		}
	}
	if p := filter(t, `{applyTo: CLUSTER, patch: {operation: REMOVE}}`); !ClusterMatches(p, out, name) || !RemovesCluster(p) {
		t.Error("a REMOVE of everything does not match")
	}
	for _, other := range []string{`{applyTo: LISTENER, patch: {operation: MERGE, value: {}}}`, `{applyTo: CLUSTER, patch: {operation: ADD, value: {}}}`} {
		if ClusterMatches(filter(t, other), out, name) {
			t.Errorf("%s matches a cluster", other)
		}
	}
}

func TestAddsCluster(t *testing.T) {
	for _, c := range []struct{ config, want string }{
		{`{applyTo: CLUSTER, patch: {operation: ADD, value: {name: a, connect_timeout: 1s}}}`, "a"},
		{`{applyTo: CLUSTER, match: {context: SIDECAR_INBOUND}, patch: {operation: ADD, value: {name: a}}}`, "a"},
		{`{applyTo: CLUSTER, match: {context: GATEWAY}, patch: {operation: ADD, value: {name: a}}}`, "a"},
		{`{applyTo: CLUSTER, match: {context: WAYPOINT}, patch: {operation: ADD, value: {name: a}}}`, ""},
		{`{applyTo: CLUSTER, patch: {operation: ADD, value: {}}}`, ""},
		{`{applyTo: CLUSTER, patch: {operation: ADD, value: {nome: a}}}`, ""},
		{`{applyTo: CLUSTER, patch: {operation: MERGE, value: {name: a}}}`, ""},
	} {
		if name, ok := AddsCluster(filter(t, c.config)); name != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v", c.config, name, ok)
		}
	}
}

// Every value makes an error or a message and never a panic; equal bytes make an equal result.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","connect_timeout":"1s"}`, `{"type":"EDS","lb_policy":9}`, `{"transport_socket":{"name":"x","typed_config":{` + tlsType + `}}}`,
		`{"typed_extension_protocol_options":{"a":{` + httpType + `,"explicit_http_config":{}}}}`, `{"metadata":{"filter_metadata":{"a":{"b":[null,{}]}}}}`,
		`{"load_assignment":{"endpoints":[{"lb_endpoints":[null]}]}}`, `{"typed_config":{"@type":""}}`, `{"transport_socket":{"typed_config":{"@type":"a"}}}`,
	} {
		f.Add(seed, int32(8), int32(1))
	}
	f.Fuzz(func(t *testing.T, text string, applyTo, operation int32) {
		value := &structpb.Struct{}
		if protojson.Unmarshal([]byte(text), value) != nil {
			return
		}
		spec := &networkingv1.EnvoyFilter{ConfigPatches: []*networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{{
			ApplyTo: networkingv1.EnvoyFilter_ApplyTo(applyTo),
			Patch:   &networkingv1.EnvoyFilter_Patch{Operation: networkingv1.EnvoyFilter_Patch_Operation(operation), Value: value},
		}}}
		p := patchOf(t, spec)
		_ = Problem(p)
		have := &clusterv3.Cluster{}
		fromYAML(t, `{name: a, type: EDS, transport_socket: {name: tls, typed_config: {`+tlsType+`, sni: x}}, typed_extension_protocol_options: {a: {`+httpType+`}}}`, have)
		again := proto.CloneOf(have)
		if (Merge(p, have) == nil) != (Merge(p, again) == nil) || !proto.Equal(have, again) {
			t.Errorf("%s merges in two ways", text)
		}
		Cluster(have, []model.Patch{p})
	})
}

// Values decode as in istiod: durations in Go's notation, also inside an Any. An unknown value of an enumeration and an
// Any without a type are errors even if unknown fields are ignored.
func TestValuesAreReadAsIstiodReadsThem(t *testing.T) {
	for name, c := range map[string]struct {
		applyTo networkingv1.EnvoyFilter_ApplyTo
		value   map[string]any
		wrong   string // empty: it can be read
	}{
		"a duration":          {networkingv1.EnvoyFilter_CLUSTER, map[string]any{"connect_timeout": "250ms"}, ""},
		"no duration":         {networkingv1.EnvoyFilter_CLUSTER, map[string]any{"connect_timeout": "soon"}, "soon"},
		"an unknown field":    {networkingv1.EnvoyFilter_CLUSTER, map[string]any{"conect_timeout": "1s"}, ""},
		"an enumeration":      {networkingv1.EnvoyFilter_CLUSTER, map[string]any{"lb_policy": "RANDOM"}, ""},
		"an unknown value":    {networkingv1.EnvoyFilter_CLUSTER, map[string]any{"type": "a/b"}, `patch.value.type: "a/b" is not a value of DiscoveryType`},
		"in a list":           {networkingv1.EnvoyFilter_LISTENER, map[string]any{"filter_chains": []any{map[string]any{"transport_socket_connect_timeout": "1m"}}}, ""},
		"inside an Any":       {networkingv1.EnvoyFilter_NETWORK_FILTER, map[string]any{"typed_config": map[string]any{"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "connect_timeout": "5ms"}}, ""},
		"an Any without type": {networkingv1.EnvoyFilter_NETWORK_FILTER, map[string]any{"typed_config": map[string]any{"stat_prefix": "a"}}, "patch.value.typed_config: has no @type"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := structpb.NewStruct(c.value)
			if err != nil {
				t.Fatal(err)
			}
			spec := &networkingv1.EnvoyFilter{ConfigPatches: []*networkingv1.EnvoyFilter_EnvoyConfigObjectPatch{{ApplyTo: c.applyTo,
				Patch: &networkingv1.EnvoyFilter_Patch{Operation: networkingv1.EnvoyFilter_Patch_MERGE, Value: value}}}}
			record, err := model.New(model.Key{Kind: model.KindEnvoyFilter, Namespace: "a", Name: "b"}, 0, spec)
			if err != nil {
				t.Fatal(err)
			}
			refused, _ := Validate(record.(*model.EnvoyFilter))
			if c.wrong == "" && len(refused) > 0 || c.wrong != "" && (len(refused) != 1 || !strings.Contains(refused[0].Error(), c.wrong)) {
				t.Errorf("refused for %v, want %q", refused, c.wrong)
			}
		})
	}
}
