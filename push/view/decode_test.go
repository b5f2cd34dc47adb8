package view

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	meshv1 "istio.io/api/mesh/v1alpha1"

	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/proxyconfig"
)

// stock returns the encoded node of a stock Envoy with Istio's agent: 61 KB, 516 extensions.
func stock(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile("../../loadtest/proxy/stock.node.textproto")
	if err != nil {
		t.Fatal(err)
	}
	n, own := &corev3.Node{}, &corev3.Node{}
	if err := prototext.Unmarshal(raw, n); err != nil {
		t.Fatal(err)
	}
	if err := protojson.Unmarshal([]byte(good), own); err != nil {
		t.Fatal(err)
	}
	own.Extensions = nil
	proto.Merge(n, own)
	return message(n)
}

// expected returns the Node that Parse must return for n, computed from n as protobuf decodes it. The text of its error
// is not compared: only whether there is one.
func expected(n *corev3.Node) (got Node, err error) {
	w := wire{id: []byte(n.GetId()), cluster: []byte(n.GetCluster()), listed: len(n.GetExtensions()) > 0}
	for _, e := range n.GetExtensions() {
		w.caps |= xds.CapOf(e.GetName())
	}
	plain := &corev3.Node{Id: n.GetId(), Cluster: n.GetCluster(), Locality: n.GetLocality()}
	if _, err = Parse(message(plain), ""); err != nil && !strings.Contains(err.Error(), "no namespace") {
		return Node{}, err
	}
	fields := n.GetMetadata().GetFields()
	strs := map[string]string{}
	for key, v := range fields {
		s, is := v.GetKind().(*structpb.Value_StringValue)
		_, null := v.GetKind().(*structpb.Value_NullValue)
		if slices.Contains(text, key) && !is && !null && v.GetKind() != nil {
			return Node{}, fmt.Errorf("%s is no string", key)
		}
		if is && len(s.StringValue) <= longest {
			strs[key] = s.StringValue
		}
	}
	var labels map[string]string
	if v := fields["LABELS"]; v.GetKind() != nil {
		if _, null := v.GetKind().(*structpb.Value_NullValue); !null {
			if v.GetStructValue() == nil {
				return Node{}, fmt.Errorf("LABELS is no object")
			}
			labels = map[string]string{}
			for key, v := range v.GetStructValue().GetFields() {
				_, is := v.GetKind().(*structpb.Value_StringValue)
				_, null := v.GetKind().(*structpb.Value_NullValue)
				if !is && !null && v.GetKind() != nil {
					return Node{}, fmt.Errorf("label %s is no string", key)
				}
				labels[key] = v.GetStringValue()
			}
		}
	}
	// The rest is computed by node.go from the simplest node with these values.
	again := &corev3.Node{Id: n.GetId(), Cluster: n.GetCluster(), Locality: n.GetLocality(), Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{}}}
	for key, v := range strs {
		again.Metadata.Fields[key] = structpb.NewStringValue(v)
	}
	if got, err = Parse(message(again), ""); err != nil {
		return Node{}, err
	}
	agent := got.Caps & (xds.CapIdentity | xds.CapFileSecrets | xds.CapFileLists | xds.CapWasmFetch)
	if got.Caps = xds.StockCaps | agent; w.listed {
		got.Caps = w.caps | agent
	}
	if got.Kind == Sidecar && got.Version != "" {
		got.Caps |= xds.CapDynamicForward
	}
	if got.ProxyConfig, err = expectedConfig(fields[proxyConfigKey]); err != nil {
		return Node{}, err
	}
	got.Metadata, got.Labels, got.Locality = strs, labels, cmp.Or(labelledLocality(labels), got.Locality)
	return got, nil
}

// expectedConfig returns the settings that Parse must read from a ProxyConfig.
func expectedConfig(v *structpb.Value) (*proxyconfig.Settings, error) {
	_, null := v.GetKind().(*structpb.Value_NullValue)
	switch {
	case v.GetKind() == nil || null:
		return nil, nil
	case v.GetStructValue() == nil:
		return nil, fmt.Errorf("%s is no object", proxyConfigKey)
	}
	less, config := &structpb.Struct{Fields: map[string]*structpb.Value{}}, &meshv1.ProxyConfig{}
	for _, key := range readOfProxyConfig {
		if of, is := v.GetStructValue().GetFields()[key]; is {
			less.Fields[key] = of
		}
	}
	text, err := protojson.Marshal(less)
	if err == nil {
		err = (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, config)
	}
	s, _ := proxyconfig.Of(config)
	return &s, err
}

func message(n *corev3.Node) []byte {
	raw, err := proto.Marshal(n)
	if err != nil {
		panic(err)
	}
	return raw
}

// same compares Parse's result for raw with the expected result, if protobuf can decode raw.
func same(t *testing.T, raw []byte) {
	t.Helper()
	var n corev3.Node
	if proto.Unmarshal(raw, &n) != nil {
		return
	}
	got, err := Parse(raw, "")
	want, wantErr := expected(&n)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%x: error %v, want %v", raw, err, wantErr)
	}
	if err == nil && !reflect.DeepEqual(got, want) {
		t.Fatalf("%x:\n%+v, want\n%+v", raw, got, want)
	}
	if id, err := ID(raw); err != nil || id != n.GetId() {
		t.Fatalf("%x: id %q %v, want %q", raw, id, err, n.GetId())
	}
}

// nodes returns encoded nodes in different encodings that protobuf can decode, by name.
func nodes(t testing.TB) map[string][]byte {
	t.Helper()
	json := func(s string) []byte {
		n := &corev3.Node{}
		if err := protojson.Unmarshal([]byte(s), n); err != nil {
			t.Fatal(err)
		}
		return message(n)
	}
	id := json(`{"id": "sidecar~~a.shop~"}`)
	meta := func(s string) []byte { return json(`{"metadata": ` + s + `}`) }
	bytes := func(number protowire.Number, b ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(b...))
	}
	labels := func(values ...[]byte) []byte {
		return bytes(nodeMetadata, bytes(structFields, bytes(entryKey, []byte("LABELS")), slices.Concat(values...)))
	}
	one := func(key, v string) []byte {
		return bytes(valueStruct, bytes(structFields, bytes(entryKey, []byte(key)), bytes(entryValue, bytes(valueString, []byte(v)))))
	}
	return map[string][]byte{
		"good": json(good), "stock": stock(t), "least": id,
		"null labels":                       json(`{"id": "sidecar~10.0.0.1~a.b~c", "metadata": {"LABELS": null, "INSTANCE_IPS": ","}}`),
		"metadata in two parts":             slices.Concat(id, meta(`{"NAME": "x", "NETWORK": "n1"}`), meta(`{"NETWORK": "n2", "OWNER": "o"}`)),
		"a string after a number":           slices.Concat(id, meta(`{"NETWORK": 7}`), meta(`{"NETWORK": "n2"}`)),
		"a number after a string":           slices.Concat(id, meta(`{"NETWORK": "n2"}`), meta(`{"NETWORK": 7}`)),
		"an object after a string":          slices.Concat(id, meta(`{"MINE": "n2", "LABELS": {"a": "b"}}`), meta(`{"MINE": {}, "LABELS": {"c": "d"}}`)),
		"labels twice in a value":           slices.Concat(id, labels(bytes(entryValue, one("a", "b"), one("c", "d")))),
		"labels in two values of an entry":  slices.Concat(id, labels(bytes(entryValue, one("a", "b")), bytes(entryValue, one("c", "d")))),
		"labels, then a list, then labels":  slices.Concat(id, labels(bytes(entryValue, one("a", "b"), bytes(valueList), one("c", "d")))),
		"labels without a value":            slices.Concat(id, labels()),
		"a label that is null, empty, long": json(`{"id": "sidecar~~a.shop~", "metadata": {"LABELS": {"a": null, "b": "", "` + strings.Repeat("k", 300) + `": "` + strings.Repeat("v", 300) + `"}}}`),
		"long values":                       json(`{"id": "sidecar~~a.shop~", "metadata": {"A": "` + strings.Repeat("v", 257) + `", "INSTANCE_IPS": "` + strings.Repeat("10.0.0.1,", 40) + `"}}`),
		"id of another wire type":           slices.Concat(id, protowire.AppendVarint(protowire.AppendTag(nil, nodeID, protowire.VarintType), 7)),
		"an extension with two names":       slices.Concat(id, bytes(nodeExtensions, bytes(1, []byte("istio.alpn")), bytes(1, []byte("istio.stats")))),
		"ProxyConfig in two parts":          slices.Concat(id, meta(`{"PROXY_CONFIG": {"tracing": {"sampling": 1}, "concurrency": 2}}`), meta(`{"PROXY_CONFIG": {"tracing": null, "proxyHeaders": {"server": {"value": "a"}}}}`)),
		"ProxyConfig after null":            json(`{"id": "sidecar~~a.shop~", "metadata": {"PROXY_CONFIG": null}}`),
		"nested":                            json(`{"id": "router~~a.shop~", "metadata": {"X": {"a": [{"b": [1, null, true, "c"]}]}}}`),
	}
}

func TestParseAsProtobuf(t *testing.T) {
	for name, raw := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			if err := proto.Unmarshal(raw, &corev3.Node{}); err != nil {
				t.Fatal(err)
			}
			same(t, raw)
		})
	}
}

// A malformed field that Parse reads is refused with an error that names the field.
func TestParseRefusesBytes(t *testing.T) {
	head := message(&corev3.Node{Id: "sidecar~~a.shop~"})
	in := func(numbers []protowire.Number, b []byte) []byte {
		for _, n := range slices.Backward(numbers) {
			b = protowire.AppendBytes(protowire.AppendTag(nil, n, protowire.BytesType), b)
		}
		return b
	}
	path := func(numbers ...protowire.Number) []protowire.Number { return numbers }
	metadata := path(nodeMetadata, structFields, entryValue)
	room := make([]byte, 1<<20)
	at := len(room)
	for range deepest + 1 { // lists in lists, from the innermost to the outermost
		for _, n := range path(listValues, valueList) {
			tag := protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.BytesType), uint64(len(room)-at))
			at -= copy(room[at-len(tag):], tag)
		}
	}
	deep := room[at:]
	cut, wrong := []byte{0x0a, 9, 'x'}, []byte("\xff\xfe")
	for name, c := range map[string]struct {
		tail []byte
		want string
	}{
		"a cut field":                  {cut, "node: field 1: not protobuf"},
		"an id that is not text":       {in(path(nodeID), wrong), "node.id: not UTF-8"},
		"a cluster that is not text":   {in(path(nodeCluster), wrong), "node.cluster: not UTF-8"},
		"cut metadata":                 {in(path(nodeMetadata), cut), "node.metadata: field 1: not protobuf"},
		"a key that is not text":       {in(path(nodeMetadata, structFields, entryKey), wrong), "node.metadata: not UTF-8"},
		"a value that is not text":     {in(append(metadata, valueString), wrong), "node.metadata: not UTF-8"},
		"a cut value":                  {in(metadata, cut), "node.metadata: field 1: not protobuf"},
		"a cut object":                 {in(append(metadata, valueStruct), cut), "node.metadata: field 1: not protobuf"},
		"text in a list, in an object": {in(append(metadata, valueStruct, structFields, entryValue, valueList, listValues, valueString), wrong), "node.metadata: not UTF-8"},
		"lists without end":            {in(metadata, deep), "node.metadata: too deep"},
	} {
		if _, err := Parse(append(slices.Clone(head), c.tail...), ""); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// FuzzParse: Parse returns for any bytes that protobuf can decode the node that protobuf decodes. It never panics, and
// each error names the field.
func FuzzParse(f *testing.F) {
	all := nodes(f)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f.Add(all[name])
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		same(t, raw)
		got, err := Parse(raw, "")
		if err == nil && (got.Namespace == "" || got.Name == "" || got.Domain == "") {
			t.Errorf("%q is taken as %+v", raw, got)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "node") {
			t.Errorf("%q: error %q does not name the field", raw, err)
		}
		if err == nil && !utf8.ValidString(got.ID) {
			t.Errorf("%q: id %q", raw, got.ID)
		}
	})
}

// A parsed node of a stock Envoy needs little memory, and strings that several nodes share are stored once.
func TestNodesAreSmall(t *testing.T) {
	const n = 100
	raws, one := make([][]byte, n), stock(t)
	for i := range raws { // a field that occurs twice has its last value
		pod := fmt.Sprintf("web-%d", i)
		raws[i] = append(slices.Clone(one), message(&corev3.Node{Id: "sidecar~10.1.0.7~" + pod + ".shop~shop.svc.cluster.local",
			Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"NAME": structpb.NewStringValue(pod)}}})...)
	}
	parse := func() (all []Node) {
		for _, raw := range raws {
			node, err := Parse(raw, "")
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, node)
		}
		return all
	}
	parse()
	var before, made, kept runtime.MemStats
	collect := func() {
		for range 3 { // pooled objects are freed by the second collection
			runtime.GC()
		}
	}
	collect()
	runtime.ReadMemStats(&before)
	all := parse()
	runtime.ReadMemStats(&made)
	collect()
	runtime.ReadMemStats(&kept)
	per := func(a, b uint64) float64 { return float64(int64(b-a)) / n }
	objects, bytes := per(before.Mallocs, made.Mallocs), per(before.TotalAlloc, made.TotalAlloc)
	held, heldBytes := per(before.HeapObjects, kept.HeapObjects), per(before.HeapAlloc, kept.HeapAlloc)
	t.Logf("%.0f objects, %.0f bytes to read one; it keeps %.0f objects, %.0f bytes", objects, bytes, held, heldBytes)
	if objects > 35 || bytes > 4500 {
		t.Errorf("%.0f objects, %.0f bytes to read a node", objects, bytes)
	}
	if held > 20 || heldBytes > 2500 {
		t.Errorf("a node keeps %.0f objects, %.0f bytes", held, heldBytes)
	}
	runtime.KeepAlive(all)
	runtime.KeepAlive(raws)
}

// The table of shared strings never has more entries than its limit, and no long strings.
func TestWordsAreBounded(t *testing.T) {
	v := vocabulary{most: 10}
	for i := range 100 {
		if want := fmt.Sprint(i); v.of([]byte(want)) != want {
			t.Fatal(want)
		}
		if len(v.known) > 10 {
			t.Fatalf("%d words", len(v.known))
		}
	}
	if long := strings.Repeat("x", longestWord+1); v.of([]byte(long)) != long || v.known[long] != "" {
		t.Error("a long word was kept")
	}
}
