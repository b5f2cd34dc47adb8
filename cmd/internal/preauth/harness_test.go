package preauth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/push/serve"
	"navarch.io/navarch/store/obs"
)

const patience = 30 * time.Second

// pair returns a self-signed certificate, and the pool with it.
func pair(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"},
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool
}

// harness is a gRPC server over TLS behind a limiter.
type harness struct {
	t       *testing.T
	limiter *Limiter
	address string
	log     *envoytest.Output
	cert    tls.Certificate
	roots   *x509.CertPool
	assign  Assign // of connections with the certificate
}

// The methods. gRPC reads the request of the first before its handler runs; the second authenticates the caller, and
// then reads.
const (
	anybody = "/test/Anybody"
	checked = "/test/Checked"
)

var tested = grpc.ServiceDesc{
	ServiceName: "test",
	HandlerType: (*any)(nil),
	Methods:     []grpc.MethodDesc{{MethodName: "Anybody", Handler: anybodyHandler}},
	Streams:     []grpc.StreamDesc{{StreamName: "Checked", ServerStreams: true, ClientStreams: true, Handler: checkedHandler}},
}

func anybodyHandler(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	in := &wrapperspb.BytesValue{}
	return in, decode(in)
}

func checkedHandler(_ any, stream grpc.ServerStream) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if got := md.Get("authorization"); len(got) != 1 || got[0] != "good" {
		return status.Error(codes.Unauthenticated, "no credential")
	}
	if err := Authenticated(stream.Context(), nil); err != nil {
		return err
	}
	for in := (&wrapperspb.BytesValue{}); ; {
		if err := stream.RecvMsg(in); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := stream.SendMsg(in); err != nil {
			return err
		}
	}
}

func start(t *testing.T, limits Limits) *harness {
	t.Helper()
	w := &harness{t: t, log: &envoytest.Output{}}
	w.cert, w.roots = pair(t)
	w.limiter = New(limits, obs.NewSampled(slog.New(slog.NewTextHandler(w.log, nil))))
	conf := &tls.Config{Certificates: []tls.Certificate{w.cert}, ClientCAs: w.roots, ClientAuth: tls.VerifyClientCertIfGiven,
		NextProtos: []string{"h2"}, SessionTicketsDisabled: true}
	admits := func(state tls.ConnectionState, _ net.Addr) (Assign, bool) {
		return w.assign, len(state.VerifiedChains) > 0
	}
	options := append(serve.Options(), w.limiter.Options()...)
	server := grpc.NewServer(append(options, grpc.Creds(w.limiter.Credentials(credentials.NewTLS(conf), admits)))...)
	server.RegisterService(&tested, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = l.Addr().String()
	done := make(chan error, 1)
	go func() { done <- server.Serve(serve.Listen(w.limiter.Listen(l))) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// raw opens a TCP connection from one of this machine's addresses.
func (w *harness) raw(from string) net.Conn {
	w.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.Dial("tcp", w.address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

func (w *harness) tls() *tls.Config {
	return &tls.Config{RootCAs: w.roots, ServerName: "localhost", NextProtos: []string{"h2"}}
}

// hello returns the first message of a client in a TLS handshake.
func (w *harness) hello() []byte {
	one, other := net.Pipe()
	defer one.Close()
	go func() { _ = tls.Client(one, w.tls()).Handshake() }()
	b := make([]byte, 16<<10)
	n, err := other.Read(b)
	if err != nil {
		w.t.Fatal(err)
	}
	other.Close()
	return b[:n]
}

// ended waits until the server has closed a connection.
func (w *harness) ended(what string, c net.Conn) {
	w.t.Helper()
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		w.t.Errorf("%s: the connection is still open", what)
	}
}

// open reports whether a connection on which the server sends nothing is still open.
func (w *harness) open(c net.Conn) bool {
	w.t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return false
	}
	_, err := io.Copy(io.Discard, c)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	return errors.Is(err, os.ErrDeadlineExceeded)
}

// client returns a gRPC client that connects from one of this machine's addresses, with the certificate if certified is
// true.
func (w *harness) client(from string, certified bool) *grpc.ClientConn {
	w.t.Helper()
	conf := w.tls()
	if certified {
		conf.Certificates = []tls.Certificate{w.cert}
	}
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	conn, err := grpc.NewClient("passthrough:///"+w.address, grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithDisableServiceConfig(),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) { return d.DialContext(ctx, "tcp", to) }))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// ask sends `size` bytes to Checked, with this token.
func ask(ctx context.Context, conn *grpc.ClientConn, token string, size int) error {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "authorization", token), patience)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, checked)
	if err != nil {
		return err
	}
	in, out := &wrapperspb.BytesValue{Value: make([]byte, size)}, &wrapperspb.BytesValue{}
	if err := stream.SendMsg(in); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := stream.RecvMsg(out); err != nil {
		return err
	}
	if len(out.GetValue()) != size {
		return errors.New("another message came back")
	}
	return nil
}

// served wants a good client from an address to be served.
func (w *harness) served(what, from string) *grpc.ClientConn {
	w.t.Helper()
	conn := w.client(from, false)
	if err := ask(w.t.Context(), conn, "good", 10); err != nil {
		w.t.Errorf("%s: a good client is not served: %v", what, err)
	}
	return conn
}

// http2Client speaks HTTP/2 by hand, over TLS.
type http2Client struct {
	t *testing.T
	*http2.Framer
	conn   net.Conn
	next   uint32 // stream
	encode *hpack.Encoder
	block  bytes.Buffer
}

func (w *harness) http2(from string, certificates ...tls.Certificate) *http2Client {
	w.t.Helper()
	conf := w.tls()
	conf.Certificates = certificates
	over := tls.Client(w.raw(from), conf)
	_, _ = io.WriteString(over, http2.ClientPreface) // the server may have hung up: so for all that is written
	c := &http2Client{t: w.t, conn: over, next: 1, Framer: http2.NewFramer(over, over)}
	c.encode = hpack.NewEncoder(&c.block)
	c.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = c.WriteSettings()
	return c
}

// call begins a call with more headers.
func (c *http2Client) call(method string, more ...hpack.HeaderField) (stream uint32) {
	c.block.Reset()
	for _, f := range append([]hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "https"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}, more...) {
		if err := c.encode.WriteField(f); err != nil {
			c.t.Fatal(err)
		}
	}
	stream = c.next
	c.next += 2
	rest, first := c.block.Bytes(), true
	for first || len(rest) > 0 {
		part := rest[:min(len(rest), 16<<10)]
		rest = rest[len(part):]
		if first {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndHeaders: len(rest) == 0})
		} else {
			_ = c.WriteContinuation(stream, len(rest) == 0, part)
		}
		first = false
	}
	return stream
}

// answer returns the end of a call: its grpc-status, the name of the error code of its reset, or the reason why the
// connection ended.
func (c *http2Client) answer(stream uint32) string {
	for {
		f, err := c.ReadFrame()
		if err != nil {
			return "the connection ended"
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			return f.ErrCode.String()
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" {
					return h.Value
				}
			}
		}
	}
}
