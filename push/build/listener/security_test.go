package listener

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	meshv1 "istio.io/api/mesh/v1alpha1"
	securityv1 "istio.io/api/security/v1beta1"
	"sigs.k8s.io/yaml"

	"navarch.io/navarch/push/build/extauthz"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/intern"
	"navarch.io/navarch/store/model"
)

// policyOf returns a policy of the namespace shop.
func policyOf(t testing.TB, kind model.Kind, name string, dry model.DryRun, text string) *model.Policy {
	t.Helper()
	var m proto.Message = &securityv1.AuthorizationPolicy{}
	if kind == model.KindRequestAuthentication {
		m = &securityv1.RequestAuthentication{}
	}
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = protojson.Unmarshal(raw, m)
	}
	if err == nil {
		raw, err = proto.Marshal(m)
	}
	if err != nil {
		t.Fatal(text, err)
	}
	r, err := model.New(model.Key{Kind: kind, Namespace: "shop", Name: name}, 0, &model.PolicySpec{Istio: raw, DryRun: dry})
	if err != nil {
		t.Fatal(err)
	}
	return r.(*model.Policy)
}

// issuer signs tokens.
type issuer struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	keys string // its key set
}

func newIssuer(t testing.TB) issuer {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "k", Algorithm: "ES256"}}})
	if err != nil {
		t.Fatal(err)
	}
	return issuer{t, key, string(raw)}
}

func (i issuer) token(claims map[string]any) string {
	i.t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.key, KeyID: "k"}}, nil)
	if err != nil {
		i.t.Fatal(err)
	}
	all := map[string]any{"iss": "https://issuer.test/a", "sub": "somebody", "aud": "shop", "exp": time.Now().Add(time.Hour).Unix()}
	for name, v := range claims {
		all[name] = v
	}
	text, err := jwt.Signed(signer).Claims(all).Serialize()
	if err != nil {
		i.t.Fatal(err)
	}
	return text
}

// asked sends a request and returns the status and body of the response.
func asked(t testing.TB, port uint32, path, token string) string {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d%s", port, path), nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

// judgeOf is a gRPC authorization server that reads each decision from a channel: true refuses the connection.
type judgeOf struct {
	authv3.UnimplementedAuthorizationServer
	refuses chan bool
}

func (j *judgeOf) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	code := int32(0)
	if <-j.refuses {
		code = 7 // PERMISSION_DENIED
	}
	return &authv3.CheckResponse{Status: &status.Status{Code: code}}, nil
}

// guarded is a real Envoy with policies for two ports. The HTTP port has tokens of an issuer, rules, a dry run, and
// CUSTOM policies of an HTTP provider and of a provider that does not exist. The TCP port has a gRPC provider.
type guarded struct {
	web, tcp uint32
	required uint32    // where a token is required
	refuses  chan bool // what the latter says to the next connection
	envoy    *envoytest.Envoy
}

func guard(t *testing.T, us issuer) guarded {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "app ", r.Header.Get("X-Sub"), r.Header.Get("X-By"))
	}))
	t.Cleanup(app.Close)
	asker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-By", "asker")
		if !strings.HasPrefix(r.URL.Path, "/check/asked/yes") {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(asker.Close)
	server, refuses := grpc.NewServer(), make(chan bool, 1)
	authv3.RegisterAuthorizationServer(server, &judgeOf{refuses: refuses})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	echo := serve(t, func(c net.Conn) { _, _ = io.Copy(c, c) })

	c := stock(t)
	c.Mesh = mesh(t, func(m *meshv1.MeshConfig) {
		m.ExtensionProviders = []*meshv1.MeshConfig_ExtensionProvider{
			{Name: "asker", Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyExtAuthzHttp{EnvoyExtAuthzHttp: &meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationHttpProvider{
				Service: "asker.test", Port: 80, PathPrefix: "/check", HeadersToUpstreamOnAllow: []string{"x-by"}}}},
			{Name: "judge", Provider: &meshv1.MeshConfig_ExtensionProvider_EnvoyExtAuthzGrpc{EnvoyExtAuthzGrpc: &meshv1.MeshConfig_ExtensionProvider_EnvoyExternalAuthorizationGrpcProvider{
				Service: "judge.test", Port: 80}}},
		}
	})
	authorization := func(name string, dry model.DryRun, text string) *model.Policy {
		return policyOf(t, model.KindAuthorizationPolicy, name, dry, text)
	}
	rules := policyLists.List(
		authorization("rules", 0, `{rules: [{to: [{operation: {paths: [/open, '/asked/*', /tried, /missing, '/a/{*}/c']}}]},
			{from: [{source: {requestPrincipals: ['https://issuer.test/a/some*']}}], to: [{operation: {paths: [/principal]}}]},
			{to: [{operation: {paths: [/group]}}], when: [{key: 'request.auth.claims[groups]', values: [admin]}]},
			{to: [{operation: {paths: [/nested]}}], when: [{key: 'request.auth.claims[realm][roles]', values: [admin, 'own*'], notValues: [banned]}]},
			{to: [{operation: {paths: [/audience]}}], when: [{key: request.auth.audiences, values: [shop]}]}]}`),
		authorization("tried", model.DryRun_DRY_RUN_DENY, "{action: AUDIT, rules: [{to: [{operation: {paths: [/tried]}}]}]}"),
		authorization("asked", 0, "{action: CUSTOM, provider: {name: asker}, rules: [{to: [{operation: {paths: ['/asked/*']}}]}]}"),
		authorization("missing", 0, "{action: CUSTOM, provider: {name: missing}, rules: [{to: [{operation: {paths: [/missing]}}]}]}"))
	raw := policyLists.List(authorization("raw", 0, "{action: CUSTOM, provider: {name: judge}, rules: [{}]}"))
	tokens := policyLists.List(policyOf(t, model.KindRequestAuthentication, "tokens", 0, fmt.Sprintf(`{jwtRules: [{issuer: 'https://issuer.test/a', audiences: [shop], jwks: '%s',
		outputClaimToHeaders: [{header: x-sub, claim: sub}]}, {issuer: 'https://unknown.test', jwksUri: 'https://unknown.test/keys'}]}`, us.keys)))
	who := authorizerLists.List(extauthz.Authorizer{Provider: "asker", Host: "asker.test"}, extauthz.Authorizer{Provider: "judge", Host: "judge.test"},
		extauthz.Authorizer{Provider: "missing", Wrong: "there is none"})
	one := "jwks: '" + us.keys + "'"
	must := policyLists.List(policyOf(t, model.KindRequestAuthentication, "must", 0, fmt.Sprintf(`{jwtRules: [{issuer: 'https://issuer.test/a', presence: REQUIRED, %s},
		{issuer: 'https://issuer.test/param', fromParams: [token], %s}]}`, one, one)))
	web, tcp, required := freePort(t), freePort(t), freePort(t)
	_, first := build(t, Ingress{Common: c, Name: "web", Bind: "127.0.0.1", Policies: rules, Authentications: tokens, Authorizers: who,
		Inner: InboundPort{Port: web, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "app", Host: "web.shop", ServicePort: 80}})
	_, second := build(t, Ingress{Common: c, Name: "raw", Bind: "127.0.0.1", Policies: raw, Authorizers: who,
		Inner: InboundPort{Port: tcp, Protocol: model.Protocol_PROTOCOL_TCP, Cluster: "echo", Host: "raw.shop", ServicePort: 90}})
	_, third := build(t, Ingress{Common: c, Name: "must", Bind: "127.0.0.1", Authentications: must,
		Inner: InboundPort{Port: required, Protocol: model.Protocol_PROTOCOL_HTTP, Cluster: "app", Host: "must.shop", ServicePort: 80}})
	portOf := func(s *httptest.Server) int { return s.Listener.Addr().(*net.TCPAddr).Port }
	judge := xds.OutboundCluster(80, "", "judge.test")
	b := fold(t, inboundRoutes("r", "v", "app", "o", false), map[string]int{"app": portOf(app), "echo": echo, xds.OutboundCluster(80, "", "asker.test"): portOf(asker), judge: l.Addr().(*net.TCPAddr).Port}, first, second, third)
	for _, cluster := range b["static_resources"].(map[string]any)["clusters"].([]map[string]any) {
		if cluster["name"] == judge {
			cluster["typed_extension_protocol_options"] = map[string]any{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": map[string]any{
				"@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": map[string]any{"http2_protocol_options": map[string]any{}}}}
		}
	}
	g := guarded{web, tcp, required, refuses, envoytest.Start(t, b)}
	g.envoy.Live()
	return g
}

// Policies in a real Envoy: a token is verified, and rules use its claims; a provider authorises the requests of a
// CUSTOM policy over HTTP and gRPC; a provider that cannot be reached refuses; a dry run refuses nothing and is
// counted.
// Promise: security-tenants.md#external-authorisation, security-tenants.md#key-sets
func TestPoliciesThroughEnvoy(t *testing.T) {
	us, them := newIssuer(t), newIssuer(t)
	g := guard(t, us)
	for name, c := range map[string]struct{ path, token, want string }{
		"no token":                         {"/open", "", "200 app "},
		"a good token":                     {"/open", us.token(nil), "200 app somebody"},
		"signed by somebody else":          {"/open", them.token(nil), "401"},
		"too late":                         {"/open", us.token(map[string]any{"exp": 1}), "401"},
		"for somebody else":                {"/open", us.token(map[string]any{"aud": "other"}), "403"},
		"of an issuer whose keys are away": {"/open", us.token(map[string]any{"iss": "https://unknown.test"}), "401"},
		"a principal":                      {"/principal", us.token(nil), "200"},
		"another principal":                {"/principal", us.token(map[string]any{"sub": "nobody"}), "403"},
		"a principal, no token":            {"/principal", "", "403"},
		"a claim that is text":             {"/group", us.token(map[string]any{"groups": "admin"}), "200"},
		"a claim that is a list":           {"/group", us.token(map[string]any{"groups": []string{"x", "admin"}}), "200"},
		"another value":                    {"/group", us.token(map[string]any{"groups": []string{"x", "admins"}}), "403"},
		"no such claim":                    {"/group", us.token(nil), "403"},
		"a claim within one":               {"/nested", us.token(map[string]any{"realm": map[string]any{"roles": []string{"owner"}}}), "200"},
		"that, and one that is not to be":  {"/nested", us.token(map[string]any{"realm": map[string]any{"roles": []string{"owner", "banned"}}}), "403"},
		"an audience":                      {"/audience", us.token(nil), "200"},
		"a template":                       {"/a/b/c", "", "200"},
		"no template":                      {"/a/b/b/c", "", "403"},
		"asked, yes":                       {"/asked/yes", "", "200 app asker"},
		"asked, no":                        {"/asked/no", "", "418"},
		"nobody can be asked":              {"/missing", "", "403"},
		"tried":                            {"/tried", "", "200"},
	} {
		if got := asked(t, g.web, c.path, c.token); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	param := us.token(map[string]any{"iss": "https://issuer.test/param"})
	for name, c := range map[string]struct{ path, token, want string }{
		"required, no token":                  {"/", "", "401"},
		"required, a good token":              {"/", us.token(nil), "200"},
		"required, signed by somebody else":   {"/", them.token(nil), "401"},
		"required, an optional one alone":     {"/?token=" + param, "", "401"},
		"required, an optional one too":       {"/?token=" + param, us.token(nil), "200"},
		"required, and a bad one that may be": {"/?token=" + them.token(map[string]any{"iss": "https://issuer.test/param"}), us.token(nil), "401"},
	} {
		if got := asked(t, g.required, c.path, c.token); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, refuse := range []bool{false, true} {
		g.refuses <- refuse
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", g.tcp))
		if got := exchange(t, conn, err, "ping", 4); (got == "ping") == refuse {
			t.Errorf("asked over gRPC, refused %v: %q", refuse, got)
		}
	}
	stats, err := envoytest.Stats(g.envoy.Admin)
	if err != nil {
		t.Fatal(err)
	}
	counted := 0
	for name, n := range stats {
		if strings.Contains(name, "istio_dry_run_deny_") && strings.HasSuffix(name, "shadow_denied") {
			counted += n
		}
	}
	if counted != 1 {
		t.Errorf("the dry run has counted %d requests", counted)
	}
}

var (
	policyLists     intern.Table[*model.Policy]
	authorizerLists intern.Table[extauthz.Authorizer]
)
