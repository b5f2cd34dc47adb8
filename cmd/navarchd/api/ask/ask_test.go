package ask

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/shard/member"
)

var (
	domain = spiffeid.RequireTrustDomainFromString("cluster.local")
	istiod = spiffeid.RequireFromPath(domain, "/ns/istio-system/sa/istiod")
)

const name = "istiod.istio-system.svc"

func newCA(t *testing.T) *issue.Authority {
	t.Helper()
	a, err := issue.SelfSigned(domain, 1, time.Hour*24, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// certificate returns a certificate of a CA with a DNS name and an identity; either may be empty.
func certificate(t *testing.T, ca *issue.Authority, dns string, id spiffeid.ID) *tls.Certificate {
	t.Helper()
	c, err := issue.Serving(ca, issue.ServingRequest{Names: []string{dns}, Identity: id}, issue.Policy{}, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return &c
}

func presented(t *testing.T, c *tls.Certificate) (all []*x509.Certificate) {
	t.Helper()
	for _, raw := range c.Certificate {
		one, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

func proof(own *tls.Certificate, roots ...*x509.Certificate) Proof {
	p := Proof{Own: func() (*tls.Certificate, error) { return own, nil }, Name: name, Identities: []spiffeid.ID{istiod}}
	if len(roots) > 0 {
		p.Roots = func() []*x509.Certificate { return roots }
	}
	return p
}

// A replica has the own key, or a name and an identity of the control plane from the mesh's own CA. Nothing less is
// enough.
func TestProof(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	own := certificate(t, ca, name, istiod)
	p := proof(own, ca.Certificate)
	revoked := p
	revoked.Revoked = func(id spiffeid.ID) bool { return id == istiod }
	for what, c := range map[string]struct {
		proof Proof
		cert  *tls.Certificate
		want  string // empty: accepted
	}{
		"another replica":            {p, certificate(t, ca, name, istiod), ""},
		"the same key, another CA":   {proof(own, other.Certificate), own, ""},
		"the same key, no CA":        {proof(own), own, ""},
		"another key, no CA":         {proof(own), certificate(t, ca, name, istiod), "does not prove"},
		"no identity":                {p, certificate(t, ca, name, spiffeid.ID{}), "does not prove"},
		"a workload's identity":      {p, certificate(t, ca, name, spiffeid.RequireFromPath(domain, "/ns/shop/sa/web")), "does not prove"},
		"another name":               {p, certificate(t, ca, "web.shop.svc", istiod), "does not prove"},
		"of another CA":              {p, certificate(t, other, name, istiod), "does not prove"},
		"a revoked identity":         {revoked, certificate(t, ca, name, istiod), "is revoked"},
		"another replica, no own CA": {proof(own, other.Certificate), certificate(t, ca, name, istiod), "does not prove"},
	} {
		err := c.proof.is(presented(t, c.cert), x509.ExtKeyUsageClientAuth)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := p.is(nil, x509.ExtKeyUsageClientAuth); err == nil {
		t.Error("no certificate is accepted")
	}
}

// serve answers questions at a loopback address, with the TLS of a navarchd whose keyring has a CA.
func serve(t *testing.T, s *Server, ca *issue.Authority) (address string) {
	t.Helper()
	own, err := serving.New([]string{name}, "", "")
	if err != nil {
		t.Fatal(err)
	}
	own.Identify(istiod)
	state := &keyring.State{Active: ca, Bundle: []*x509.Certificate{ca.Certificate}}
	conf := own.Config(func() *keyring.State { return state })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const most = 32 << 10 // as navarchd's, for messages of clients without proof
	g := grpc.NewServer(grpc.Creds(serving.Credentials(conf)), grpc.MaxRecvMsgSize(most))
	s.Register(g)
	go g.Serve(l) //nolint:errcheck // ends with Stop
	t.Cleanup(g.Stop)
	return l.Addr().String()
}

// All other replicas that serve proxies are asked with the caller's identity; each one without an answer says why.
func TestAsk(t *testing.T) {
	ca := newCA(t)
	own := certificate(t, ca, name, istiod)
	answers := func(answer func(context.Context, Question) Reply) string {
		return serve(t, &Server{Proof: proof(own, ca.Certificate), Answer: answer, Admitted: func(context.Context) error { return nil }}, ca)
	}
	hangs := make(chan struct{})
	defer close(hangs)
	r := &Replicas{Self: "self", Proof: proof(own, ca.Certificate), Members: func() []member.Record {
		return []member.Record{{Name: "self", State: member.Ready, Address: "127.0.0.1:1"}, {Name: "warming", State: member.Warming},
			{Name: "good", State: member.Ready, Address: answers(func(_ context.Context, q Question) Reply {
				raw, _ := json.Marshal(q) //nolint:errchkjson // texts always encode
				return Reply{Revision: 7, Part: raw}
			})},
			{Name: "hangs", State: member.Leaving, Address: answers(func(ctx context.Context, _ Question) Reply {
				select {
				case <-ctx.Done():
				case <-hangs:
				}
				return Failed(http.StatusGone, errors.New("late"))
			})},
			{Name: "stranger", State: member.Ready, Address: serve(t, &Server{}, newCA(t))},
			{Name: "unknown", State: member.Ready},
		}
	}}
	members := r.Members()
	r.Members = func() []member.Record { return members }
	q := Question{Endpoint: "proxies", Query: map[string][]string{"limit": {"3"}}, Caller: Caller{Name: "spiffe://x", Tenant: "shop"}}
	heard := r.Ask(t.Context(), q, 0)
	if len(heard) != 4 {
		t.Fatalf("%+v", heard)
	}
	var got Question
	if good := heard[0]; good.Err != nil || good.Reply.Revision != 7 || json.Unmarshal(good.Reply.Part, &got) != nil ||
		got.Endpoint != q.Endpoint || got.Caller != q.Caller || got.Query.Get("limit") != "3" {
		t.Errorf("%+v", good)
	}
	for i, want := range []string{"no answer within 2s", "does not prove that its holder is a replica", "its record has no address"} {
		if h := heard[i+1]; h.Err == nil || !strings.Contains(h.Err.Error(), want) {
			t.Errorf("%s: %v, want %q", h.Replica, h.Err, want)
		}
	}
	if !errors.Is(heard[2].Err, ErrUnable) || errors.Is(heard[1].Err, ErrUnable) {
		t.Error("only a replica that cannot be verified is one that cannot be asked")
	}
	q.Of = []string{"hangs"}
	if err := r.Ask(t.Context(), q, time.Second)[0].Err; err == nil || !strings.Contains(err.Error(), "no answer within 3s") {
		t.Errorf("a question that waits itself: %v", err)
	}
	if heard := r.Ask(t.Context(), Question{Endpoint: strings.Repeat("x", maxQuestion)}, 0); heard[0].Err == nil {
		t.Error("a question without bounds is sent")
	}
}

// A caller is a tenant's or sees everything; a question that says neither, or both, is refused.
func TestCallersAreOneOrTheOther(t *testing.T) {
	ca := newCA(t)
	own := certificate(t, ca, name, istiod)
	asked := 0
	s := &Server{Proof: proof(own, ca.Certificate), Admitted: func(context.Context) error { return nil },
		Answer: func(context.Context, Question) Reply { asked++; return Reply{} }}
	address := serve(t, s, ca)
	r := &Replicas{Proof: proof(own, ca.Certificate), Members: func() []member.Record {
		return []member.Record{{Name: "a", State: member.Ready, Address: address}}
	}}
	for caller, want := range map[Caller]bool{{Name: "x"}: false, {Name: "x", All: true}: true, {Name: "x", Tenant: "t"}: true,
		{Name: "x", Tenant: "t", All: true}: false} {
		if h := r.Ask(t.Context(), Question{Caller: caller}, 0)[0]; (h.Err == nil) != want {
			t.Errorf("%+v: %v", caller, h.Err)
		}
	}
	if asked != 2 {
		t.Errorf("answered %d questions", asked)
	}
}

// A body reaches other replicas whole, though each message is small. A body beyond the bound is refused by name.
func TestBodiesArrive(t *testing.T) {
	ca := newCA(t)
	own := certificate(t, ca, name, istiod)
	address := serve(t, &Server{Proof: proof(own, ca.Certificate), Admitted: func(context.Context) error { return nil },
		Answer: func(_ context.Context, q Question) Reply {
			raw, _ := json.Marshal(sha256.Sum256(q.Body)) //nolint:errchkjson // numbers always encode
			return Reply{Part: raw}
		}}, ca)
	r := &Replicas{Proof: proof(own, ca.Certificate), Members: func() []member.Record {
		return []member.Record{{Name: "a", State: member.Ready, Address: address}}
	}}
	for _, size := range []int{1, 12 << 10, 64 << 10, 1 << 20} {
		body := make([]byte, size)
		rand.NewChaCha8([32]byte{}).Read(body) //nolint:errcheck // never fails
		h := r.Ask(t.Context(), Question{Caller: Caller{All: true}, Body: body}, time.Minute)[0]
		var got [32]byte
		if h.Err != nil || json.Unmarshal(h.Reply.Part, &got) != nil || got != sha256.Sum256(body) {
			t.Errorf("a body of %d bytes: %v", size, h.Err)
		}
	}
	body := make([]byte, maxBody+1)
	h := r.Ask(t.Context(), Question{Caller: Caller{All: true}, Body: body}, time.Minute)[0]
	if h.Err == nil || !strings.Contains(h.Err.Error(), "4 MiB") {
		t.Errorf("a body above the bound: %v", h.Err)
	}
}
