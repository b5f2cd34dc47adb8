package agentapi

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

func names() []Name {
	return []Name{
		{Host: "web.shop.svc.cluster.local", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}, Registry: RegistryKubernetes, Shortname: "web", Namespace: "shop"},
		{Host: "*.example.org", Addresses: []netip.Addr{netip.MustParseAddr("240.240.0.1")}, Registry: "External"},
	}
}

func TestNamesAreReadAsTheyWereWritten(t *testing.T) {
	var body []byte
	for _, n := range names() {
		body = AppendName(body, n)
	}
	// A newer control plane may send more: name_info of a table, a number in between, alternative hosts of an entry.
	body = protowire.AppendVarint(protowire.AppendTag(body, 9, protowire.VarintType), 7)
	body = protowire.AppendString(protowire.AppendTag(body, 2, protowire.BytesType), "x")
	got, err := DecodeNames(&anypb.Any{TypeUrl: NameTableURL, Value: body})
	if diff := cmp.Diff(names(), got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil {
		t.Errorf("(- written, + read) %s %v", diff, err)
	}
}

// The bytes equal those of istiod's message (pkg/dns/proto/nds.proto): NameTable{table: {"a.b": {ips: ["1.2.3.4"],
// registry: "R"}}}.
func TestNamesOnTheWire(t *testing.T) {
	got := AppendName(nil, Name{Host: "a.b", Addresses: []netip.Addr{netip.MustParseAddr("1.2.3.4")}, Registry: "R"})
	want := "\x0a\x13" + "\x0a\x03a.b" + "\x12\x0c" + "\x0a\x071.2.3.4" + "\x12\x01R"
	if string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestNamesThatAreNone(t *testing.T) {
	upper := AppendName(nil, Name{Host: "UP.example.", Addresses: []netip.Addr{netip.MustParseAddr("::ffff:1.2.3.4")}})
	got, err := DecodeNames(&anypb.Any{TypeUrl: NameTableURL, Value: upper})
	if err != nil || len(got) != 1 || got[0].Host != "up.example" || !got[0].Addresses[0].Is4() {
		t.Errorf("%+v %v", got, err)
	}
	if got, err := DecodeNames(&anypb.Any{TypeUrl: NameTableURL, Value: AppendName(nil, Name{Host: "none.example"})}); err != nil || len(got) != 0 {
		t.Errorf("a name without an address: %+v %v", got, err)
	}
	for what, body := range map[string]*anypb.Any{"another type": {TypeUrl: OwnerURL}, "half of it": {TypeUrl: NameTableURL, Value: upper[:len(upper)-3]}, "no message": {TypeUrl: NameTableURL, Value: []byte("\xff\xff")}} {
		if _, err := DecodeNames(body); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

func FuzzDecodeNames(f *testing.F) {
	f.Add(AppendName(nil, names()[0]))
	f.Fuzz(func(t *testing.T, body []byte) {
		all, err := DecodeNames(&anypb.Any{TypeUrl: NameTableURL, Value: body})
		for _, n := range all {
			if err != nil || n.Host == "" || len(n.Addresses) == 0 {
				t.Errorf("%+v %v", n, err)
			}
		}
	})
}
