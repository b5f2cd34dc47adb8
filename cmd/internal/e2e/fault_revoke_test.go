package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/store/loopback"
)

// A client with an identity obtains thousands of certificates for it, in the hope that a revocation misses one. A real
// Envoy accepts every one of them before, and refuses all of them from a few seconds after the revocation on. Another
// identity keeps working, and no further certificate is issued.
func TestFaultRevocationOfManyLeaves(t *testing.T) {
	parallel(t)
	leaves := sized(t, 60, 5000, "certificates of one identity")
	at := loopback.NetFor(t)
	seenBy(t, at+".2:9080")
	data, dir := t.TempDir(), t.TempDir()
	write(t, dir, "mesh.yaml", strings.ReplaceAll(shopMesh, someNet, at))
	write(t, dir, "peers.yaml", peers("STRICT"))
	d := start(t, "--config-dir", dir, "--data-dir", data)
	eventually(t, patience, d.ready)
	still, _ := stillRoots(t, data)
	mesh := builtIn(t, d, data)
	runAgent(t, d, data, still, "server", at+".2")
	other := certificatesOf(t, mesh, d, "other", 1)[0]
	all := certificatesOf(t, mesh, d, "client", leaves)
	envoy := "https://" + at + ".2:8080/"
	eventually(t, patience, func() error { return answered(envoy, all[0], http.StatusOK) })
	mustAnswer(t, envoy, all, http.StatusOK)

	revoke := operator(t, data)
	revoke("revoke", "--identity", "spiffe://cluster.local/ns/shop/sa/client")
	revoked := time.Now()
	eventually(t, patience, func() error { return answered(envoy, all[leaves-1], http.StatusForbidden) })
	within(t, 5*time.Second, time.Since(revoked), "Envoy refused the identity")
	mustAnswer(t, envoy, all, http.StatusForbidden)
	if err := answered(envoy, other, http.StatusOK); err != nil {
		t.Errorf("another identity: %v", err)
	}
	if _, _, err := mesh.first(t.Context(), d.secure, "shop", "client"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("one more certificate: %v", err)
	}
}

// certificatesOf obtains certificates of one account for many concurrent clients, which retry when they are told to
// wait.
func certificatesOf(t *testing.T, mesh *enrolment, d *daemon, account string, n int) []tls.Certificate {
	t.Helper()
	all, next := make([]tls.Certificate, n), atomic.Int64{}
	var clients sync.WaitGroup
	began := time.Now()
	for range min(n, 32) {
		clients.Go(func() {
			for at := next.Add(1) - 1; at < int64(n); at = next.Add(1) - 1 {
				var err error
				for end := time.Now().Add(patience); time.Now().Before(end); {
					if all[at], _, err = mesh.first(t.Context(), d.secure, "shop", account); err == nil || !pace(t.Context(), 100*time.Millisecond) {
						break
					}
				}
				if err != nil {
					t.Errorf("certificate %d: %v", at, err)
					return
				}
			}
		})
	}
	clients.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("size: %d certificates of %s in %.1f s", n, account, time.Since(began).Seconds())
	return all
}

// answered requests a page from Envoy over mTLS with this certificate, on a new connection.
func answered(url string, leaf tls.Certificate, want int) error {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Host = "server.shop.svc.cluster.local"
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		Certificates: []tls.Certificate{leaf}, NextProtos: []string{"istio-http/1.1", "istio"}, InsecureSkipVerify: true, // whose server it is does not matter here
	}}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != want {
		err = fmt.Errorf("%s, want %d", res.Status, want)
	}
	return err
}

// mustAnswer requests the page with each certificate.
func mustAnswer(t *testing.T, url string, all []tls.Certificate, want int) {
	t.Helper()
	var clients sync.WaitGroup
	next, wrong := atomic.Int64{}, atomic.Int64{}
	began := time.Now()
	for range 8 {
		clients.Go(func() {
			for at := next.Add(1) - 1; at < int64(len(all)); at = next.Add(1) - 1 {
				if err := answered(url, all[at], want); err != nil && wrong.Add(1) <= 3 {
					t.Errorf("certificate %d of %d: %v", at, len(all), err)
				}
			}
		})
	}
	clients.Wait()
	t.Logf("%d certificates were shown in %v, %d answers were not %d", len(all), time.Since(began), wrong.Load(), want)
}
