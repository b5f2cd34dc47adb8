package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"navarch.io/navarch/cmd/internal/fleetapi"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// waited runs navarchctl wait, and returns what it prints.
func waited(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary(t, "navarchctl"), append([]string{"wait"}, args...)...).CombinedOutput()
	return string(out), err
}

// A wait ends when the last proxy has acknowledged, names the one that does not, and survives the end of the replica
// that it asks and of the leader.
func TestWaitUntilDelivered(t *testing.T) {
	parallel(t)
	store := "--etcd-endpoints=" + kvtest.Start(t).Endpoint()
	f := &fleetOf{t: t, store: store, dir: folder(t)}
	leader := start(t, "--roles=ingest", "--config-dir", f.dir, store, "--leader-lease", lease)
	eventually(t, patience, leader.leading)
	for range 2 {
		f.add()
	}
	settled(t, f.replicas()...)
	c := f.gather()
	c.grow(20, false, f.addresses)
	eventually(t, patience, func() error { return c.connected("") })
	first, second := f.replicas()[0], f.replicas()[1]

	revision := func() string {
		t.Helper()
		body := ""
		eventually(t, patience, func() (err error) {
			var a fleetapi.Answer[fleetapi.Stored]
			const object = "kind=VirtualService&group=networking.istio.io&namespace=shop&name=web"
			a, err = apiAnswer[fleetapi.Stored](t, leader, "stored?"+object, "")
			if err == nil && (len(a.Items) != 1 || !a.Items[0].Leads || a.Items[0].Revision == 0) {
				err = fmt.Errorf("%+v", a)
			}
			if err == nil {
				body = fmt.Sprint(a.Items[0].Revision)
			}
			return err
		})
		return body
	}
	revision()

	// Everything is acknowledged.
	write(t, f.dir, "routes.yaml", routes(2))
	eventually(t, patience, func() error {
		out, err := waited(t, "--server", first.http, "--revision", revision())
		if err != nil || !strings.Contains(out, "is acknowledged by 20 of 20 affected proxies") {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})

	// One proxy is stuck: the wait goes on until it has acknowledged, and names it at its timeout.
	stuck := silent(t, second.grpc, "shop", "stuck", "10.1.9.77")
	write(t, f.dir, "routes.yaml", routes(3))
	stuck.hears(t)
	at := revision()
	out, err := waited(t, "--server", first.http, "--revision", at, "--timeout", "2s")
	if err == nil || !strings.Contains(out, "by 20 of 21 affected proxies") ||
		!strings.Contains(out, "One proxy has not acknowledged it:") ||
		!strings.Contains(out, "stuck-0.shop at replica ") || !strings.Contains(out, "has been sent routes") {
		t.Errorf("%v: %s", err, out)
	}
	by, heard := overheard(t, first.http)
	cmd := exec.CommandContext(t.Context(), binary(t, "navarchctl"), "wait", "--server", by,
		"--revision", at, "--timeout", "1m", "-o", "json")
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	<-heard
	acked := time.Now()
	stuck.acks(t)
	var answer fleetapi.Answer[fleetapi.Delivery]
	err = json.NewDecoder(pipe).Decode(&answer)
	took := time.Since(acked)
	if ended := cmd.Wait(); err != nil || ended != nil || !answer.Items[0].Done || answer.Items[0].Change.Acknowledged != 21 {
		t.Errorf("%v, %v: %+v", err, ended, answer)
	}
	within(t, 100*time.Millisecond, took, "from the last acknowledgement to the end of the wait")

	// The replica that is not asked hangs: it is named at the timeout and two seconds, and the wait ends once its
	// lease is over.
	if err := second.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	out, err = waited(t, "--server", first.http, "--revision", at, "--timeout", "8s")
	if err == nil || !strings.Contains(out, "is not in this answer: no answer within 10s") {
		t.Errorf("%v: %s", err, out)
	}
	second.kill()
	out, err = waited(t, "--server", first.http, "--revision", at, "--timeout", "1m")
	if err != nil || !strings.Contains(out, "Revision "+at+" is acknowledged") {
		t.Errorf("%v: %s", err, out)
	}

	leaderGoes(t, f, leader)
}

// leaderGoes kills the leader during a wait for an object that it has not read. Another process becomes the leader, and
// reads the object; the wait goes on until a proxy that is stuck has acknowledged it.
func leaderGoes(t *testing.T, f *fleetOf, leader *daemon) {
	t.Helper()
	first := f.replicas()[0]
	next := start(t, "--roles=ingest", "--config-dir", f.dir, f.store, "--leader-lease", lease)
	stuck := silent(t, first.grpc, "shop", "late", "10.1.9.78")
	by, heard := overheard(t, leader.http)
	type result struct {
		out string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := waited(t, "--server", by+","+next.http+","+first.http, "vs", "late.shop", "--timeout", "1m")
		ended <- result{out, err}
	}()
	<-heard
	leader.kill()
	write(t, f.dir, "late.yaml", strings.Replace(routes(9), "name: web", "name: late", 1))
	stuck.hears(t)
	select {
	case r := <-ended:
		t.Fatalf("the wait has ended before the acknowledgement: %v: %s", r.err, r.out)
	case <-time.After(time.Second):
	}
	stuck.acks(t)
	if r := <-ended; r.err != nil || !strings.Contains(r.out, "(VirtualService shop/late)") || !strings.Contains(r.out, "is acknowledged by ") {
		t.Errorf("%v: %s", r.err, r.out)
	}
	out, err := waited(t, "--server", leader.http+","+next.http+","+first.http, "vs", "web.shop", "--timeout", "1m")
	if err != nil || !strings.Contains(out, "is acknowledged by ") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = waited(t, "--server", next.http+","+first.http, "vs/none", "-n", "shop", "--timeout", "1s")
	if err == nil || !strings.Contains(out, "the leader has not read VirtualService shop/none") {
		t.Errorf("%v: %s", err, out)
	}
}

// overheard returns the address of an HTTP proxy for a process, and a channel that is closed with its first request.
func overheard(t *testing.T, address string) (by string, heard <-chan struct{}) {
	t.Helper()
	first, once := make(chan struct{}), sync.Once{}
	to := &url.URL{Scheme: "http", Host: address}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }} // without X-Forwarded-For
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() { close(first) })
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://"), first
}

// routed is a proxy that subscribes to route configuration 80, and acknowledges when it is told to.
type routed struct {
	stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient
	last   *discoveryv3.DeltaDiscoveryResponse
}

// silent connects such a proxy, which has acknowledged its first routes.
func silent(t *testing.T, address, namespace, workload, ip string) *routed {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	r := &routed{}
	if r.stream, err = discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.send(t, &discoveryv3.DeltaDiscoveryRequest{Node: node(namespace, workload, ip), TypeUrl: xds.Route.URL(),
		ResourceNamesSubscribe: []string{"80"}})
	r.hears(t)
	r.acks(t)
	return r
}

func (r *routed) send(t *testing.T, q *discoveryv3.DeltaDiscoveryRequest) {
	t.Helper()
	if err := r.stream.Send(q); err != nil {
		t.Fatal(err)
	}
}

// hears receives the next routes.
func (r *routed) hears(t *testing.T) {
	t.Helper()
	var err error
	if r.last, err = r.stream.Recv(); err != nil {
		t.Fatal(err)
	}
}

// acks acknowledges them.
func (r *routed) acks(t *testing.T) {
	t.Helper()
	r.send(t, &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.last.TypeUrl, ResponseNonce: r.last.Nonce})
}
