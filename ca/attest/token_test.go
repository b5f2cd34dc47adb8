package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc/metadata"
)

const kube = "https://kubernetes.default.svc.cluster.local"

var (
	now    = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock  = func() time.Time { return now }
	td     = spiffeid.RequireTrustDomainFromString("cluster.local")
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey  = sync.OnceValue(func() *ecdsa.PrivateKey { return newEC() })
)

func newEC() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// bound are the claims of a token as kube-apiserver makes it; change may spoil them. A nil value strikes a claim.
func bound(change map[string]any) map[string]any {
	c := map[string]any{
		"iss": kube, "sub": "system:serviceaccount:shop:web", "aud": []string{"istio-ca"}, "jti": "0b1f",
		"exp": now.Add(time.Hour).Unix(), "nbf": now.Unix(), "iat": now.Unix(),
		"kubernetes.io": map[string]any{
			"namespace": "shop", "serviceaccount": map[string]any{"name": "web", "uid": "u1"},
			"pod": map[string]any{"name": "web-1", "uid": "u2"}, "warnafter": now.Unix(),
		},
	}
	maps.Copy(c, change)
	for k, v := range change {
		if v == nil {
			delete(c, k)
		}
	}
	return c
}

func sign(key crypto.Signer, id string, content any) string {
	algorithm := jose.ES256
	if _, ok := key.(*rsa.PrivateKey); ok {
		algorithm = jose.RS256
	}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil))
	return must(must(signer.Sign(must(json.Marshal(content)))).CompactSerialize())
}

func jwks(keys ...jose.JSONWebKey) []byte {
	return must(json.Marshal(jose.JSONWebKeySet{Keys: keys}))
}

func jwk(id string, key crypto.Signer) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key.Public(), KeyID: id, Use: "sig"}
}

func verifier(t testing.TB, keys *Keys, change ...func(*TokensConfig)) *Tokens {
	t.Helper()
	cfg := TokensConfig{TrustDomain: td, Issuers: []TokenIssuer{{kube, "", keys}}, Now: clock}
	for _, f := range change {
		f(&cfg)
	}
	v, err := NewTokens(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func static(keys ...jose.JSONWebKey) *Keys { return must(StaticKeys(jwks(keys...))) }

func TestTokenAccepted(t *testing.T) {
	want := Caller{ID: spiffeid.RequireFromString("spiffe://cluster.local/ns/shop/sa/web"), Namespace: "shop", ServiceAccount: "web", By: ByToken, Pod: "web-1", PodUID: "u2", AccountUID: "u1"}
	v := verifier(t, static(jwk("r", rsaKey()), jwk("e", ecKey())))
	for name, token := range map[string]string{
		"RS256":               sign(rsaKey(), "r", bound(nil)),
		"ES256":               sign(ecKey(), "e", bound(nil)),
		"one audience":        sign(ecKey(), "e", bound(map[string]any{"aud": "istio-ca"})),
		"several audiences":   sign(ecKey(), "e", bound(map[string]any{"aud": []string{"vault", "istio-ca"}})),
		"clock a bit behind":  sign(ecKey(), "e", bound(map[string]any{"nbf": now.Add(9 * time.Minute).Unix(), "iat": now.Add(9 * time.Minute).Unix()})),
		"just ended (leeway)": sign(ecKey(), "e", bound(map[string]any{"exp": now.Add(-9 * time.Minute).Unix()})),
	} {
		for range 2 { // the second time from the cache
			got, err := v.Verify(t.Context(), token)
			ends, issued := got.NotAfter, got.Issued
			if got.NotAfter, got.Issued = (time.Time{}), (time.Time{}); err != nil || got != want || ends.IsZero() || issued.Before(now) {
				t.Errorf("%s: %+v, ends at %v, %v", name, got, ends, err)
			}
		}
	}
	unbound := bound(map[string]any{"kubernetes.io": map[string]any{"namespace": "shop", "serviceaccount": map[string]any{"name": "web"}}})
	got, err := v.Verify(t.Context(), sign(ecKey(), "e", unbound))
	want.Pod, want.PodUID, want.AccountUID, want.Issued, want.Token, got.NotAfter = "", "", "", now.UTC(), "0b1f", time.Time{}
	got.Issued = got.Issued.UTC()
	if err != nil || got != want {
		t.Errorf("without pod: %+v, %v", got, err)
	}
	if got, err := verifier(t, static(jwk("e", ecKey()))).Verify(t.Context(), sign(ecKey(), "", bound(nil))); err != nil || got.Namespace != "shop" {
		t.Errorf("no key id, one key: %+v, %v", got, err)
	}
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// forged returns a token signed with HMAC under data known to an attacker: the public key.
func forged(secret []byte) string {
	head := b64([]byte(`{"alg":"HS256","kid":"r"}`)) + "." + b64(must(json.Marshal(bound(nil))))
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(head))
	return head + "." + b64(m.Sum(nil))
}

type refusal struct {
	token string
	want  error
	says  string
}

func refusals() map[string]refusal {
	good := sign(rsaKey(), "r", bound(nil))
	head, rest, _ := strings.Cut(good, ".")
	content, signature, _ := strings.Cut(rest, ".")
	der := must(x509.MarshalPKIXPublicKey(rsaKey().Public()))
	other := b64(must(json.Marshal(bound(map[string]any{"sub": "system:serviceaccount:kube-system:admin"}))))
	with := func(change map[string]any) string { return sign(rsaKey(), "r", bound(change)) }
	self := jose.JSONWebKey{Key: newEC().Public(), KeyID: "mine"}
	embedded := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: newEC()}, &jose.SignerOptions{EmbedJWK: true}))
	return map[string]refusal{
		"garbage":              {"garbage", ErrMalformed, "compact form"},
		"dots":                 {"..", ErrDenied, ""},
		"many dots":            {strings.Repeat(".", 4000), ErrMalformed, ""},
		"JSON form":            {`{"payload":"` + content + `","protected":"` + head + `","signature":"` + signature + `"}`, ErrMalformed, ""},
		"not base64":           {head + ".!!." + signature, ErrMalformed, ""},
		"claims not JSON":      {sign(rsaKey(), "r", "text"), ErrMalformed, "claims cannot be read"},
		"oversized":            {good + strings.Repeat("A", 8<<10), ErrTooLarge, "at most 8192"},
		"alg none":             {b64([]byte(`{"alg":"none","kid":"r"}`)) + "." + content + ".", ErrAlgorithm, `"none"`},
		"alg None":             {b64([]byte(`{"alg":"None","kid":"r"}`)) + "." + content + "." + signature, ErrAlgorithm, `"None"`},
		"no alg":               {b64([]byte(`{"kid":"r"}`)) + "." + content + "." + signature, ErrDenied, ""},
		"HS256 with DER":       {forged(der), ErrAlgorithm, `"HS256"`},
		"HS256 with PEM":       {forged(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), ErrAlgorithm, `"HS256"`},
		"other algorithm":      {b64([]byte(`{"alg":"ES256","kid":"r"}`)) + "." + content + "." + signature, ErrSignature, ""},
		"RS512 on RS256":       {b64([]byte(`{"alg":"RS512","kid":"r"}`)) + "." + content + "." + signature, ErrSignature, ""},
		"no signature":         {head + "." + content + ".", ErrSignature, ""},
		"claims exchanged":     {head + "." + other + "." + signature, ErrSignature, ""},
		"other key, known id":  {sign(newEC(), "e", bound(nil)), ErrSignature, ""},
		"unknown key":          {sign(newEC(), "x", bound(nil)), ErrUnknownKey, `"x"`},
		"no key id, two keys":  {sign(ecKey(), "", bound(nil)), ErrUnknownKey, "names no key"},
		"key in the header":    {must(must(embedded.Sign(must(json.Marshal(bound(nil))))).CompactSerialize()), ErrUnknownKey, ""},
		"unknown extension":    {b64([]byte(`{"alg":"RS256","kid":"r","crit":["x"],"x":1}`)) + "." + content + "." + signature, ErrDenied, ""},
		"issuer":               {with(map[string]any{"iss": "https://evil"}), ErrIssuer, "https://evil"},
		"no issuer":            {with(map[string]any{"iss": nil}), ErrIssuer, `""`},
		"expired":              {with(map[string]any{"exp": now.Add(-11 * time.Minute).Unix()}), ErrExpired, "2026-03-01T11:49:00Z"},
		"no expiry":            {with(map[string]any{"exp": nil}), ErrMalformed, "no expiry"},
		"not yet":              {with(map[string]any{"nbf": now.Add(11 * time.Minute).Unix()}), ErrNotYet, "12:11:00Z"},
		"issued in the future": {with(map[string]any{"iat": now.Add(11 * time.Minute).Unix()}), ErrNotYet, "in the future"},
		"audience":             {with(map[string]any{"aud": []string{"vault"}}), ErrAudience, `["vault"], accepted are ["istio-ca"]`},
		"no audience":          {with(map[string]any{"aud": nil}), ErrAudience, ""},
		"audience a number":    {with(map[string]any{"aud": 5}), ErrMalformed, ""},
		"no Kubernetes claims": {with(map[string]any{"kubernetes.io": nil}), ErrIdentity, "kubernetes.io"},
		"subject differs":      {with(map[string]any{"sub": "system:serviceaccount:shop:admin"}), ErrIdentity, "shop:admin"},
		"namespace with slash": {with(map[string]any{"sub": "system:serviceaccount:a/sa/b:web", "kubernetes.io": map[string]any{"namespace": "a/sa/b", "serviceaccount": map[string]any{"name": "web"}}}), ErrIdentity, "a/sa/b"},
		"empty account":        {with(map[string]any{"sub": "system:serviceaccount:shop:", "kubernetes.io": map[string]any{"namespace": "shop"}}), ErrIdentity, ""},
		"key set as kid":       {sign(newEC(), string(must(self.MarshalJSON())), bound(nil)), ErrUnknownKey, ""},
	}
}

// Promise: security-workloads.md#tokens
func TestTokenRefused(t *testing.T) {
	v := verifier(t, static(jwk("r", rsaKey()), jwk("e", ecKey())))
	for name, tt := range refusals() {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				got, err := v.Verify(t.Context(), tt.token)
				if !errors.Is(err, tt.want) || !errors.Is(err, ErrDenied) || got != (Caller{}) {
					t.Fatalf("%+v, error %v, want %v", got, err, tt.want)
				}
				if !strings.Contains(err.Error(), tt.says) || len(err.Error()) > 600 {
					t.Errorf("error %q does not say %q", err, tt.says)
				}
				for _, part := range strings.Split(tt.token, ".") {
					if len(part) > 6 && strings.Contains(err.Error(), part) {
						t.Errorf("error shows a part of the token: %q", err)
					}
				}
			}
		})
	}
	if n := v.known.Len(); n != 0 {
		t.Errorf("%d refused tokens are remembered as verified", n)
	}
}

func TestBearer(t *testing.T) {
	v := verifier(t, static(jwk("e", ecKey())))
	token := sign(ecKey(), "e", bound(nil))
	tests := map[string]struct {
		headers []string
		want    error // nil: accepted
	}{
		"none":              {nil, ErrNone},
		"basic":             {[]string{"Basic abc"}, ErrNone},
		"no scheme":         {[]string{token}, ErrNone},
		"bearer":            {[]string{"Bearer " + token}, nil},
		"lower case":        {[]string{"bearer " + token}, nil},
		"after another":     {[]string{"Basic abc", "Bearer " + token}, nil},
		"twice":             {[]string{"Bearer " + token, "Bearer " + token}, nil},
		"empty":             {[]string{"Bearer "}, ErrMalformed},
		"two":               {[]string{"Bearer x", "Bearer " + token}, ErrMalformed},
		"newline in a line": {[]string{"Bearer " + token + "\n"}, nil},
	}
	for name, tt := range tests {
		ctx := metadata.NewIncomingContext(t.Context(), metadata.MD{"authorization": tt.headers})
		if _, err := v.Authenticate(ctx); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := v.Authenticate(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("no metadata: %v", err)
	}
}

func TestCacheIsBoundedAndEnds(t *testing.T) {
	at := now
	v := verifier(t, static(jwk("e", ecKey())), func(c *TokensConfig) {
		c.CacheSize = 4
		c.Now = func() time.Time { return at }
	})
	var tokens []string
	for i := range 10 {
		tokens = append(tokens, sign(ecKey(), "e", bound(map[string]any{"jti": fmt.Sprint(i)})))
		if _, err := v.Verify(t.Context(), tokens[i]); err != nil {
			t.Fatal(err)
		}
	}
	if n := v.known.Len(); n != 4 {
		t.Errorf("cache holds %d of 4", n)
	}
	at = now.Add(time.Hour + 10*time.Minute + time.Second)
	if _, err := v.Verify(t.Context(), tokens[9]); !errors.Is(err, ErrExpired) {
		t.Errorf("a remembered token outlives its end: %v", err)
	}
}

func TestTokensConfig(t *testing.T) {
	keys := static(jwk("e", ecKey()))
	for name, cfg := range map[string]TokensConfig{
		"no trust domain": {Issuers: []TokenIssuer{{kube, "", keys}}},
		"no issuer":       {TrustDomain: td},
		"nameless":        {TrustDomain: td, Issuers: []TokenIssuer{{"", "", keys}}},
		"keyless":         {TrustDomain: td, Issuers: []TokenIssuer{{kube, "", nil}}},
		"twice":           {TrustDomain: td, Issuers: []TokenIssuer{{kube, "a", keys}, {kube, "a", keys}}},
		"empty audience":  {TrustDomain: td, Issuers: []TokenIssuer{{kube, "", keys}}, Audiences: []string{""}},
		"negative cache":  {TrustDomain: td, Issuers: []TokenIssuer{{kube, "", keys}}, CacheSize: -1},
	} {
		if _, err := NewTokens(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestIssuersDoNotSpeakForEachOther: the key of one issuer under the name of another.
func TestIssuersDoNotSpeakForEachOther(t *testing.T) {
	v := verifier(t, static(jwk("r", rsaKey())), func(c *TokensConfig) {
		c.Issuers = append(c.Issuers, TokenIssuer{"https://other", "", static(jwk("e", ecKey()))})
	})
	if _, err := v.Verify(t.Context(), sign(ecKey(), "e", bound(nil))); !errors.Is(err, ErrUnknownKey) {
		t.Error(err)
	}
	if _, err := v.Verify(t.Context(), sign(ecKey(), "e", bound(map[string]any{"iss": "https://other"}))); err != nil {
		t.Error(err)
	}
}

func FuzzToken(f *testing.F) {
	for _, r := range refusals() {
		f.Add(r.token)
	}
	f.Add(sign(rsaKey(), "r", bound(nil)))
	v := verifier(f, static(jwk("r", rsaKey()), jwk("e", ecKey())))
	f.Fuzz(func(t *testing.T, token string) {
		got, err := v.Verify(t.Context(), token)
		if err == nil && got.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" {
			t.Fatalf("accepted as %s", got.ID)
		}
		if err != nil && !errors.Is(err, ErrDenied) {
			t.Fatalf("not the caller's fault? %v", err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	keys := static(jwk("r", rsaKey()), jwk("e", ecKey()))
	for name, token := range map[string]string{"RS256": sign(rsaKey(), "r", bound(nil)), "ES256": sign(ecKey(), "e", bound(nil))} {
		b.Run(name+"/cached", func(b *testing.B) {
			v := verifier(b, keys)
			b.ReportAllocs()
			for b.Loop() {
				must(v.Verify(b.Context(), token))
			}
		})
		b.Run(name+"/uncached", func(b *testing.B) {
			v := verifier(b, keys)
			b.ReportAllocs()
			for b.Loop() {
				must(v.verify(b.Context(), token, ""))
			}
		})
	}
}
