package extension

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	extensionsv1 "istio.io/api/extensions/v1alpha1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

func extensionOf(t *testing.T, name string, created int64, spec string) *model.TrafficExtension {
	t.Helper()
	m := &extensionsv1.TrafficExtension{}
	raw, err := yaml.YAMLToJSON([]byte(spec))
	if err == nil {
		err = protojson.Unmarshal(raw, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := model.New(model.Key{Kind: model.KindWasmPlugin, Namespace: "shop", Name: name}, created, m)
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.TrafficExtension)
}

func TestWayOf(t *testing.T) {
	const stock, istio = xds.CapLua | xds.CapWasmHTTP | xds.CapWasmNetwork, xds.CapWasmHTTP | xds.CapWasmFetch
	for _, c := range []struct {
		spec string
		caps xds.Caps
		want Way
	}{
		{"{lua: {inlineCode: x}}", stock, ByEnvoy},
		{"{lua: {inlineCode: x}}", istio, Closed},
		{"{wasm: {url: 'file:///a'}}", stock, ByEnvoy},
		{"{wasm: {url: 'FILE:///a'}}", istio, ByEnvoy},
		{"{wasm: {url: 'file:///a', type: NETWORK}}", stock, ByEnvoy},
		{"{wasm: {url: 'file:///a', type: NETWORK}}", istio, Closed},
		{"{wasm: {url: a/b}}", stock, Closed},
		{"{wasm: {url: a/b, failStrategy: FAIL_OPEN}}", stock, Left},
		{"{wasm: {url: a/b, failStrategy: FAIL_RELOAD}}", stock, Closed},
		{"{wasm: {url: 'a:5000/b'}}", istio, ByAgent},
		{"{wasm: {url: 'https://a/b'}}", istio, ByAgent},
		{"{wasm: {url: 'https://a/b'}}", stock, Closed},
		{"{wasm: {url: 'https://a/b', sha256: c}}", stock, ByEnvoy},
		{"{wasm: {url: 'oci://a/b', sha256: c}}", stock, Closed},
		{"{wasm: {url: 'file:///a', failStrategy: FAIL_OPEN}}", 0, Left},
	} {
		way, why := WayOf(extensionOf(t, "a", 0, c.spec), c.caps)
		if way != c.want || (why == "") != way.Runs() {
			t.Errorf("%s with %x: %v because of %q, want %v", c.spec, c.caps, way, why, c.want)
		}
	}
}

func TestFilterOf(t *testing.T) {
	for _, c := range []struct {
		match string
		side  Side
		is    bool
		on    []uint32 // of 0, 80 and 90
	}{
		{"[]", Inbound, true, []uint32{0, 80, 90}},
		{"[{}]", Outbound, true, []uint32{0, 80, 90}},
		{"[{mode: CLIENT}]", Inbound, false, nil},
		{"[{mode: CLIENT}]", Outbound, true, []uint32{0, 80, 90}},
		{"[{mode: CLIENT_AND_SERVER, ports: [{number: 80}]}]", Inbound, true, []uint32{80}},
		{"[{mode: CLIENT, ports: [{number: 80}]}, {mode: SERVER, ports: [{number: 90}]}]", Inbound, true, []uint32{90}},
		{"[{mode: CLIENT, ports: [{number: 80}]}, {ports: [{number: 90}]}]", Outbound, true, []uint32{80, 90}},
		{"[{ports: [{number: 80}]}, {mode: SERVER}]", Inbound, true, []uint32{0, 80, 90}},
	} {
		f, is := FilterOf(extensionOf(t, "a", 0, "{match: "+c.match+", lua: {inlineCode: x}}"), ByEnvoy, c.side)
		var on []uint32
		for _, port := range []uint32{0, 80, 90} {
			if is && f.On(port) {
				on = append(on, port)
			}
		}
		if is != c.is || !slices.Equal(on, c.on) {
			t.Errorf("%s on side %v: %v on %v, want %v on %v", c.match, c.side, is, on, c.is, c.on)
		}
	}
	if _, is := FilterOf(extensionOf(t, "a", 0, "{wasm: {url: a}}"), Left, Inbound); is {
		t.Error("one that is left out is a filter")
	}
}

// The order is by priority, the highest first and those without one last; then by the place of the namespace; then by
// age.
func TestCompare(t *testing.T) {
	unset, old := extensionOf(t, "a", 1, "{}"), extensionOf(t, "b", 1, "{priority: 0}")
	young, high := extensionOf(t, "a", 2, "{priority: 0}"), extensionOf(t, "z", 9, "{priority: 5}")
	sorted := []*model.TrafficExtension{high, old, young, unset}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := Compare(a, b, 0); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("%v and %v: %d", a.Key, b.Key, got)
			}
		}
	}
	if Compare(old, young, 1) < 0 || Compare(high, old, 1) > 0 {
		t.Error("the place does not stand between priority and age")
	}
}
