package proxy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"navarch.io/navarch/push/xds"
)

func locality(zone string) *corev3.Locality { return &corev3.Locality{Zone: zone} }

// recorder is events as text.
type recorder struct{ got []string }

func (r *recorder) onResource(x resource) error {
	r.got = append(r.got, fmt.Sprintf("set %s %s %s %d", x.url, x.name, x.version, len(x.body)))
	return nil
}
func (r *recorder) onRemoved(name string) error { r.got = append(r.got, "removed "+name); return nil }
func (r *recorder) onEnd(url, nonce, system string, size int) error {
	r.got = append(r.got, fmt.Sprintf("end %s %s %s %d", url, nonce, system, size))
	return nil
}

func messages() []byte {
	var stream []byte
	for _, m := range []*discoveryv3.DeltaDiscoveryResponse{
		{TypeUrl: "t", Nonce: "1", SystemVersionInfo: "7", RemovedResources: []string{"gone"}, Resources: []*discoveryv3.Resource{
			{Name: "a", Version: "v", Resource: &anypb.Any{TypeUrl: "t", Value: bytes.Repeat([]byte("x"), 300)}},
			{Name: "b", Version: "w", Resource: &anypb.Any{TypeUrl: "t"}}}},
		{},
		{TypeUrl: "u", ControlPlane: &corev3.ControlPlane{Identifier: "me"}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			panic(err)
		}
		stream = append(stream, prefix(append(make([]byte, 5), b...))...)
	}
	return stream
}

// TestParserTakesAnyPieces cuts a stream of messages at every place, and into single bytes.
func TestParserTakesAnyPieces(t *testing.T) {
	stream := messages()
	want := []string{"set t a v 300", "set t b w 0", "removed gone",
		fmt.Sprintf("end t 1 7 %d", 5+len(stream)-5-5-5-len("\x22\x01u\x3a\x04\x0a\x02me")),
		"end    5", "end u   " + fmt.Sprint(5+len("\x22\x01u\x3a\x04\x0a\x02me"))}
	var r recorder
	var p parser
	if err := p.parse(stream, &r); err != nil || !slices.Equal(r.got, want) {
		t.Fatalf("%v %q\nwant %q", err, r.got, want)
	}
	for cut := range len(stream) {
		r, p = recorder{}, parser{}
		if err := p.parse(stream[:cut], &r); err != nil {
			t.Fatal(err)
		}
		if err := p.parse(stream[cut:], &r); err != nil || !slices.Equal(r.got, want) {
			t.Fatalf("cut at %d: %v %q", cut, err, r.got)
		}
	}
	r, p = recorder{}, parser{}
	for i := range stream {
		if err := p.parse(stream[i:i+1], &r); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(r.got, want) {
		t.Fatalf("byte by byte: %q", r.got)
	}
}

// FuzzParser feeds foreign bytes in two ways of cutting: the events must be the same.
func FuzzParser(f *testing.F) {
	f.Add(messages(), uint8(3))
	f.Add([]byte{0, 0, 0, 0, 3, 0x12, 0x7f, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8) {
		var whole, parts recorder
		var p, q parser
		one := p.parse(b, &whole)
		var two error
		for rest := b; len(rest) > 0 && two == nil; {
			n := min(int(cut)+1, len(rest))
			two = q.parse(rest[:n], &parts)
			rest = rest[n:]
		}
		if (one == nil) != (two == nil) && !(one == nil || two == nil) {
			t.Errorf("%v, in pieces %v", one, two)
		}
		if one == nil && two == nil && !slices.Equal(whole.got, parts.got) {
			t.Errorf("%q\nin pieces %q", whole.got, parts.got)
		}
	})
}

// TestRequestEncoding compares with the generated messages.
func TestRequestEncoding(t *testing.T) {
	r := request{url: "t", subscribe: []string{"a", "b"}, unsubscribe: []string{"c"}, nonce: "n", refusal: "no",
		more: [][]byte{appendClaim(nil, "x", "1")}}
	b := r.encode()
	for _, piece := range r.more {
		b = append(b, piece...)
	}
	var m discoveryv3.DeltaDiscoveryRequest
	if err := proto.Unmarshal(b[5:], &m); err != nil {
		t.Fatal(err)
	}
	if int(b[4]) != len(b)-5 || m.TypeUrl != "t" || !slices.Equal(m.ResourceNamesSubscribe, []string{"a", "b"}) ||
		m.ResourceNamesUnsubscribe[0] != "c" ||
		m.ResponseNonce != "n" || m.ErrorDetail.Code != 13 || m.ErrorDetail.Message != "no" || m.InitialResourceVersions["x"] != "1" {
		t.Errorf("%v", &m)
	}
}

// TestSetIsAMap compares random edits with a map, and checks that equal sets share their pages.
func TestSetIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var a, b set
	model := map[uint32]uint32{}
	for range 5000 {
		i, v := rng.Uint32N(500), rng.Uint32N(4)
		a.put(i, v)
		if model[i] = v; v == 0 {
			delete(model, i)
		}
		if a.get(i) != v || a.count != len(model) {
			t.Fatalf("%d: %d, want %d; count %d, want %d", i, a.get(i), v, a.count, len(model))
		}
	}
	n := 0
	for i, v := range a.all() {
		if n++; model[i] != v {
			t.Errorf("%d: %d, want %d", i, v, model[i])
		}
	}
	if n != len(model) {
		t.Errorf("%d of %d", n, len(model))
	}
	for i, v := range model {
		b.put(i, v)
	}
	b.seal()
	if !slices.Equal(a.pages, b.pages) {
		t.Error("equal sets do not share pages")
	}
}

func TestBitset(t *testing.T) {
	var b bitset
	if b.has(70) || b.drop(70) || !b.empty() || !b.add(70) || b.add(70) || !b.add(3) || !b.has(70) {
		t.Error("add and has")
	}
	if got := slices.Collect(b.all()); !slices.Equal(got, []uint32{3, 70}) {
		t.Error(got)
	}
	if !b.drop(70) || !b.drop(3) || b != nil {
		t.Error("an empty set keeps memory")
	}
}

// TestVersionsAreForgotten: a version without holders is removed after a while, a held one stays.
func TestVersionsAreForgotten(t *testing.T) {
	n := newNames()
	rec := n.name(xds.Endpoint, "a")
	fact := func() *facts { return &facts{} }
	kept, _ := n.acquire(rec, "kept", fact)
	for i := range 10 * keepVersions {
		v, first := n.acquire(rec, fmt.Sprint(i), fact)
		if !first {
			t.Errorf("version %d has a holder already", i)
		}
		v.release()
	}
	if again, first := n.acquire(rec, "kept", fact); again != kept || first || n.version(kept.id) != kept || len(rec.log) > 3*keepVersions {
		t.Errorf("%d versions, kept %v", len(rec.log), n.version(kept.id))
	}
	for i := range 3 * keepVersions { // all held: none may go
		n.acquire(rec, fmt.Sprint("held ", i), fact)
	}
	for i := range 3 * keepVersions {
		if v := rec.find(fmt.Sprint("held ", i)); v == nil || n.version(v.id) != v {
			t.Errorf("version %d was forgotten", i)
		}
	}
}

// TestLacks checks that lacks returns the requested names that are not held, in existing and in missing pages.
func TestLacks(t *testing.T) {
	var held set
	for _, index := range []uint32{1, 63, 70, 200} {
		held.put(index, index+1)
	}
	held.put(63, 0)
	var of, all bitset
	for _, index := range []uint32{1, 2, 63, 70, 130, 200, 700} {
		of.add(index)
	}
	var got []uint32
	for index := range held.lacks(of).all() {
		got = append(got, index)
	}
	if !slices.Equal(got, []uint32{2, 63, 130, 700}) {
		t.Errorf("%v", got)
	}
	for _, index := range []uint32{1, 70, 200} {
		all.add(index)
	}
	if without := held.lacks(all); without != nil {
		t.Errorf("nothing is lacking, but %v", without)
	}
}
