package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestMint(t *testing.T) {
	i, err := NewIssuer("https://navarch", ecKey(), clock)
	if err != nil {
		t.Fatal(err)
	}
	at := now
	own, err := i.Verifier()
	if err != nil {
		t.Fatal(err)
	}
	v := verifier(t, static(jwk("r", rsaKey())), func(c *TokensConfig) {
		c.Issuers = append(c.Issuers, own)
		c.Now = func() time.Time { return at }
	})
	token, end, err := i.Mint("shop", "web", "istio-ca", time.Hour)
	if err != nil || !end.Equal(now.Add(time.Hour)) {
		t.Fatal(end, err)
	}
	if _, end, err := i.Mint("shop", "web", "istio-ca", time.Hour+time.Second/2); err != nil || !end.Equal(now.Add(time.Hour)) {
		t.Errorf("the end has a fraction that the token lacks: %v, %v", end, err)
	}
	got, err := v.Verify(t.Context(), token)
	if err != nil || got.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" || got.By != ByToken {
		t.Errorf("%+v, %v", got, err)
	}
	if bound, _, _ := i.MintBound("shop", "web", "web-1", "istio-ca", time.Hour); must(v.Verify(t.Context(), bound)).Pod != "web-1" || got.Pod != "" {
		t.Error("a token that is bound to a Pod is not, or one that is not is")
	}
	if again, _, _ := i.Mint("shop", "web", "istio-ca", time.Hour); again == token {
		t.Error("two tokens are one")
	}
	other, _, err := i.Mint("shop", "web", "vault", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), other); !errors.Is(err, ErrAudience) {
		t.Error(err)
	}
	at = end.Add(10*time.Minute + time.Second)
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrExpired) {
		t.Error(err)
	}
	// A replica with the same key issues tokens that this one verifies; no other key does.
	if twin := must(NewIssuer("https://navarch", ecKey(), clock)); string(twin.JWKS()) != string(i.JWKS()) || twin.Name() != i.Name() {
		t.Error("the same key gives another key set")
	}
	stranger, _, _ := must(NewIssuer("https://navarch", newEC(), clock)).Mint("shop", "web", "istio-ca", time.Hour)
	if _, err := v.Verify(t.Context(), stranger); !errors.Is(err, ErrUnknownKey) {
		t.Error(err)
	}
}

func TestMintRefused(t *testing.T) {
	i := must(NewIssuer("https://navarch", ecKey(), nil))
	for name, try := range map[string]func() (string, time.Time, error){
		"namespace":       func() (string, time.Time, error) { return i.Mint("a/b", "web", "istio-ca", time.Hour) },
		"empty namespace": func() (string, time.Time, error) { return i.Mint("", "web", "istio-ca", time.Hour) },
		"account":         func() (string, time.Time, error) { return i.Mint("shop", "..", "istio-ca", time.Hour) },
		"audience":        func() (string, time.Time, error) { return i.Mint("shop", "web", "", time.Hour) },
		"no lifetime":     func() (string, time.Time, error) { return i.Mint("shop", "web", "istio-ca", 0) },
		"too long":        func() (string, time.Time, error) { return i.Mint("shop", "web", "istio-ca", MaxMintTTL+1) },
	} {
		if token, _, err := try(); err == nil || token != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey(), "P-384": p384, "none": nil} {
		if _, err := NewIssuer("x", key, nil); err == nil {
			t.Errorf("key %s accepted", name)
		}
	}
	if _, err := NewIssuer("", ecKey(), nil); err == nil {
		t.Error("no name accepted")
	}
}

func TestIssuerPrintsSealed(t *testing.T) {
	i := must(NewIssuer("https://navarch", ecKey(), nil))
	for _, f := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if s := fmt.Sprintf(f, i); !strings.Contains(s, "[sealed]") {
			t.Errorf("%s: %s", f, s)
		}
	}
}
