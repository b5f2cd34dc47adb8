package attest

import (
	"context"
	"errors"
	"testing"
	"time"
)

type review func(token string, audiences []string) (Reviewed, error)

func (r review) Review(_ context.Context, token string, audiences []string) (Reviewed, error) {
	return r(token, audiences)
}

// Promise: security-workloads.md#tokens
func TestReviewer(t *testing.T) {
	asked := 0
	v := verifier(t, static(jwk("e", ecKey())), func(c *TokensConfig) {
		c.Reviewer = review(func(token string, audiences []string) (Reviewed, error) {
			if asked++; len(audiences) != 1 || audiences[0] != "istio-ca" || token == "" {
				t.Errorf("asked about %v", audiences)
			}
			if asked > 1 {
				return Reviewed{}, ErrUnavailable
			}
			return Reviewed{Namespace: "shop", ServiceAccount: "web", Pod: "web-1", Cluster: "east"}, nil
		})
	})
	token := sign(ecKey(), "e", bound(map[string]any{"iss": "elsewhere"}))
	if got, err := v.Verify(t.Context(), token); err != nil || got.ID.String() != "spiffe://cluster.local/ns/shop/sa/web" || got.By != ByToken ||
		got.Cluster != "east" || got.PodUID != "u2" || !got.NotAfter.Equal(now.Add(time.Hour)) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	for _, token := range []string{sign(newEC(), "e", bound(nil)), sign(newEC(), "x", bound(nil)), "x"} {
		if _, err := v.Verify(t.Context(), token); !errors.Is(err, ErrDenied) {
			t.Error(err)
		}
	}
	elsewhere := func(change map[string]any) string {
		change["iss"] = "elsewhere"
		return sign(ecKey(), "e", bound(change))
	}
	for name, bad := range map[string]string{"without an end": elsewhere(map[string]any{"exp": nil}), "without an audience": elsewhere(map[string]any{"aud": nil}),
		"that has ended": elsewhere(map[string]any{"exp": now.Add(-time.Hour).Unix()}), "for others": elsewhere(map[string]any{"aud": []string{"vault"}}),
		"of an old Secret": elsewhere(map[string]any{"kubernetes.io": nil})} {
		if _, err := v.Verify(t.Context(), bad); !errors.Is(err, ErrDenied) {
			t.Errorf("a token %s: %v", name, err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times: what was refused here is refused", asked)
	}
}

// A review must name the identity that the token claims; otherwise the token is refused.
// Promise: security-workloads.md#tokens
func TestReviewOfSomebodyElse(t *testing.T) {
	for _, r := range []Reviewed{{Namespace: "shop", ServiceAccount: "admin", Pod: "web-1"}, {Namespace: "shop", ServiceAccount: "web"}, {Namespace: "other", ServiceAccount: "web", Pod: "web-1"}} {
		v := verifier(t, static(jwk("e", ecKey())), func(c *TokensConfig) {
			c.Reviewer = review(func(string, []string) (Reviewed, error) { return r, nil })
		})
		if _, err := v.Verify(t.Context(), sign(ecKey(), "e", bound(map[string]any{"iss": "elsewhere"}))); !errors.Is(err, ErrIdentity) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
