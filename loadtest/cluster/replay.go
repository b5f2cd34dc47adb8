package cluster

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"

	"k8s.io/client-go/rest"
)

// Replay simulates the API servers of any number of clusters with the content of one real cluster. It passes the first
// list or watch of its kind on to the real API server and records the response byte by byte. Later equal requests get
// the recorded bytes, and those that are added to the record. All other requests go to the real API server.
type Replay struct {
	server   *httptest.Server
	config   *rest.Config // of the real API server
	upstream *http.Client
	pass     *httputil.ReverseProxy
	ctx      context.Context // cancelled by Close
	end      context.CancelFunc

	mu       sync.Mutex // guards the field below
	recorded map[string]*record
}

// Replay starts an address that serves the content of this cluster as that of others. Close ends it, before the cluster
// is closed. The error reports that the administrator's configuration yields no client.
func (c *Cluster) Replay() (*Replay, error) {
	config := c.plane.Config()
	config.WrapTransport = nil
	// Unchanged encoding: a transport that decompresses responses removes the header that announces the compression.
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	r := &Replay{config: config, upstream: &http.Client{Transport: transport},
		pass: httputil.NewSingleHostReverseProxy(to), recorded: map[string]*record{}}
	r.pass.Transport = transport
	r.ctx, r.end = context.WithCancel(context.Background())
	r.server = httptest.NewUnstartedServer(r)
	r.server.EnableHTTP2 = true                           // as in API servers
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // discards errors of connections that Close ends
	r.server.StartTLS()
	return r, nil
}

// Address returns the address of any of the simulated clusters.
func (r *Replay) Address() Address {
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	return Address{&rest.Config{Host: r.server.URL, BearerToken: r.config.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: root}}}
}

// Close ends the server and all connections.
func (r *Replay) Close() {
	r.end()
	r.server.CloseClientConnections()
	r.server.Close()
}

// record is the recorded part of the response to one request.
type record struct {
	mu     sync.Mutex // guards the fields below
	status int        // 0: no response yet
	header http.Header
	body   []byte
	ended  bool
	grown  chan struct{} // closed when the body grows
}

// change applies f under the lock and wakes the readers.
func (c *record) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.grown)
	c.grown = make(chan struct{})
}

// ServeHTTP implements http.Handler.
func (r *Replay) ServeHTTP(w http.ResponseWriter, ask *http.Request) {
	if ask.Method != http.MethodGet {
		r.pass.ServeHTTP(w, ask)
		return
	}
	c := r.record(ask)
	for sent, begun := 0, false; ; {
		c.mu.Lock()
		status, more, ended, grown := c.status, c.body[sent:], c.ended, c.grown
		c.mu.Unlock()
		if status != 0 && !begun {
			begun = true
			for name, values := range c.header { // the headers do not change after the first byte
				w.Header()[name] = values
			}
			w.WriteHeader(status)
		}
		if begun {
			if _, err := w.Write(more); err != nil || http.NewResponseController(w).Flush() != nil {
				return // the client is gone
			}
			sent += len(more)
		}
		if ended {
			return
		}
		select {
		case <-grown:
		case <-ask.Context().Done():
			return
		}
	}
}

// record returns the record of a request, and begins one at the first request. Timeouts of watches are not compared:
// clients choose them at random.
func (r *Replay) record(ask *http.Request) *record {
	query := ask.URL.Query()
	query.Del("timeoutSeconds")
	key := ask.URL.Path + "?" + query.Encode() + " " + ask.Header.Get("Accept") + " " + ask.Header.Get("Accept-Encoding")
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.recorded[key]
	if c == nil {
		c = &record{grown: make(chan struct{})}
		r.recorded[key] = c
		again := ask.Clone(r.ctx)
		again.URL.RawQuery = query.Encode()
		go r.fill(key, c, again)
	}
	return c
}

// fill records a response until it ends. A failed response is discarded.
func (r *Replay) fill(key string, c *record, ask *http.Request) {
	err := r.read(c, ask)
	c.mu.Lock()
	failed := err != nil || c.status != http.StatusOK
	c.mu.Unlock()
	if failed {
		r.mu.Lock()
		delete(r.recorded, key)
		r.mu.Unlock()
	}
	c.change(func() {
		if c.ended = true; c.status == 0 {
			c.status = http.StatusBadGateway
		}
	})
}

func (r *Replay) read(c *record, ask *http.Request) error {
	to, err := http.NewRequestWithContext(ask.Context(), http.MethodGet, r.config.Host+ask.URL.RequestURI(), nil)
	if err != nil {
		return err
	}
	for _, name := range []string{"Accept", "Accept-Encoding"} { // with an explicit header the transport does not decompress
		if v := ask.Header.Get(name); v != "" {
			to.Header.Set(name, v)
		}
	}
	res, err := r.upstream.Do(to)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	c.change(func() { c.status, c.header = res.StatusCode, res.Header.Clone() })
	part := make([]byte, 64<<10)
	for {
		n, err := res.Body.Read(part)
		if n > 0 {
			c.change(func() { c.body = append(c.body, part[:n]...) })
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
