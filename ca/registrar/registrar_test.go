package registrar

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// kubernetes plays an API server and a signer; TestKubeSigner shows the behaviour of real ones.
type kubernetes struct {
	t       *testing.T
	signs   func(r *request)            // effect of the approval of an object; nil: none
	creates func(r *request) (code int) // response to the creation of an object; 0: it is created
	mu      sync.Mutex
	objects map[string]*request
	seen    []request // all that were approved
	made    int
}

func (k *kubernetes) serve(w http.ResponseWriter, q *http.Request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	name, sub, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(q.URL.Path, path), "/"), "/")
	body, err := io.ReadAll(q.Body)
	var in request
	if err == nil && len(body) > 0 {
		err = json.Unmarshal(body, &in)
	}
	if err != nil || !strings.HasPrefix(q.URL.Path, path) {
		k.t.Errorf("%s %s: %v", q.Method, q.URL.Path, err)
	}
	switch {
	case q.Method == http.MethodPost:
		k.made++
		in.Metadata.UID = fmt.Sprint("uid-", k.made)
		if k.creates != nil {
			if code := k.creates(&in); code != 0 {
				w.WriteHeader(code)
				return
			}
		}
		k.objects[in.Metadata.Name] = &in
	case k.objects[name] == nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case q.Method == http.MethodPut && sub == "approval":
		k.objects[name].Status.Conditions = in.Status.Conditions
		k.seen = append(k.seen, *k.objects[name])
		if k.signs != nil {
			k.signs(k.objects[name])
		}
		in = *k.objects[name]
	case q.Method == http.MethodDelete:
		delete(k.objects, name)
	default:
		in = *k.objects[name]
	}
	_ = json.NewEncoder(w).Encode(in)
}

func (k *kubernetes) left() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.objects)
}

func play(t *testing.T, f *foreign) (*kubernetes, *Registrar) {
	k := &kubernetes{t: t, objects: map[string]*request{}}
	k.signs = func(r *request) { r.Status.Certificate = f.sign(t, *r) }
	return k, f.registrar(apiservertest.Play(t, k.serve))
}

// Whatever the outcome of a request, its object is deleted. A certificate that is refused, late, or not as requested is
// not issued, and the error contains the reason.
// Promise: security-ca.md#signers-of-kubernetes
func TestOutcomes(t *testing.T) {
	f, stranger, key := newForeign(t), newForeign(t), newKey(t)
	for name, one := range map[string]struct {
		signs   func(r *request)
		creates func(r *request) int
		signer  string
		csr     []byte
		want    error  // nil: any
		never   bool   // the caller disconnects before it is signed
		says    string // empty: it is issued
		made    int    // objects
	}{
		"signed":         {made: 1},
		"by another one": {signer: "other", made: 1},
		"denied": {signs: func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition{Type: "Denied", Status: "True", Reason: "Policy", Message: "not on Sundays"})
		}, want: serve.ErrRefused, says: "Denied: Policy: not on Sundays", made: 1},
		"failed": {signs: func(r *request) {
			r.Status.Conditions = append(r.Status.Conditions, condition{Type: "Failed", Status: "True"})
		}, want: serve.ErrRefused, says: "Failed", made: 1},
		"never signed":  {never: true, want: context.Canceled, says: "context canceled", made: 1},
		"of another CA": {signs: func(r *request) { r.Status.Certificate = stranger.sign(t, *r) }, want: issue.ErrForeign, says: "does not lead to a root", made: 1},
		"for somebody": {signs: func(r *request) {
			r.Status.Certificate = f.sign(t, *r, func(c *x509.Certificate) {
				c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local", Path: "/ns/shop/sa/admin"}}
			})
		}, want: issue.ErrForeign, says: "but the caller is", made: 1},
		"no certificate":   {signs: func(r *request) { r.Status.Certificate = []byte("no") }, want: issue.ErrForeign, says: "not PEM", made: 1},
		"made again":       {signs: func(r *request) { r.Metadata.UID = "another"; r.Status.Certificate = f.sign(t, *r) }, says: "was replaced by another object", made: 1},
		"changed":          {creates: func(r *request) int { r.Spec.SignerName = "example.com/dear"; return 0 }, says: "it is not approved", made: 1},
		"not allowed":      {creates: func(*request) int { return http.StatusForbidden }, says: "403", made: 1},
		"signer unknown":   {signer: "nobodys", want: issue.ErrInvalid, says: "no root of signer"},
		"signer elsewhere": {signer: "x/../mesh", want: issue.ErrInvalid, says: "no name of a signer"},
		"of a group":       {csr: csr(t, key, func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} }), want: issue.ErrInvalid, says: "it has a subject"},
		"nameless":         {csr: csr(t, key, func(r *x509.CertificateRequest) { r.URIs = nil }), want: issue.ErrInvalid, says: "0 URI names"},
	} {
		t.Run(name, func(t *testing.T) {
			k, r := play(t, f)
			if k.creates = one.creates; one.signs != nil {
				k.signs = one.signs
			}
			if one.csr == nil {
				one.csr = csr(t, key)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if one.never {
				k.signs = func(*request) { cancel() }
			}
			got, err := ask(ctx, r, one.csr, one.signer)
			switch {
			case one.says == "" && err != nil:
				t.Fatal(err)
			case one.says == "":
				good(t, got, key, f)
			case err == nil || !strings.Contains(err.Error(), one.says) || one.want != nil && !errors.Is(err, one.want) || got.Issued != nil:
				t.Errorf("%v, want %v that says %q", err, one.want, one.says)
			}
			if k.made != one.made || k.left() != 0 {
				t.Errorf("%d objects were made, want %d; %d are left", k.made, one.made, k.left())
			}
			for _, o := range k.seen {
				if c := o.Status.Conditions; o.Metadata.Labels[managedBy] != manager || o.Metadata.Annotations[forIdentity] != web.String() || c[0].Type != "Approved" || o.Spec.ExpirationSeconds != 3600 {
					t.Errorf("approved: %+v", o)
				}
			}
		})
	}
}

// A mesh without a default signer requires the caller to name one, and one without a domain of signers requires none.
// Promise: security-ca.md#signers-of-kubernetes
func TestSigners(t *testing.T) {
	for _, one := range []struct{ signer, domain, said, want, says string }{
		{"a.b/c", "", "", "a.b/c", ""}, {"a.b/c", "d.e", "f", "d.e/f", ""}, {"", "d.e", "f", "d.e/f", ""},
		{"", "d.e", "", "", "K8S_SIGNER"}, {"a.b/c", "", "f", "", "CERT_SIGNER_DOMAIN"},
	} {
		got, err := New(Config{Signer: one.signer, Domain: one.domain}).signer(one.said)
		if got != one.want || (err == nil) != (one.says == "") || err != nil && (!errors.Is(err, issue.ErrInvalid) || !strings.Contains(err.Error(), one.says)) {
			t.Errorf("%+v: %q, %v", one, got, err)
		}
	}
}

// An identity has so many requests under way and no more, while others have theirs, and more when they are done.
// Promise: security-ca.md#signers-of-kubernetes
func TestRequestsOfAnIdentity(t *testing.T) {
	r := New(Config{})
	for range 16 {
		if !r.begin("web") {
			t.Fatal("too few")
		}
	}
	if r.begin("web") || !r.begin("db") {
		t.Error("too many, or another identity has none")
	}
	r.end("db")
	r.end("web")
	if !r.begin("web") {
		t.Error("none, though one is done")
	}
	for range 16 {
		r.end("web")
	}
	if len(r.under) != 0 {
		t.Errorf("%v are remembered", r.under)
	}
}
