package cut

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	networkingv1 "istio.io/api/networking/v1alpha3"
)

const (
	hidden = "hunter2hunter2"
	jwt    = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0.c2ln"
	pem    = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEI" + hidden + "\n-----END EC PRIVATE KEY-----"
)

func TestKey(t *testing.T) {
	for name, want := range map[string]bool{"authorization": true, "X-Api-Key": true, "db_password": true, "clientSecret": true,
		"GITHUB_TOKEN": true, "set-cookie": true, "secretName": false, "token_header": false, "app": false, "tokenIssuer": false,
		"etcd-password-file": false, "credentialName": false, "jwks_uri": false, "key": false} {
		if Key(name) != want {
			t.Errorf("Key(%q) is %v", name, !want)
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"a " + pem + " b", "a [cut] b"},
		{"-----BEGIN PRIVATE KEY-----\\nMHc" + hidden, "[cut]"}, // of a text that was cut off
		{"-----BEGIN CERTIFICATE-----\nMIIB", "-----BEGIN CERTIFICATE-----\nMIIB"},
		{"header " + jwt + ".", "header [cut]."},
		{"Authorization: Bearer " + hidden, "Authorization: [cut] [cut]"},
		{"https://user:" + hidden + "@etcd:2379/a", "https://[cut]@etcd:2379/a"},
		{"https://etcd:2379/a@b", "https://etcd:2379/a@b"},
		{"time=1 msg=x password=" + hidden + " next=1", "time=1 msg=x password=[cut] next=1"},
		{`{"a": {"client_secret": "` + hidden + `", "b"`, `{"a": {"client_secret": "[cut]", "b"`}, // JSON that was cut off
		{`msg="{\"token\":\"` + hidden + `\"}"`, `msg="{\"token\":\"[cut]"}"`},
		{`{"kty":"oct","k":"` + hidden + `"}`, `{"kty":"oct","k":"[cut]"}`},
		{"outbound|80||token-service.shop.svc.cluster.local", "outbound|80||token-service.shop.svc.cluster.local"},
	} {
		if got := string(Text([]byte(c.text))); got != c.want && (strings.Contains(got, hidden) || !strings.HasPrefix(c.text, "Authorization")) {
			t.Errorf("%q became %q, want %q", c.text, got, c.want)
		}
	}
}

func TestMessage(t *testing.T) {
	filter, err := structpb.NewStruct(map[string]any{"name": "f", "typed_config": map[string]any{"token": hidden, "list": []any{"Basic " + hidden}}})
	if err != nil {
		t.Fatal(err)
	}
	header := &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: "authorization", Value: hidden}}
	inner, err := anypb.New(&routev3.RouteConfiguration{Name: "80", RequestHeadersToAdd: []*corev3.HeaderValueOption{header}})
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range map[string]proto.Message{
		"struct": filter,
		"any":    inner,
		"map": &networkingv1.VirtualService{Http: []*networkingv1.HTTPRoute{{Name: "r", Headers: &networkingv1.Headers{
			Request: &networkingv1.Headers_HeaderOperations{Set: map[string]string{"authorization": hidden, "x-plain": "kept"}}}}}},
		"match": &networkingv1.VirtualService{Http: []*networkingv1.HTTPRoute{{Match: []*networkingv1.HTTPMatchRequest{{
			Headers: map[string]*networkingv1.StringMatch{"x-auth": {MatchType: &networkingv1.StringMatch_Exact{Exact: hidden}}}}}}}},
		"form": &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(pem)}},
	} {
		before, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if raw, _ := proto.Marshal(m); !Suspects(raw) {
			t.Errorf("%s: %s is not suspected", name, before)
		}
		if !Message(m) {
			t.Errorf("%s: nothing was cut", name)
		}
		after, err := protojson.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(after), hidden) || len(after) == 0 {
			t.Errorf("%s: %s", name, after)
		}
	}
	plain := &networkingv1.VirtualService{Hosts: []string{"token-service"}, Http: []*networkingv1.HTTPRoute{{Name: "password reset"}}}
	if want := proto.CloneOf(plain); Message(plain) || !proto.Equal(plain, want) {
		t.Errorf("cut of %v", plain)
	}
}

func TestJSON(t *testing.T) {
	got := string(JSON([]byte(`{"a":{"password":"` + hidden + `","name":"Cookie","value":"` + hidden + `"},"n":12345678901234567890,"t":["` + jwt + `"]}`)))
	if strings.Contains(got, hidden) || strings.Contains(got, jwt) || !strings.Contains(got, "12345678901234567890") {
		t.Error(got)
	}
	if got := string(JSON([]byte(`not JSON password=` + hidden))); strings.Contains(got, hidden) {
		t.Error(got)
	}
	for _, after := range []string{"}", "]", "{}", "x"} {
		if got := string(JSON([]byte(`{"token":"` + hidden + `"}` + after))); strings.Contains(got, hidden) || !strings.HasSuffix(got, after) {
			t.Errorf("a text after the value: %s", got)
		}
	}
}

// Messages of unknown types are cleared if they contain a credential. The mark of one that was cut is no reason.
func TestUnknownType(t *testing.T) {
	for text, want := range map[string]bool{"Bearer " + hidden: true, "Bearer " + Cut: false, "token": false} {
		m := &anypb.Any{TypeUrl: "type.googleapis.com/unknown", Value: []byte(text)}
		if found := Message(m); found != want || (m.Value == nil) != want {
			t.Errorf("%q: %v, value %q", text, found, m.Value)
		}
	}
}

func TestMapIsCopied(t *testing.T) {
	m := map[string]string{"app": "web", "TOKEN": hidden, "COOKIE": hidden}
	got := Map(m)
	if m["TOKEN"] != hidden || got["TOKEN"] != Cut || got["COOKIE"] != Cut || got["app"] != "web" || len(got) != 3 {
		t.Errorf("%v of %v", got, m)
	}
}

func BenchmarkSuspects(b *testing.B) {
	text := []byte(strings.Repeat("outbound|8000|v2|reviews.backend.svc.cluster.local type.googleapis.com/envoy.config.route ", 1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if Suspects(text) {
			b.Fatal("it suspects nothing")
		}
	}
}
