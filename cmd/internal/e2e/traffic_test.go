package e2e

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"navarch.io/navarch/store/loopback"
)

// oneServer is a service that the proxy of workload web calls over plain text, on a listener of its own.
const oneServer = `
apiVersion: v1
kind: Service
metadata: {name: server, namespace: shop}
spec: {clusterIP: 10.96.0.20, selector: {app: server}, ports: [{name: http, port: 8000, targetPort: 9080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: server-1, namespace: shop, labels: {kubernetes.io/service-name: server}}
addressType: IPv4
ports: [{name: http, port: 9080}]
endpoints: [{addresses: [127.0.88.2], conditions: {ready: true}}]
---
apiVersion: networking.istio.io/v1
kind: Sidecar
metadata: {name: web, namespace: shop}
spec:
  workloadSelector: {labels: {app: web}}
  egress: [{port: {number: 8000, protocol: HTTP, name: http}, bind: 127.0.88.1, captureMode: NONE, hosts: ["./*"]}]
`

// marked returns routes to that service whose answers contain the edition.
func marked(edition int) string {
	return fmt.Sprintf(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: server, namespace: shop}
spec:
  hosts: [server]
  http:
  - headers: {response: {set: {x-edition: "%d"}}}
    route: [{destination: {host: server}}]
`, edition)
}

// traffic is requests that go through a proxy without a pause, and one that is under way all the time.
type traffic struct {
	proxy string        // address of its listener
	host  string        // host of the requests
	pause time.Duration // of each sender, between two requests
	long  *http.Response
	stop  chan struct{}
	done  sync.WaitGroup

	mu       sync.Mutex
	edition  int // the newest seen
	requests int
	faults   []string
}

// backEnd answers for the service, at the second address of a net, until the test ends. Its answers under /long end
// when `end` is called.
func backEnd(t *testing.T, at string) (end func()) {
	t.Helper()
	l, err := net.Listen("tcp", at+".2:9080")
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "begun")
		if r.URL.Path == "/long" {
			_ = http.NewResponseController(w).Flush()
			<-over
			fmt.Fprint(w, ", over")
		}
	})}
	go func() { _ = s.Serve(l) }()
	end = sync.OnceFunc(func() { close(over) })
	t.Cleanup(func() { end(); s.Close() })
	return end
}

// shopFolder returns a new folder with the service and the first edition of its routes; at is the network of the
// addresses.
func shopFolder(t *testing.T) (dir, at string) {
	t.Helper()
	dir, at = folder(t), loopback.NetFor(t)
	write(t, dir, "server.yaml", strings.ReplaceAll(oneServer, someNet, at))
	write(t, dir, "marked.yaml", marked(1))
	return dir, at
}

// flow begins traffic through the proxy that listens at the first address of a net, once that answers.
func flow(t *testing.T, at string) *traffic {
	t.Helper()
	return flowTo(t, at, "server.shop.svc.cluster.local", time.Millisecond)
}

// flowTo works like flow, for the service with another name, with pauses between the requests.
func flowTo(t *testing.T, at, host string, pause time.Duration) *traffic {
	t.Helper()
	f := &traffic{proxy: at + ".1:8000", host: host, pause: pause, stop: make(chan struct{})}
	client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	eventually(t, patience, func() error { _, err := f.ask(&client, "/"); return err })
	var err error
	if f.long, err = f.ask(&client, "/long"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		f.done.Go(func() {
			for {
				select {
				case <-f.stop:
					return
				case <-time.After(f.pause):
					f.once(&client)
				}
			}
		})
	}
	t.Cleanup(func() { f.halt(); f.long.Body.Close(); client.CloseIdleConnections() })
	return f
}

// ask sends a request; the body of the answer is open where it is the long one.
func (f *traffic) ask(client *http.Client, path string) (*http.Response, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+f.proxy+path, nil)
	if err != nil {
		return nil, err
	}
	req.Host = f.host
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if path == "/" {
		defer res.Body.Close()
		_, err = fmt.Fscan(res.Body, new(string))
	}
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", f.proxy, res.Status)
	}
	return res, err
}

// once notes what becomes of a request, and whether its edition is older than one that was seen before it was sent.
func (f *traffic) once(client *http.Client) {
	before := f.newest()
	res, err := f.ask(client, "/")
	edition := 0
	if err == nil {
		edition, err = strconv.Atoi(res.Header.Get("x-edition"))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	switch {
	case err != nil:
		f.faults = append(f.faults, err.Error())
	case edition < before:
		f.faults = append(f.faults, fmt.Sprintf("edition %d after %d", edition, before))
	}
	f.edition = max(f.edition, edition)
}

func (f *traffic) newest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.edition
}

// at returns a check that an edition is in effect. An earlier failure ends the test.
func (f *traffic) at(t *testing.T, edition int) func() error {
	return func() error {
		f.fine(t)
		if now := f.newest(); now != edition {
			return fmt.Errorf("edition %d, want %d", now, edition)
		}
		return nil
	}
}

// count returns how many requests there were, and what went wrong: one failed, or went by an older edition.
func (f *traffic) count() (requests int, faults []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests, slices.Clone(f.faults)
}

// fine ends the test where something went wrong; it returns how many requests there were.
func (f *traffic) fine(t *testing.T) int {
	t.Helper()
	requests, faults := f.count()
	if len(faults) > 0 {
		t.Fatalf("%d of %d requests: %q ...", len(faults), requests, faults[:min(3, len(faults))])
	}
	return requests
}

func (f *traffic) halt() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.done.Wait()
}
