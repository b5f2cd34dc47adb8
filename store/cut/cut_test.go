package cut

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
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
		"etcd-password-file": false, "credentialName": false, "jwks_uri": false, "key": false,
		"db_pwd": true, "passPhrase": true, "pass phrase": true, "x-session-id": true, "x-key": true, "x-honeycomb-team": true,
		"sessionAffinity": false} {
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

// The first part of each text stays, the second one is cut, and the third one stays.
var examples = map[string][][3]string{
	"private key in PEM": {{"a ", pem, " b"}},
	"PEM in base64, which begins 0, 1 or 2 bytes before it": {{"", base64.StdEncoding.EncodeToString([]byte(pem)), ""},
		{"", base64.StdEncoding.EncodeToString([]byte("\n" + pem)), " x"}, {"a ", base64.StdEncoding.EncodeToString([]byte("xy" + pem)), ""}},
	"private key in PEM, in hexadecimal": {{"", hex.EncodeToString([]byte(pem)), ""},
		{"x ", strings.ToUpper(hex.EncodeToString([]byte(pem))), " y"}},
	"JSON web token":                     {{"header ", jwt, " x"}},
	"scheme of the header authorization": {{"Bearer ", hidden, ""}, {"x: basic ", hidden, ", y"}, {"ApiKey%20", hidden, ""}},
	"scheme Token, as the whole value":   {{"Token ", hidden, ""}},
	"user and password in a URL":         {{"https://", "user:" + hidden, "@etcd:2379/a"}, {"redis://", ":" + hidden, "@h"}},
	"user and password before a host": {{"", "user:" + hidden, "@tcp(h)/db"}, {"dsn=", "user:" + hidden, "@shard.example"},
		{"", "user:" + hidden, "@a.example"}},
	"parameter of a query": {{"/x?access_token=", hidden, "&a=b"}, {"https://h/x?a=b&token=", hidden, ""}, {"?sig=", hidden, "#x"},
		{"/?X-Amz-Signature=", hidden, ""}, {"?a=b\\u0026client_secret=", hidden, ""}, {"?key=", hidden, ""}},
	"key of a symmetric JSON web key": {{`{"kty":"oct","k":"`, hidden, `"}`}},
	"token of GitHub":                 {{"x ", "ghp_" + hidden + hidden, " y"}, {"", "github_pat_" + hidden + hidden, ""}},
	"token of GitLab":                 {{"", "glpat-" + hidden + hidden, ""}},
	"token of Slack":                  {{"", "xoxb-123-" + hidden, ""}},
	"key of AWS":                      {{"x ", "AKIAIOSFODNN7EXAMPLE", " y"}},
	"key of Google":                   {{"", "AIzaSyA" + hidden + hidden, ""}, {"", "ya29." + hidden + hidden, ""}},
	"token of Vault":                  {{"", "hvs." + hidden + hidden, ""}},
	"key of Stripe":                   {{"", "sk_live_" + hidden, ""}},
}

// Each form of the table has an example; the form alone cuts it, String finds its word, and Text cuts it, too.
func TestForms(t *testing.T) {
	for _, f := range forms {
		if len(examples[f.name]) == 0 {
			t.Errorf("%s: no example", f.name)
		}
		for _, e := range examples[f.name] {
			text, want := e[0]+e[1]+e[2], e[0]+Cut+e[2]
			if got := f.text.ReplaceAllString(text, "${1}"+Cut+"${2}"); got != want {
				t.Errorf("%s: %q became %q, want %q", f.name, text, got, want)
			}
			if got := String(text); strings.Contains(got, e[1]) || !Suspects([]byte("\x12\x05"+text)) {
				t.Errorf("%s: %q became %q", f.name, text, got)
			}
			if got := string(Text([]byte(text))); strings.Contains(got, e[1]) {
				t.Errorf("%s: %q became %q", f.name, text, got)
			}
		}
	}
	for _, plain := range []string{"proxyv2:1.29@sha256:0123456789abcdef", "/x?page=2&sort=token", "token bucket",
		"token service.shop is away", "team@shop.example", "outbound|80||a.shop.svc.cluster.local", "12:30 by a@b.example", "asia-east1",
		"spiffe://cluster.local/ns/a/sa/b"} {
		if got := String(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}

// A message or an object under the key of a credential is cut as a whole, but for the name of a file.
func TestWhole(t *testing.T) {
	source := &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: hidden}}
	raw := &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(hidden)}}
	file := &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: "/etc/key.pem"}}
	m := &tlsv3.CommonTlsContext{TlsCertificates: []*tlsv3.TlsCertificate{{Password: source, PrivateKey: file}, {Password: raw}}}
	packed, err := anypb.New(m)
	if err != nil {
		t.Fatal(err)
	}
	if outer, err := proto.Marshal(packed); err != nil || !Suspects(outer) || !Message(m) {
		t.Errorf("nothing was cut: %v", err)
	}
	if !Message(packed) || strings.Contains(string(packed.Value), hidden) {
		t.Errorf("%q in an Any", packed.Value)
	}
	first, second := m.TlsCertificates[0], m.TlsCertificates[1]
	if first.Password.GetInlineString() != Cut || string(second.Password.GetInlineBytes()) != Cut ||
		first.PrivateKey.GetFilename() != "/etc/key.pem" {
		t.Errorf("%v", m)
	}
	got := string(JSON([]byte(`{"password":{"inline_string":"` + hidden + `","a":{"b":["` + hidden + `"]},"filename":"f"},` +
		`"db_token":{"inlineBytes":"` + hidden + `"},"token_bucket":{"fill_interval":"60s"},"cookie":{"name":"user"}}`)))
	for _, kept := range []string{`"f"`, `"60s"`, `"user"`} {
		if !strings.Contains(got, kept) || strings.Contains(got, hidden) {
			t.Errorf("%s: want %s", got, kept)
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
