package serve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
)

// another plays a CA that is called with the authenticated identity of the caller.
type another struct {
	asked []serve.Registration // the tests ask one after the other
	fails error
	hangs bool
	by    *issue.Authority
}

func (a *another) Register(ctx context.Context, r serve.Registration) (serve.Registered, error) {
	a.asked = append(a.asked, r)
	if a.hangs {
		<-ctx.Done()
		return serve.Registered{}, fmt.Errorf("it hangs: %w", ctx.Err())
	}
	if a.fails != nil {
		return serve.Registered{}, a.fails
	}
	issued, err := issue.Issue(a.by, issue.Request{CSR: r.CSR, Identity: r.Identity, TTL: r.TTL}, issue.Policy{Jitter: -1}, time.Now(), nil)
	return serve.Registered{Issued: issued, Bundle: []*x509.Certificate{a.by.Certificate}, Signer: "example.com/mesh"}, err
}

// If another CA signs, it is called with the identity that the caller has proved, a lifetime within the policy, and the
// signer that the caller names. Its certificate is returned, or its error, and nothing is journalled. A call that hangs
// or fails occupies no place of others.
// Promise: security-ca.md#signers-of-kubernetes
func TestRegistrationsAreAnswered(t *testing.T) {
	a := &another{}
	ca := servetest.Start(t, serve.Config{Registrar: a, Renewals: serve.Renewals{Alone: 48 * time.Hour}, Limits: serve.Limits{Signing: 1, MaxWait: time.Second}, Policy: issue.Policy{DefaultTTL: time.Hour, MaxTTL: 2 * time.Hour}})
	current, err := ca.Current()
	if err != nil {
		t.Fatal(err)
	}
	a.by = current.Authority
	conn := dial(t, ca, nil)
	defer conn.Close()
	const id = "spiffe://cluster.local/ns/shop/sa/cart"
	csr, key := request(t, id)
	ask := func(token string, ttl time.Duration, signer any) ([]string, error) {
		m, err := structpb.NewStruct(map[string]any{"CertSigner": signer})
		if err != nil {
			t.Fatal(err)
		}
		return create(t.Context(), conn, token, &securityv1.IstioCertificateRequest{Csr: csr, ValidityDuration: int64(ttl / time.Second), Metadata: m})
	}
	token := ca.Token("shop", "cart")
	for _, one := range []struct {
		ttl, want time.Duration
		signer    string
	}{{0, time.Hour, ""}, {time.Minute, time.Minute, "a"}, {9 * time.Hour, 2 * time.Hour, "b"}} {
		chain, err := ask(token, one.ttl, one.signer)
		if err != nil {
			t.Fatal(err)
		}
		got := a.asked[len(a.asked)-1]
		if got.Identity.String() != id || got.TTL != one.want || got.Signer != one.signer || string(got.CSR) != csr {
			t.Errorf("it is asked %+v", got)
		}
		if leaf, err := issue.Certificates([]byte(chain[0])); len(chain) != 2 || err != nil || !key.PublicKey.Equal(leaf[0].PublicKey) || chain[1] != string(issue.EncodeCertificates(a.by.Certificate)) {
			t.Errorf("the answer %q, %v", chain, err)
		}
	}
	asked := len(a.asked)
	if _, err := ask("bad", 0, ""); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a bad token: %v", err)
	}
	if _, err := ask(token, 0, strings.Repeat("x", 1000)); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a long name: %v", err)
	}
	ca.Revoke(id)
	if _, err := ask(token, 0, ""); status.Code(err) != codes.PermissionDenied {
		t.Errorf("an identity that is denied: %v", err)
	}
	if len(a.asked) != asked {
		t.Error("it was asked for those who may not")
	}
	token = ca.Token("shop", "other")
	for want, err := range map[codes.Code]error{codes.InvalidArgument: fmt.Errorf("%w: no", issue.ErrInvalid), codes.PermissionDenied: fmt.Errorf("%w: no", serve.ErrRefused),
		codes.ResourceExhausted: fmt.Errorf("%w: no", serve.ErrBusy), codes.Unavailable: errors.New("no")} {
		a.fails = err
		if _, err := ask(token, 0, ""); status.Code(err) != want || !strings.Contains(err.Error(), "no") {
			t.Errorf("want %v: %v", want, err)
		}
	}
	a.hangs = true
	if _, err := ask(token, 0, ""); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("while it hangs: %v", err)
	}
	a.hangs, a.fails = false, nil
	csr, key = request(t) // of no name
	chain, err := ask(token, 0, "")
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode([]byte(chain[0]))
	shown := dial(t, ca, &tls.Certificate{Certificate: [][]byte{block.Bytes}, PrivateKey: key})
	defer shown.Close()
	if _, err := create(t.Context(), shown, "", &securityv1.IstioCertificateRequest{Csr: csr}); status.Code(err) != codes.Unauthenticated ||
		!strings.Contains(err.Error(), "last showed a token is unknown") {
		t.Errorf("by that certificate alone: %v", err)
	}
	if _, err := create(t.Context(), shown, token, &securityv1.IstioCertificateRequest{Csr: csr}); err != nil {
		t.Errorf("by that certificate and a token: %v", err)
	}
	if e := ca.Entries(); len(e) != 0 {
		t.Errorf("journalled: %+v", e)
	}
}

// A CA that hangs is waited for for twenty seconds, however long its caller would wait.
// Promise: security-ca.md#signers-of-kubernetes
func TestAnotherCAIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := serve.New(serve.Config{Registrar: &another{hangs: true}, Authenticator: fixed{attest.Caller{ID: a0(t), By: attest.ByToken}}, Audit: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = s.CreateCertificate(t.Context(), &securityv1.IstioCertificateRequest{Csr: "x"})
		if took := time.Since(began); took != 20*time.Second || status.Code(err) != codes.Unavailable {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
