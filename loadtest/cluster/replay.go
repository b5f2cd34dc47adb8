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

// Replay stands for the API servers of any number of clusters that have what one real cluster has. What it is asked for the first time it asks the
// real API server; lists and watches are recorded as they come, byte by byte, and whoever asks for the same later is given that record, and what is added
// to it. Whatever else it is asked goes to the real API server.
type Replay struct {
	server   *httptest.Server
	config   *rest.Config // of the real API server
	upstream *http.Client
	pass     *httputil.ReverseProxy
	ctx      context.Context // ends with Close
	end      context.CancelFunc

	mu       sync.Mutex // guards what follows
	recorded map[string]*record
}

// Replay starts an address at which others are served as this cluster; Close ends it, before the cluster's. An error: the administrator's
// configuration makes no client.
func (c *Cluster) Replay() (*Replay, error) {
	config := c.plane.Config()
	config.WrapTransport = nil
	// As it comes: a transport that unpacks answers by itself would say so in no header.
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	r := &Replay{config: config, upstream: &http.Client{Transport: transport}, pass: httputil.NewSingleHostReverseProxy(to), recorded: map[string]*record{}}
	r.pass.Transport = transport
	r.ctx, r.end = context.WithCancel(context.Background())
	r.server = httptest.NewUnstartedServer(r)
	r.server.EnableHTTP2 = true                           // as API servers have it
	r.server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that end with Close
	r.server.StartTLS()
	return r, nil
}

// Address is how any of the clusters is reached.
func (r *Replay) Address() Address {
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.server.Certificate().Raw})
	return Address{&rest.Config{Host: r.server.URL, BearerToken: r.config.BearerToken, TLSClientConfig: rest.TLSClientConfig{CAData: root}}}
}

// Close ends all connections.
func (r *Replay) Close() {
	r.end()
	r.server.CloseClientConnections()
	r.server.Close()
}

// record is the answer to one request, as far as it has come.
type record struct {
	mu     sync.Mutex // guards what follows
	status int        // 0: it has not begun
	header http.Header
	body   []byte
	ended  bool
	grown  chan struct{} // closed when there is more
}

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
			for name, values := range c.header { // it does not change any more
				w.Header()[name] = values
			}
			w.WriteHeader(status)
		}
		if begun {
			if _, err := w.Write(more); err != nil || http.NewResponseController(w).Flush() != nil {
				return // the client has gone
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

// record is the one for a request, begun now where there is none. Watches differ in how long they are to last at most, by chance.
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

// fill records an answer until it ends. What is no answer that others may have, is forgotten.
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
	for _, name := range []string{"Accept", "Accept-Encoding"} { // asked for by name, it comes as it was packed
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
