package cluster

import (
	"cmp"
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
)

// Pod is one that ports can be connected to. Its methods may be called from any goroutine.
type Pod struct {
	Namespace, Name string
	Account         string // service account
	Revision        string // label istio.io/rev; empty: it has none
	Monitoring      int    // port of metrics and debug pages
	of              *Cluster

	mu       sync.Mutex            // guards link, and is held while it is made
	link     httpstream.Connection // nil: there is none yet
	requests atomic.Int64
}

// monitoringPort is istiod's; a Pod may name another one to Prometheus, which istioctl goes by too.
const monitoringPort = 15014

// Pod is one of the cluster's, as the API server shows it. Nothing is connected before Dial.
func (c *Cluster) Pod(pod *corev1.Pod) *Pod {
	p := &Pod{Namespace: pod.Namespace, Name: pod.Name, Account: pod.Spec.ServiceAccountName, Revision: pod.Labels[label.IoIstioRev.Name], Monitoring: monitoringPort, of: c}
	if port, err := strconv.ParseUint(pod.Annotations["prometheus.io/port"], 10, 16); err == nil && port > 0 {
		p.Monitoring = int(port)
	}
	return p
}

// String is how the Pod is called in messages.
func (p *Pod) String() string { return "Pod " + p.Namespace + "/" + p.Name }

// Client is for HTTP requests to the Pod, over connections to the port that the URL names; its host is to be localhost.
func (p *Pod) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return nil, err
		}
		return p.Dial(ctx, number)
	}}}
}

// Dial connects to a port of the Pod's network namespace, where the connection comes from loopback. Errors name the Pod, and the context of the
// kubeconfig. That nobody listens on the port is the error of the first read, or write.
func (p *Pod) Dial(ctx context.Context, port int) (net.Conn, error) {
	ended := func() error { return fmt.Errorf("%s, port %d, by %s: %w", p, port, p.of, ctx.Err()) }
	if ctx.Err() != nil { // a link that stands could be quicker than the select below
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
	case <-ctx.Done(): // the library knows no contexts
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
	_ = failures.Close() // nothing is written to it
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := link.CreateStream(headers)
	if err != nil { // the node may have given up before it was asked for
		err = cmp.Or(p.said(failures, port), err)
		_ = failures.Reset()
		link.RemoveStreams(failures)
		return fail(err)
	}
	near, far := net.Pipe()
	c := &conn{Conn: near, data: data}
	go c.carry(link, failures, far, func() error { return failure(failures, p, port) })
	return c, nil
}

// said is why the node does not connect to a port, if it says so within failureLag; nil: it does not.
func (p *Pod) said(failures httpstream.Stream, port int) error {
	done := make(chan error, 1)
	go func() { done <- failure(failures, p, port) }() // ends with the stream
	select {
	case err := <-done:
		return err
	case <-time.After(failureLag):
		return nil
	}
}

// failure is what the node says of a port until its stream of failures ends; nil: nothing.
func failure(failures io.Reader, p *Pod, port int) error {
	text, _ := io.ReadAll(io.LimitReader(failures, mostOfFailure))
	if len(text) == 0 {
		return nil
	}
	return fmt.Errorf("%s, port %d: %.300q", p, port, text)
}

// connect is the link to the Pod, which all of its connections share: SPDY over a websocket, or SPDY alone where the API server knows no other.
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
	at, err := url.Parse(p.of.API.Address() + "/api/v1/namespaces/" + url.PathEscape(p.Namespace) + "/pods/" + url.PathEscape(p.Name) + "/portforward")
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
		return errors.New("the API server redirects, which is not followed") // the transport adds the credential to whatever is asked
	}}
	dialer := portforward.NewFallbackDialerForStreaming(websockets, spdy.NewDialerForStreaming(upgrader, client, http.MethodPost, at), func(err error) bool {
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

// Close ends all connections to the Pod.
func (p *Pod) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link != nil {
		_ = p.link.Close()
		p.link = nil
	}
}

// conn is a connection to a port: a pipe, whose other end is carried by streams of the link.
type conn struct {
	net.Conn
	data   httpstream.Stream
	failed atomic.Pointer[error] // what the node said
}

// Read implements net.Conn.
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	return n, c.because(err)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	return n, c.because(err)
}

// because is what the node said, where that is why a connection ended.
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

// mostOfFailure bounds what a node may say of why it cannot connect, in bytes; failureLag is how long its words may come after the end of the data.
const (
	mostOfFailure = 4 << 10
	failureLag    = time.Second
)

// carry copies both ways until both have ended; why is what the node says of that.
func (c *conn) carry(link httpstream.Connection, failures httpstream.Stream, far net.Conn, why func() error) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		if err := why(); err != nil {
			c.failed.Store(&err)
			_ = far.Close()
		}
	}()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(far, c.data) // an error ends the connection, as an end does
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
