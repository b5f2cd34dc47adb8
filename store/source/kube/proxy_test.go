//go:build kube

package kube

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"navarch.io/navarch/deploy/testcluster/controlplane"
)

// faults are the percentages of requests for which a proxy before an API server injects each fault. It is safe for
// concurrent use.
type faults struct {
	mu     sync.Mutex
	busy   int           // are answered 429
	gone   int           // watches are answered 410
	cut    time.Duration // watches end within so long; 0: they do not
	frozen bool          // bytes of open responses are withheld for ever
	thaw   chan struct{} // closed when the frozen ones may end
	stale  string        // answers of a path are these bytes instead
	path   string
	counts map[string]int
}

func (f *faults) set(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *faults) count(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[what]++
}

// faultyWay is a proxy before a control plane, and a kubeconfig that goes by it.
func faultyWay(t *testing.T, c *controlplane.ControlPlane) (*faults, string) {
	t.Helper()
	f := &faults{counts: map[string]int{}, thaw: make(chan struct{})}
	to := &url.URL{Scheme: "https", Host: c.Address()}
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.Transport = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	proxy.FlushInterval, proxy.ErrorLog = -1, log.New(io.Discard, "", 0)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	proxy.ModifyResponse = func(r *http.Response) error {
		r.Body = &body{ReadCloser: r.Body, faults: f, counts: strings.Contains(r.Request.URL.Path, "/virtualservices")}
		return nil
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(proxy, w, r) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		close(f.thaw)
		server.CloseClientConnections()
		server.Close()
	})
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData, cluster.InsecureSkipTLSVerify = server.URL, nil, true
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return f, path
}

func (f *faults) serve(proxy http.Handler, w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	busy, gone, cut, stale, path := f.busy, f.gone, f.cut, f.stale, f.path
	f.mu.Unlock()
	watches := strings.Contains(r.URL.RawQuery, "watch=")
	fail := func(code int, reason string) {
		f.count(reason)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": %q, "code": %d}`, reason, code)
	}
	switch {
	case stale != "" && r.URL.Path == path && !watches:
		f.count("stale")
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, stale)
	case stale != "" && r.URL.Path == path && strings.Contains(r.URL.RawQuery, "sendInitialEvents="):
		fail(http.StatusUnprocessableEntity, "Invalid") // as an API server that streams no lists
	case stale != "" && r.URL.Path == path:
		fail(http.StatusGone, "Expired") // so that it lists
	case rand.IntN(100) < busy:
		fail(http.StatusTooManyRequests, "TooManyRequests")
	case watches && rand.IntN(100) < gone:
		fail(http.StatusGone, "Expired")
	case watches && cut > 0:
		f.count("cut")
		ctx, cancel := context.WithTimeout(r.Context(), rand.N(cut))
		defer cancel()
		proxy.ServeHTTP(w, r.WithContext(ctx))
	default:
		proxy.ServeHTTP(w, r)
	}
}

// body is an answer that may be frozen.
type body struct {
	io.ReadCloser
	faults *faults
	stuck  bool
	counts bool // it is of the kind that the tests edit
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.faults.mu.Lock()
	if b.faults.frozen && b.counts && !b.stuck {
		b.faults.counts["stuck"]++
	}
	b.stuck = b.stuck || b.faults.frozen
	b.faults.mu.Unlock()
	if b.stuck {
		<-b.faults.thaw
	}
	return n, err
}
