package agentapi

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

func pack(t testing.TB, m proto.Message) *anypb.Any {
	t.Helper()
	body, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// Agents and replicas of other versions read these: the names and encodings never change.
func TestWireForm(t *testing.T) {
	want, err := structpb.NewStruct(map[string]any{"address": "10.0.0.1:15012", "self": true})
	if err != nil {
		t.Fatal(err)
	}
	if got := (Owner{"10.0.0.1:15012", true}).Encode(); !proto.Equal(got, want) {
		t.Errorf("owner: %v", got)
	}
	trust := Trust{Roots: []byte("roots"), Lists: []byte("lists")}.Encode()
	if string(trust.TrustedCa.GetInlineBytes()) != "roots" || string(trust.Crl.GetInlineBytes()) != "lists" || !trust.OnlyVerifyLeafCertCrl {
		t.Errorf("trust: %v", trust)
	}
	if trust := (Trust{Roots: []byte("roots")}).Encode(); trust.Crl != nil || trust.OnlyVerifyLeafCertCrl {
		t.Errorf("trust without lists: %v", trust)
	}
	md := metadata.MD{}
	MinRevision{Store: "s", Revision: 42}.Encode(md)
	if !slices.Equal(md["navarch-revision"], []string{"42"}) || !slices.Equal(md["navarch-store"], []string{"s"}) {
		t.Errorf("minimum revision: %v", md)
	}
	header := metadata.MD{}
	EncodeStore(header, "")
	if len(header) != 0 {
		t.Errorf("a store that is not known: %v", header)
	}
	if EncodeStore(header, "s"); !slices.Equal(header["navarch-store"], []string{"s"}) {
		t.Errorf("store: %v", header)
	}
	if trailer := EncodeBehind(41); !slices.Equal(trailer["navarch-behind"], []string{"41"}) {
		t.Errorf("behind: %v", trailer)
	}
}

func TestDecodeOwner(t *testing.T) {
	fields := func(m map[string]any) *anypb.Any {
		s, err := structpb.NewStruct(m)
		if err != nil {
			t.Fatal(err)
		}
		return pack(t, s)
	}
	for name, c := range map[string]struct {
		body *anypb.Any
		want Owner
		err  string
	}{
		"other":     {fields(map[string]any{"address": "10.0.0.1:15012"}), Owner{Address: "10.0.0.1:15012"}, ""},
		"self":      {fields(map[string]any{"address": "[::1]:15012", "self": true}), Owner{"[::1]:15012", true}, ""},
		"stay":      {fields(map[string]any{"address": ""}), Owner{}, ""},
		"nothing":   {fields(nil), Owner{}, ""},
		"no port":   {fields(map[string]any{"address": "10.0.0.1"}), Owner{}, "want host:port"},
		"scheme":    {fields(map[string]any{"address": "unix:///run/x:1"}), Owner{}, "want host:port"},
		"no host":   {fields(map[string]any{"address": ":15012"}), Owner{}, "want host:port"},
		"no Struct": {pack(t, structpb.NewStringValue("x")), Owner{}, "mismatched message type"},
		"no body":   {nil, Owner{}, "nil source message"},
	} {
		got, err := DecodeOwner(c.body)
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDecodeTrust(t *testing.T) {
	got, err := DecodeTrust(pack(t, Trust{Roots: []byte("roots"), Lists: []byte("lists")}.Encode()))
	if err != nil || string(got.Roots) != "roots" || string(got.Lists) != "lists" {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err = DecodeTrust(pack(t, Owner{}.Encode())); err == nil {
		t.Errorf("another message: %+v", got)
	}
}

func TestDecodeMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		md   metadata.MD
		want MinRevision
	}{
		"nothing":     {nil, MinRevision{}},
		"both":        {metadata.Pairs(revisionHeader, "17", storeHeader, "abc"), MinRevision{Store: "abc", Revision: 17}},
		"no store":    {metadata.Pairs(revisionHeader, "17"), MinRevision{Revision: 17}},
		"garbage":     {metadata.Pairs(revisionHeader, "seventeen", storeHeader, "abc"), MinRevision{}},
		"negative":    {metadata.Pairs(revisionHeader, "-4"), MinRevision{}},
		"none":        {metadata.Pairs(revisionHeader, "0", storeHeader, "abc"), MinRevision{}},
		"too long":    {metadata.Pairs(revisionHeader, "99999999999999999999"), MinRevision{}},
		"place":       {metadata.Pairs(revisionHeader, "17", placeHeader, "ab.1.2"), MinRevision{Revision: 17, Place: "ab.1.2"}},
		"asks":        {metadata.Pairs(placeHeader, ""), MinRevision{}},
		"place alone": {metadata.Pairs(placeHeader, "ab.1.2"), MinRevision{Place: "ab.1.2"}},
		"a book":      {metadata.Pairs(revisionHeader, "17", placeHeader, strings.Repeat("x", 65)), MinRevision{Revision: 17}},
		"twice":       {metadata.Pairs(revisionHeader, "17", revisionHeader, "18"), MinRevision{}},
	} {
		if got, places := DecodeMinRevision(metadata.NewIncomingContext(t.Context(), c.md)); got != c.want || places != (len(c.md.Get(placeHeader)) == 1) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		md       metadata.MD
		revision int64
		ok       bool
	}{
		"another reason": {nil, 0, false}, "behind": {EncodeBehind(5), 5, true}, "nothing yet": {EncodeBehind(0), 0, true},
		"garbage": {metadata.Pairs(behindTrailer, "x"), 0, false}, "negative": {metadata.Pairs(behindTrailer, "-1"), 0, false},
	} {
		if revision, ok := DecodeBehind(c.md); revision != c.revision || ok != c.ok {
			t.Errorf("%s: %d, %v", name, revision, ok)
		}
	}
	if got := DecodeStore(metadata.Pairs(storeHeader, "s")); got != "s" {
		t.Errorf("store %q", got)
	}
}

// FuzzDecode decodes arbitrary input as each kind of message. An accepted message decodes to the same value after its
// encoding.
func FuzzDecode(f *testing.F) {
	for _, m := range []proto.Message{Owner{"10.0.0.1:15012", true}.Encode(), Owner{}.Encode(), Trust{Roots: []byte("r"), Lists: []byte("l")}.Encode(), &anypb.Any{}} {
		body := pack(f, m)
		f.Add(body.TypeUrl, body.Value, "17", "store")
	}
	f.Add("", []byte("x"), "-1", "")
	incoming := func(md metadata.MD) context.Context { return metadata.NewIncomingContext(context.Background(), md) }
	f.Fuzz(func(t *testing.T, url string, value []byte, revision, store string) {
		body := &anypb.Any{TypeUrl: url, Value: value}
		if o, err := DecodeOwner(body); err == nil {
			if again, err := DecodeOwner(pack(t, o.Encode())); err != nil || again != o {
				t.Errorf("%+v became %+v, %v", o, again, err)
			}
		}
		if trust, err := DecodeTrust(body); err == nil {
			again, err := DecodeTrust(pack(t, trust.Encode()))
			if err != nil || string(again.Roots) != string(trust.Roots) || string(again.Lists) != string(trust.Lists) {
				t.Errorf("%+v became %+v, %v", trust, again, err)
			}
		}
		if min, _ := DecodeMinRevision(incoming(metadata.Pairs(revisionHeader, revision, storeHeader, store))); min.Revision != 0 {
			md := metadata.MD{}
			min.Encode(md)
			if again, places := DecodeMinRevision(incoming(md)); again != min || !places {
				t.Errorf("%+v became %+v", min, again)
			}
		}
		if at, ok := DecodeBehind(metadata.Pairs(behindTrailer, revision)); ok {
			if again, ok := DecodeBehind(EncodeBehind(at)); !ok || again != at {
				t.Errorf("%d became %d", at, again)
			}
		}
	})
}

// AppendVersion and DecodeVersion are inverse, and the texts of other control planes are refused.
func TestVersion(t *testing.T) {
	for _, place := range []string{"", "00000000000000ab.17.3"} {
		if revision, got, ok := DecodeVersion(string(AppendVersion(nil, 42, place))); !ok || revision != 42 || got != place {
			t.Errorf("%q: %d, %q, %t", place, revision, got, ok)
		}
	}
	for _, other := range []string{"", "2026-11-21/4", "-1 ab", " ab", "1 " + strings.Repeat("x", 65)} {
		if revision, place, ok := DecodeVersion(other); ok || revision != 0 || place != "" {
			t.Errorf("%q: %d, %q", other, revision, place)
		}
	}
}

func TestDecodeBootstrap(t *testing.T) {
	for name, c := range map[string]struct {
		fields map[string]any
		err    string
	}{
		"none":         {nil, ""},
		"no object":    {map[string]any{"patches": []any{map[string]any{"from": "f", "merge": "x"}}}, "without an object"},
		"not an entry": {map[string]any{"patches": []any{"x"}}, "without an object"},
		"no list":      {map[string]any{"patches": "x"}, ""},
	} {
		s, err := structpb.NewStruct(c.fields)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeBootstrap(pack(t, s))
		if len(got) != 0 || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := DecodeBootstrap(pack(t, structpb.NewStringValue("x"))); err == nil {
		t.Error("another message is taken")
	}
}
