//go:build kube

package gatewaychart

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// clientKind is a kind of clients of the gateway.
type clientKind struct {
	name          string
	tls, h2, kept bool
}

var clientKinds = []clientKind{
	{"HTTP/1.1", false, false, true}, {"HTTP/1.1 new", false, false, false}, {"HTTP/2", false, true, true},
	{"TLS HTTP/1.1", true, false, true}, {"TLS HTTP/1.1 new", true, false, false}, {"TLS HTTP/2", true, true, true},
}

const (
	clientsOfKind = 3
	clientPause   = 100 * time.Millisecond // between two requests of a client
	// perConnection bounds the requests on a connection of one client of each kind, so that new Pods get some.
	perConnection = 50
	shopHost      = "shop.example.com"
	// clientIdle is less than the second after which a draining gateway ends an idle connection: a client that the
	// machine delayed makes a new one.
	clientIdle = 700 * time.Millisecond
	// patience is the longest time of an answer: a slow machine is not a failure.
	patience = time.Minute
)

// counts are the numbers of requests, by kind of client and by the identity of the gateway that served them, and of
// connections of clients that keep them.
type counts struct {
	kinds, gateways   map[string]int
	dialled, closings int // closings: responses with Connection: close on kept connections
}

// load is a steady rate of requests of all kinds from outside of the cluster. No request is repeated.
type load struct {
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	address string // of the gateway's load balancer
	roots   *x509.CertPool
	stop    context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	now   counts
	wrong []string // failed requests
}

// start makes requests until the test ends.
func (l *load) start(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.now = counts{kinds: map[string]int{}, gateways: map[string]int{}}
	for _, kind := range clientKinds {
		for i := range clientsOfKind {
			l.running.Go(func() { l.send(ctx, kind, l.client(kind), i == 0) })
		}
	}
	t.Cleanup(l.end)
}

// end stops all clients, after their last answers.
func (l *load) end() {
	l.stop()
	l.running.Wait()
}

// client returns a client of one connection.
func (l *load) client(kind clientKind) *http.Client {
	port := map[bool]string{false: "80", true: "443"}[kind.tls]
	protocols := &http.Protocols{}
	protocols.SetHTTP1(!kind.h2)
	protocols.SetHTTP2(kind.h2 && kind.tls)
	protocols.SetUnencryptedHTTP2(kind.h2 && !kind.tls)
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		if kind.kept {
			l.mu.Lock()
			l.now.dialled++
			l.mu.Unlock()
		}
		return l.dial(ctx, network, net.JoinHostPort(l.address, port))
	}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: !kind.kept,
		IdleConnTimeout: clientIdle, Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: l.roots}}}
}

// send makes requests until the context ends; renews: on a new connection now and then.
func (l *load) send(ctx context.Context, kind clientKind, by *http.Client, renews bool) {
	defer by.CloseIdleConnections()
	tick := time.NewTicker(clientPause)
	defer tick.Stop()
	for n := 0; ; n++ {
		if renews && n%perConnection == 0 {
			by.CloseIdleConnections()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		gateway, closes, err := request(by, kind, fmt.Sprintf("/%d", n))
		l.mu.Lock()
		switch {
		case err != nil:
			at := time.Now().Format("15:04:05.000")
			l.wrong = append(l.wrong, fmt.Sprintf("%s %s, begun %s before: %v", at, kind.name, time.Since(began), err))
		default:
			l.now.kinds[kind.name]++
			l.now.gateways[gateway]++
			if closes && kind.kept {
				l.now.closings++
			}
		}
		l.mu.Unlock()
	}
}

// gatewayURI finds the identity of the last proxy in X-Forwarded-Client-Cert.
var gatewayURI = regexp.MustCompile(`URI=spiffe://cluster\.local/ns/edge/sa/([a-z-]+)(?:;|$)`)

// request posts once, and checks the answer of web. gateway is the service account of the gateway that sent the request
// to web by mutual TLS.
func request(by *http.Client, kind clientKind, path string) (gateway string, closes bool, err error) {
	scheme := map[bool]string{false: "http://", true: "https://"}[kind.tls]
	// net/http does not repeat a request whose body it cannot read again.
	r, err := http.NewRequest(http.MethodPost, scheme+shopHost+path, struct{ io.Reader }{strings.NewReader("once")})
	if err != nil {
		return "", false, err
	}
	got, err := by.Do(r)
	if err != nil {
		return "", false, err
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return "", false, err
	}
	var answer struct{ Name, Path, Caller string }
	var caller []string
	if err = json.Unmarshal(text, &answer); err == nil {
		caller = gatewayURI.FindStringSubmatch(answer.Caller)
	}
	if err != nil || got.StatusCode != http.StatusOK || answer.Name != "web" || answer.Path != path || caller == nil {
		return "", false, fmt.Errorf("%s %s: %.300s %v", got.Proto, got.Status, text, err)
	}
	if want := map[bool]int{false: 1, true: 2}[kind.h2]; got.ProtoMajor != want {
		return "", false, fmt.Errorf("%s was served", got.Proto)
	}
	return caller[1], got.Close, nil
}

// counted returns the present counts.
func (l *load) counted() counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return counts{maps.Clone(l.now.kinds), maps.Clone(l.now.gateways), l.now.dialled, l.now.closings}
}

// since returns the differences from earlier counts, and the failed requests that nobody has been told of.
func (l *load) since(was counts) (now counts, wrong []string) {
	now = l.counted()
	for of, before := range map[*map[string]int]map[string]int{&now.kinds: was.kinds, &now.gateways: was.gateways} {
		for key := range *of {
			(*of)[key] -= before[key]
		}
	}
	now.dialled -= was.dialled
	now.closings -= was.closings
	l.mu.Lock()
	defer l.mu.Unlock()
	wrong, l.wrong = l.wrong, nil
	return now, wrong
}

// String lists the counts in one line.
func (c counts) String() string {
	all, parts := 0, []string{}
	for _, kind := range slices.Sorted(maps.Keys(c.kinds)) {
		all += c.kinds[kind]
		parts = append(parts, fmt.Sprintf("%s %d", kind, c.kinds[kind]))
	}
	return fmt.Sprintf("%d requests (%s) by %v, %d kept connections made, %d ended by Connection: close",
		all, strings.Join(parts, ", "), c.gateways, c.dialled, c.closings)
}
