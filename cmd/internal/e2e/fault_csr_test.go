package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/attest"
	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv/kvtest"
)

// keyEndpoint serves a token issuer's keys, and can go away and be slow.
type keyEndpoint struct {
	*httptest.Server
	keys  []byte
	state atomic.Int32 // state of the answers: keysGood, keysDown, keysSlow
	asked atomic.Int64
}

const (
	keysGood = iota
	keysDown // each request is hung up on
	keysSlow // answers come after the callers' time limits
)

func newKeyEndpoint(t testing.TB, keys []byte) *keyEndpoint {
	k := &keyEndpoint{keys: keys}
	k.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.asked.Add(1)
		switch k.state.Load() {
		case keysGood:
			_, _ = w.Write(k.keys)
			return
		case keysSlow:
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(k.Close)
	return k
}

// badRequest is a request for a certificate that must be refused.
type badRequest struct {
	name, token, csr string
	code             codes.Code
}

const unknownKey = 0 // among badRequests

// badRequests returns certificate requests of each kind that the CA must refuse.
func badRequests(t testing.TB, e *enrolment) []badRequest {
	t.Helper()
	mint := func(issuer *attest.Issuer, audience string) string {
		t.Helper()
		text, _, err := issuer.Mint("town", "client", audience, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	good, name := mint(e.issuer, "istio-ca"), e.issuer.Name()
	early := func() time.Time { return time.Now().Add(-3 * time.Hour) }
	return []badRequest{
		// The key may be a newer one of the issuer: a CA that cannot fetch the issuer's keys does not know.
		unknownKey: {"a forged token, by a key that nobody knows", mint(tokenIssuer(t, name, newKey(t), time.Now), "istio-ca"), e.csr, codes.Unavailable},
		{"no token", "", e.csr, codes.Unauthenticated},
		{"garbage for a token", "garbage", e.csr, codes.Unauthenticated},
		{"an expired token", mint(tokenIssuer(t, name, e.tokens, early), "istio-ca"), e.csr, codes.Unauthenticated},
		{"a foreign issuer's", mint(tokenIssuer(t, "https://elsewhere.example", newKey(t), time.Now), "istio-ca"), e.csr, codes.Unauthenticated},
		{"a forged one, with another signature", good[:len(good)-8] + "AAAAAAAA", e.csr, codes.Unauthenticated},
		{"one for another audience", mint(e.issuer, "vault"), e.csr, codes.Unauthenticated},
		{"garbage for a CSR", good, "garbage", codes.InvalidArgument},
		{"a CSR that is cut short", good, e.csr[:len(e.csr)/2], codes.InvalidArgument},
	}
}

// certificateStorm is many requests for first certificates.
type certificateStorm struct {
	mesh    *enrolment
	servers []*daemon
	t       testing.TB

	mu    sync.Mutex
	took  []time.Duration // of those that were served, tries included
	again int             // tries beyond the first
	wrong map[string]int
}

// stormClients is the number of clients of a storm. Each has one connection at a time, and opens another one after
// requestsOfOne requests. In a cluster each Pod has its own connection; here the cost of so many handshakes would equal
// that of everything else.
const stormClients, requestsOfOne = 64, 20

// run sends n requests, one in ten of them bad, from many clients at once; good and bad requests have different
// clients.
func (s *certificateStorm) run(n int) {
	var all sync.WaitGroup
	kinds, left := badRequests(s.t, s.mesh), atomic.Int64{}
	left.Store(int64(n - n/10))
	var bad atomic.Int64
	bad.Store(int64(n / 10))
	for i := range stormClients { // whoever waits for the issuer's keys must not be in the way of those that need none
		all.Go(func() {
			s.connected(i, func(c securityv1.IstioCertificateServiceClient) { s.bad(c, kinds[unknownKey]) })
		})
	}
	for i := range stormClients {
		all.Go(func() {
			for left.Load() > 0 {
				s.connected(i, func(c securityv1.IstioCertificateServiceClient) {
					for range requestsOfOne {
						if at := left.Add(-1); at >= 0 {
							s.good(c, int(at))
						}
					}
				})
			}
		})
	}
	for i := range stormClients / 4 {
		all.Go(func() {
			for bad.Load() > 0 {
				s.connected(i, func(c securityv1.IstioCertificateServiceClient) {
					if at := bad.Add(-1); at >= 0 {
						s.bad(c, kinds[int(at)%len(kinds)])
					}
				})
			}
		})
	}
	all.Wait()
}

func (s *certificateStorm) connected(i int, ask func(securityv1.IstioCertificateServiceClient)) {
	d := s.servers[i%len(s.servers)]
	conn, err := grpc.NewClient("passthrough:///"+d.secure, grpc.WithTransportCredentials(credentials.NewTLS(s.mesh.client())))
	if err != nil {
		s.failed(err.Error())
		return
	}
	defer conn.Close()
	ask(securityv1.NewIstioCertificateServiceClient(conn))
}

// good requests a certificate as an agent does, and retries with back-off when the server requests that.
func (s *certificateStorm) good(c securityv1.IstioCertificateServiceClient, at int) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	proof, _, err := s.mesh.issuer.Mint("town", fmt.Sprintf("client-%d", at%500), "istio-ca", time.Hour)
	if err != nil {
		s.failed(err.Error())
		return
	}
	began := time.Now()
	for tries := 0; ; tries++ {
		_, err := c.CreateCertificate(bearer(ctx, proof), &securityv1.IstioCertificateRequest{Csr: s.mesh.csr})
		if code := status.Code(err); tries < 10 && (code == codes.Unavailable || code == codes.ResourceExhausted) && pace(ctx, 100*time.Millisecond<<tries) {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.took, s.again = append(s.took, time.Since(began)), s.again+tries
		if err != nil {
			s.wrong["a good one: "+err.Error()]++
		}
		return
	}
}

// bad may also find that the connection has gone: those without a credential make room for others
// (cmd/internal/preauth).
func (s *certificateStorm) bad(c securityv1.IstioCertificateServiceClient, b badRequest) {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if b.token != "" {
		ctx = bearer(ctx, b.token)
	}
	if _, err := c.CreateCertificate(ctx, &securityv1.IstioCertificateRequest{Csr: b.csr}); status.Code(err) != b.code && status.Code(err) != codes.Unavailable {
		s.failed(fmt.Sprintf("%s: %v, want %v", b.name, err, b.code))
	}
}

func (s *certificateStorm) failed(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong[why]++
}

// Fault 21: many clients request their first certificate at once, one in ten without the right or with garbage.
// Meanwhile the token issuer's keys cannot be fetched: for the first half their endpoint is down, then it does not
// answer. All clients with the right soon get a certificate; the others are refused with the actual reason. Requests do
// not each cause a fetch. A fleet over mTLS is not affected: changes reach it.
func TestFaultCertificateStorm(t *testing.T) {
	parallel(t)
	n, proxies, requests := 20, sized(t, 40, 400, "proxies over mTLS"), sized(t, 800, 50000, "requests for first certificates, 10 % bad")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	mesh := newEnrolment(t, store)
	start(t, "--roles=ingest", "--config-dir", dir, store, mesh.kek)
	keys := newKeyEndpoint(t, mesh.issuer.JWKS())
	replicas := []*daemon{mesh.replica(store, "--token-keys="+keys.URL), mesh.replica(store, "--token-keys="+keys.URL)}
	mesh.by(replicas[0])
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
		eventually(t, patience, mesh.answers(d))
	}
	f := mesh.fleet(proxies, sim.Config{}, replicas...)

	s := &certificateStorm{mesh: mesh, servers: replicas, t: t, wrong: map[string]int{}}
	before, began := keys.asked.Load(), time.Now()
	for i, state := range []int32{keysSlow, keysDown} {
		keys.state.Store(state)
		reaches(t, f, 2+i, func() {
			write(t, dir, "town.yaml", town(0, n, 2+i))
			s.run(requests / 2)
		})
	}
	took := time.Since(began)
	within(t, time.Minute, took, "all were answered")
	slices.Sort(s.took)
	slowestWithin(t, 5*time.Second, s.took[len(s.took)*99/100], began, "the 99th percentile of first certificates")
	t.Logf("%d good ones were tried again; median %v, last %v", s.again, s.took[len(s.took)/2], s.took[len(s.took)-1])
	for why, n := range s.wrong {
		t.Errorf("%d times %s", n, why)
	}
	// Each replica fetches unknown keys once in ten seconds, and after a failure with growing intervals.
	if asked, most := keys.asked.Load()-before, int64(2*(10+took/(5*time.Second))); asked > most {
		t.Errorf("the endpoint was asked %d times in %v, want at most %d", asked, took, most)
	}
	unharmed(t, f)
	undisturbed(t, f)
}
