package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"

	"navarch.io/navarch/ca/keyring"
	caserve "navarch.io/navarch/ca/serve"
	sim "navarch.io/navarch/loadtest/proxy"
	"navarch.io/navarch/store/kv/kvtest"
)

// rootRotation records a rotation from the view of a fleet: the newest roots that each proxy received, and every issued
// certificate.
type rootRotation struct {
	*enrolment
	mu      sync.Mutex
	bundles map[string][]*x509.Certificate // by proxy
	all     map[string]tls.Certificate     // by serial number
}

// pushed stores the trust that a proxy received (sim.Config.OnTrust).
func (r *rootRotation) pushed(id sim.Identity, raw []byte) error {
	v := &tlsv3.CertificateValidationContext{}
	if err := proto.Unmarshal(raw, v); err != nil {
		return err
	}
	roots, err := parsed(string(v.GetTrustedCa().GetInlineBytes()))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bundles[id.Name] = roots
	return err
}

// pool returns the roots by which a proxy verifies servers' certificates.
func (r *rootRotation) pool(id sim.Identity) *x509.CertPool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return poolOf(r.bundles[id.Name])
}

func poolOf(roots []*x509.Certificate) *x509.CertPool {
	if len(roots) == 0 {
		return nil
	}
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	return pool
}

// have returns a check that proxies have received the given number of roots.
func (r *rootRotation) have(roots int, who []sim.Identity) func() error {
	return func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, id := range who {
			if n := len(r.bundles[id.Name]); n != roots {
				return fmt.Errorf("%s has %d roots, want %d", id, n, roots)
			}
		}
		return nil
	}
}

// pairs checks that every issued certificate is accepted with the roots of every proxy, also by clocks that are ten
// minutes slow or fast (the leaves last longer).
func (r *rootRotation) pairs(when string) {
	r.t.Helper()
	r.enrolment.mu.Lock()
	for _, leaf := range r.leaves {
		r.all[serial(leaf)] = leaf
	}
	r.enrolment.mu.Unlock()
	bundles := map[string][]*x509.Certificate{}
	r.mu.Lock()
	for _, roots := range r.bundles {
		bundles[strings.Join(rootPrints(roots), " ")] = roots
	}
	r.mu.Unlock()
	for _, roots := range bundles {
		pool := poolOf(roots)
		for _, leaf := range r.all {
			between := x509.NewCertPool()
			for _, raw := range leaf.Certificate[1:] {
				if c, err := x509.ParseCertificate(raw); err == nil {
					between.AddCert(c)
				}
			}
			for _, off := range []time.Duration{-10 * time.Minute, 0, 10 * time.Minute} {
				_, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, CurrentTime: time.Now().Add(off), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
				if err != nil {
					r.t.Fatalf("%s: a certificate with %d roots, by a clock that is %v off: %v", when, len(roots), off, err)
				}
			}
		}
	}
	r.t.Logf("%s: %d certificates with %d bundles of roots", when, len(r.all), len(bundles))
}

func rootPrints(roots []*x509.Certificate) (all []string) {
	for _, root := range roots {
		all = append(all, caserve.Fingerprint(root))
	}
	return all
}

// shown returns the certificates of proxies by serial number, and for each certificate one of the proxies that use it.
func (r *rootRotation) shown(who []sim.Identity) (leaves map[string]tls.Certificate, of map[string]sim.Identity) {
	r.enrolment.mu.Lock()
	defer r.enrolment.mu.Unlock()
	leaves, of = map[string]tls.Certificate{}, map[string]sim.Identity{}
	for _, id := range who {
		leaf := r.leaves[r.places[id.Name]/shareOne]
		leaves[serial(leaf)], of[serial(leaf)] = leaf, id
	}
	return leaves, of
}

// report reports to the CA, for each certificate of proxies, the roots that these proxies hold, as navarch-agent does.
func (r *rootRotation) report(address string, who []sim.Identity) {
	r.t.Helper()
	leaves, of := r.shown(who)
	for serial, leaf := range leaves {
		r.mu.Lock()
		list := &structpb.ListValue{}
		for _, print := range rootPrints(r.bundles[of[serial].Name]) {
			list.Values = append(list.Values, structpb.NewStringValue(print))
		}
		r.mu.Unlock()
		conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(r.client(leaf))))
		if err != nil {
			r.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), patience)
		err = conn.Invoke(ctx, caserve.HoldersMethod, list, &emptypb.Empty{})
		cancel()
		if err = errors.Join(err, conn.Close()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// operate runs `navarchctl ca` with args, and returns its output.
func (e *enrolment) operate(args ...string) ([]byte, error) {
	out, err := exec.Command(binary(e.t, "navarchctl"), append(append([]string{"ca"}, args...), e.store, e.kek)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("navarchctl ca %v: %w: %s", args, err, out)
	}
	return out, err
}

// waitsFor returns a check that the rotation to the second root waits for the holders of these certificates. Without
// serials it checks that the rotation has continued.
func (e *enrolment) waitsFor(serials ...string) func() error {
	return func() error {
		var report keyring.Report
		raw, err := e.operate("status", "-o", "json")
		if err == nil {
			err = json.Unmarshal(raw, &report)
		}
		if err != nil {
			return err
		}
		got := map[string]bool{}
		for _, h := range report.Waiting {
			got[h.Serial] = true
		}
		want := map[string]bool{}
		for _, s := range serials {
			want[s] = true
		}
		if (report.Rotating == 2) != (len(serials) > 0) || !maps.Equal(got, want) {
			return fmt.Errorf("rotating to epoch %d, waiting for %d, want %d", report.Rotating, len(got), len(want))
		}
		return nil
	}
}

// Fault 24: the root is rotated while one proxy in five is away, and the clocks of one in twenty are ten minutes fast
// or slow. The rotation waits for the absent proxies: the new root signs nothing while they do not have it. Once they
// are back, the rotation continues. At no time would a proxy, by any of the clocks, refuse the certificate of another
// proxy or of a replica.
func TestFaultRotationWhileProxiesAreAway(t *testing.T) {
	parallel(t)
	const n = 10
	away := shareOne * sized(t, 3, 2000/5/shareOne, "times four proxies over mTLS that are away, and four times as many that are there")
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	dir := townFolder(t, n)
	r := &rootRotation{enrolment: newEnrolment(t, store), bundles: map[string][]*x509.Certificate{}, all: map[string]tls.Certificate{}}
	start(t, "--roles=ingest", "--config-dir", dir, store, r.kek)
	replicas := []*daemon{r.replica(store), r.replica(store)}
	r.by(replicas[0])
	for _, d := range replicas {
		eventually(t, patience, whole(t, d, n, 1))
		eventually(t, patience, r.answers(d))
	}
	r.trust = r.pool
	everybody := citizens(5 * away)
	place := map[string]int{}
	for i, id := range everybody {
		place[id.Name] = i
	}
	r.skew = func(id sim.Identity) time.Duration {
		return map[int]time.Duration{3: 10 * time.Minute, 23: -10 * time.Minute}[place[id.Name]%40]
	}
	cfg := r.overTLS(sim.Config{Trust: true, OnTrust: r.pushed}, replicas...)
	gone, here := everybody[:away], everybody[away:]
	first := fleetFor(t, gone, cfg)
	f := fleetFor(t, here, cfg)
	eventually(t, patience, r.have(1, everybody))
	first.Close()
	r.pairs("before")

	if _, err := r.operate("rotate"); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, r.have(2, here))
	r.pairs("published")
	r.report(replicas[0].secure, here)
	leaves, _ := r.shown(gone)
	absent := slices.Sorted(maps.Keys(leaves))
	eventually(t, patience, r.waitsFor(absent...))
	r.mu.Lock()
	old := r.bundles[gone[0].Name][0]
	r.mu.Unlock()
	if newcomer, _, err := r.first(t.Context(), replicas[1].secure, "town", "newcomer"); err != nil || newcomer.Leaf.CheckSignatureFrom(old) != nil {
		t.Errorf("while it waits the old root signs: %v", err)
	} else {
		r.all[serial(newcomer)] = newcomer
	}
	resumed(t, f, len(here), func() { f.Reconnect(sim.All, sim.Reconnect{Now: true}) })
	r.pairs("while it waits")
	if err := r.waitsFor(absent...)(); err != nil {
		t.Errorf("after all who are there came again: %v", err)
	}

	back := fleetFor(t, gone, cfg)
	eventually(t, patience, r.have(2, everybody))
	r.report(replicas[1].secure, gone)
	eventually(t, patience, r.waitsFor())
	r.by(replicas[0])
	eventually(t, patience, func() error {
		fresh, _, err := r.first(t.Context(), replicas[1].secure, "town", "newcomer")
		if err == nil {
			r.all[serial(fresh)] = fresh
			if fresh.Leaf.CheckSignatureFrom(old) == nil {
				err = errors.New("the old root signs")
			}
		}
		return err
	})
	r.pairs("switched")
	r.renewAll(replicas[0].secure)
	r.pairs("renewed")
	for _, one := range []*sim.Fleet{f, back} { // also by the certificates that the replicas have now
		one.CheckEqual()
		resumed(t, one, one.Stats().Proxies, func() { one.Reconnect(sim.All, sim.Reconnect{Now: true}) })
		undisturbed(t, one)
		unharmed(t, one)
	}
}
