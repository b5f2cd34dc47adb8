package serve

import (
	"fmt"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	luav3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/lua/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/durationpb"

	"navarch.io/navarch/push/xds"
)

// answering returns the configuration of a Lua filter that responds with a text.
func answering(name, text string) *xds.Resource {
	return lua(name, fmt.Sprintf("function envoy_on_request(h) h:respond({[':status'] = '200'}, '%s') end", text))
}

func lua(name, code string) *xds.Resource {
	return encode(xds.Extension, name, &corev3.TypedExtensionConfig{Name: name, TypedConfig: pack(&luav3.Lua{
		DefaultSourceCode: &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: code}}})})
}

// discovering adds to a listener a first filter whose configuration Envoy requests, and waits for this time; 0: without
// a limit.
func discovering(name string, wait time.Duration) func(*listenerv3.Listener) {
	return func(l *listenerv3.Listener) {
		m, f := &hcmv3.HttpConnectionManager{}, l.FilterChains[0].Filters[0]
		if err := f.GetTypedConfig().UnmarshalTo(m); err != nil {
			panic(err) // an error of this test
		}
		source := &corev3.ConfigSource{ConfigSourceSpecifier: &corev3.ConfigSource_Ads{Ads: &corev3.AggregatedConfigSource{}}, ResourceApiVersion: corev3.ApiVersion_V3,
			InitialFetchTimeout: durationpb.New(wait)}
		m.HttpFilters = append([]*hcmv3.HttpFilter{{Name: name, ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: &corev3.ExtensionConfigSource{
			ConfigSource: source, TypeUrls: []string{"type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"}}}}}, m.HttpFilters...)
		f.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: pack(m)}
	}
}

// The configuration of a discovered filter changes without its listener. A refused configuration leaves the last
// accepted one in place. A listener whose filter has no configuration waits for its timeout; then its requests fail
// until there is one.
func TestEnvoyDiscoversFilters(t *testing.T) {
	t.Parallel()
	in, other := freePort(t), freePort(t)
	url, otherURL := fmt.Sprintf("http://127.0.0.1:%d/", in), fmt.Sprintf("http://127.0.0.1:%d/", other)
	p := newPlanner(cluster("one"), endpoints("one", backend(t, "one")), route("r1", "one"),
		listen("in", in, "r1", discovering("greeting", 0)), answering("greeting", "hello"))
	s, addr := start(t, Config{Planner: p})
	e := startEnvoy(t, addr, "DELTA_GRPC")
	e.Live()
	eventually(t, "an answer of the filter", serves(url, "hello"))
	p.put(answering("greeting", "good day"))
	eventually(t, "an answer of the changed filter", serves(url, "good day"))
	if n := e.stat("listener_manager.listener_modified"); n != 0 {
		t.Errorf("%d listeners were changed", n)
	}
	if i := s.Inspect(); len(i) != 1 || len(i[0].Refusals) != 0 {
		t.Errorf("streams: %+v", i)
	}

	p.put(lua("greeting", "this is no Lua"), answering("further", "further"))
	eventually(t, "the refused configuration in quarantine", func() bool { return inQuarantine(s, xds.Ref{Type: xds.Extension, Name: "greeting"}) })
	if !serves(url, "good day")() {
		t.Error("the last good configuration does not serve")
	}

	p.put(listen("other", other, "r1", discovering("none", time.Second)))
	eventually(t, "a filter without configuration", func() bool { code, _ := get(otherURL); return code == 500 })
	p.put(answering("none", "there now"))
	eventually(t, "its configuration", serves(otherURL, "there now"))
	p.edit(nil, xds.Ref{Type: xds.Extension, Name: "none"})
	p.put(listen("in", in, "r1"))
	eventually(t, "a listener without the filter", serves(url, "one"))
	if !serves(otherURL, "there now")() {
		t.Error("a filter lost its configuration while a listener had it")
	}
}

// An Envoy that refuses the configuration of a filter and has no earlier one is sent the stand-in, so that its listener
// serves instead of waiting for ever.
func TestEnvoyIsGivenStandIns(t *testing.T) {
	t.Parallel()
	in := freePort(t)
	url := fmt.Sprintf("http://127.0.0.1:%d/", in)
	p := newPlanner(cluster("one"), endpoints("one", backend(t, "one")), route("r1", "one"),
		listen("in", in, "r1", discovering("greeting", 0)), lua("greeting", "this is no Lua").With(answering("greeting", "stands in")))
	s, addr := start(t, Config{Planner: p})
	e := startEnvoy(t, addr, "DELTA_GRPC")
	e.Live()
	eventually(t, "an answer of what stands in", serves(url, "stands in"))
	if !inQuarantine(s, xds.Ref{Type: xds.Extension, Name: "greeting"}) {
		t.Error("the refused configuration is not in quarantine")
	}
	p.put(answering("greeting", "good day"))
	eventually(t, "an answer of the configuration that is good", serves(url, "good day"))
	p.put(lua("greeting", "this is no Lua either").With(answering("greeting", "stands in")))
	eventually(t, "the refused configuration in quarantine", func() bool { return inQuarantine(s, xds.Ref{Type: xds.Extension, Name: "greeting"}) })
	if !serves(url, "good day")() {
		t.Error("the last good configuration does not serve")
	}
}
