package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"istio.io/api/label"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"navarch.io/navarch/cmd/navarchctl/progress"
)

// Pod is a Pod whose ports can be dialled. Any goroutine may call its methods.
type Pod struct {
	Namespace, Name string
	Account         string // service account
	Revision        string // label istio.io/rev; empty: the Pod has no such label
	Monitoring      int    // port of metrics and debug pages, by annotation prometheus.io/port; default: 15014
	of              *Cluster

	mu       sync.Mutex            // guards link; held while the link is made
	link     httpstream.Connection // the connection that all Dials share; nil: not connected yet
	requests atomic.Int64
}

// monitoringPort is the default of Pod.Monitoring, and istiod's port of metrics and debug pages. As in istioctl, a
// Pod's annotation prometheus.io/port overrides it.
const monitoringPort = 15014

// Pod returns a Pod for the given API object. It sends no request, and does not keep the object. The first Dial
// connects to the API server. The caller must call Close.
func (c *Cluster) Pod(pod *corev1.Pod) *Pod {
	p := &Pod{Namespace: pod.Namespace, Name: pod.Name, Account: pod.Spec.ServiceAccountName,
		Revision: pod.Labels[label.IoIstioRev.Name], Monitoring: monitoringPort, of: c}
	if port, err := strconv.ParseUint(pod.Annotations["prometheus.io/port"], 10, 16); err == nil && port > 0 {
		p.Monitoring = int(port)
	}
	return p
}

// String returns "Pod NAMESPACE/NAME", for messages.
func (p *Pod) String() string { return "Pod " + p.Namespace + "/" + p.Name }

// Client returns an HTTP client for requests to the Pod, without a time limit. The host of a URL should be localhost.
// The port of the URL selects the Pod's port. Each call returns another client, with its own idle connections.
func (p *Pod) Client() *http.Client {
	dial := func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		return p.Dial(ctx, number)
	}
	return &http.Client{Transport: progress.Transport(&http.Transport{DialContext: dial})}
}

// Dial connects to a port of the Pod. The Pod sees a connection from the loopback address of its network namespace.
// Dial blocks until the connection is made or ctx ends. The caller must close the connection. Dial fails if the API
// server cannot be reached or refuses the port-forward, if the node reports a failure of the port, or if ctx ends. An
// error names the Pod and the port. If no process listens on the port, Dial may succeed nevertheless. A later Read then
// fails.
func (p *Pod) Dial(ctx context.Context, port int) (net.Conn, error) {
	ended := func() error { return fmt.Errorf("%s, port %d, by %s: %w", p, port, p.of, ctx.Err()) }
	if ctx.Err() != nil { // dialling over an existing link could finish first in the select below
		return nil, ended()
	}
	type made struct {
		conn net.Conn
		err  error
	}
	done := make(chan made, 1)
	go func() {
		conn, err := p.dial(port)
		done <- made{conn, err}
	}()
	select {
	case m := <-done:
		return m.conn, m.err
	case <-ctx.Done(): // the library for port-forwards accepts no context
		go func() {
			if m := <-done; m.conn != nil {
				_ = m.conn.Close()
			}
		}()
		return nil, ended()
	}
}

func (p *Pod) dial(port int) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, fmt.Errorf("%s, port %d, by %s: %w", p, port, p.of, err)
	}
	link, err := p.connect()
	if err != nil {
		return fail(err)
	}
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, strconv.FormatInt(p.requests.Add(1), 10))
	failures, err := link.CreateStream(headers)
	if err != nil {
		return fail(err)
	}
	_ = failures.Close() // nothing is written to this stream
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := link.CreateStream(headers)
	if err != nil { // the node may have reported a failure of the port already
		said := p.said(failures, port)
		_ = failures.Reset()
		link.RemoveStreams(failures)
		if said != nil { // the node's message names the Pod and the port
			return nil, said
		}
		return fail(err)
	}
	near, far := net.Pipe()
	c := &conn{Conn: near, data: data}
	go c.carry(link, failures, far, func() error { return failure(failures, p, port) })
	return c, nil
}

// said returns the node's message about a failure to connect to a port. It returns nil if no message arrives within
// failureLag, or if the stream ends without a message.
func (p *Pod) said(failures httpstream.Stream, port int) error {
	done := make(chan error, 1)
	go func() { done <- failure(failures, p, port) }() // ends when the stream ends
	select {
	case err := <-done:
		return err
	case <-time.After(failureLag):
		return nil
	}
}

// failure returns the node's message about a failed port as an error, or nil if the stream in the parameter failures
// ends without a message. It blocks until this stream ends.
func failure(failures io.Reader, p *Pod, port int) error {
	text, _ := io.ReadAll(io.LimitReader(failures, mostOfFailure))
	if len(text) == 0 {
		return nil
	}
	return fmt.Errorf("%s, port %d: %.300q", p, port, text)
}

// connect returns the link to the Pod, which all connections to the Pod share. The link is SPDY over a websocket, or
// SPDY alone if the API server does not support websockets.
func (p *Pod) connect() (httpstream.Connection, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		select {
		case <-p.link.CloseChan():
		default:
			return p.link, nil
		}
	}
	at, err := url.Parse(p.of.API.Address() + "/api/v1/namespaces/" +
		url.PathEscape(p.Namespace) + "/pods/" + url.PathEscape(p.Name) + "/portforward")
	if err != nil {
		return nil, err
	}
	websockets, err := portforward.NewSPDYOverWebsocketDialerForStreaming(at, p.of.config)
	if err != nil {
		return nil, err
	}
	transport, upgrader, err := spdy.RoundTripperFor(p.of.config)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		// the transport would add the credential to the redirected request
		return errors.New("the API server redirects, which is not followed")
	}}
	dialer := portforward.NewFallbackDialerForStreaming(websockets,
		spdy.NewDialerForStreaming(upgrader, client, http.MethodPost, at), func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
	link, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return nil, fmt.Errorf("port-forward: %w", err)
	}
	if protocol != portforward.PortForwardProtocolV1Name {
		return nil, errors.Join(fmt.Errorf("port-forward: the API server offers the protocol %q", protocol), link.Close())
	}
	p.link = link
	return link, nil
}

// Close ends all connections to the Pod. If a Dial is connecting to the API server, Close waits for it first. A later
// Dial connects again.
func (p *Pod) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		_ = p.link.Close()
		p.link = nil
	}
}

// conn is a connection to a port. It is one end of a pipe. The method carry copies data between the other end and the
// stream in the field data.
type conn struct {
	net.Conn
	data   httpstream.Stream
	failed atomic.Pointer[error] // the node's message about a failure; nil: no failure was reported
}

// Read implements net.Conn. If the node reported a failure, a returned error is the node's message.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.because(err)
}

// Write implements net.Conn. If the node reported a failure, a returned error is the node's message.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.because(err)
}

// because returns the node's message instead of err, if the node reported a failure. It returns nil if err is nil.
func (c *conn) because(err error) error {
	if failed := c.failed.Load(); err != nil && failed != nil {
		return *failed
	}
	return err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	return errors.Join(err, c.data.Reset())
}

// mostOfFailure is the maximum size of a node's message in bytes. failureLag is the time to wait for the message after
// the data has ended.
const (
	mostOfFailure = 4 << 10
	failureLag    = time.Second
)

// carry copies data between the connection far and the stream c.data, until both directions have ended. The callback
// wait must block until the node reports a failure, and return the failure. If the stream in the parameter failures
// ends without a report, wait must return nil.
func (c *conn) carry(link httpstream.Connection, failures httpstream.Stream, far net.Conn, wait func() error) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		if err := wait(); err != nil {
			c.failed.Store(&err)
			_ = far.Close()
		}
	}()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(far, c.data) // after an error the connection is closed, as after EOF
		select {
		case <-said:
		case <-time.After(failureLag):
		}
		_ = far.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(c.data, far)
		_ = c.data.Close()
	})
	both.Wait()
	_ = failures.Reset()
	link.RemoveStreams(c.data, failures)
}
