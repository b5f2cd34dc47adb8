package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// clientHello returns the first message of a client in a TLS handshake.
func clientHello() ([]byte, error) {
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	go func() { _ = tls.Client(one, config(nil)).Handshake() }() // ends with the pipe
	b := make([]byte, 16<<10)
	n, err := other.Read(b)
	if err != nil {
		return nil, fmt.Errorf("first message of TLS: %w", err)
	}
	return b[:n], nil
}

// config returns the TLS configuration of a client that does not verify the server.
func config(certificate *tls.Certificate) *tls.Config {
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2"}, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}}
	if certificate != nil {
		c.Certificates = []tls.Certificate{*certificate}
	}
	return c
}

// dial opens a TCP connection to Config.Addr, which is closed when ctx ends.
func (w *attacker) dial(ctx context.Context) (net.Conn, error) { return w.dialTo(ctx, w.Addr) }

// dialTo opens a TCP connection from Config.From to addr, which is closed when ctx ends.
func (w *attacker) dialTo(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1}
	if w.From != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(w.From)}
	}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// client returns a gRPC connection, with the certificate or without one (nil). It connects at the first call.
func (w *attacker) client(ctx context.Context, certificate *tls.Certificate) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+w.Addr, grpc.WithTransportCredentials(credentials.NewTLS(config(certificate))),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(1<<30)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return w.dial(ctx) }))
}

// wait reads and discards data until the server closes the connection or ctx ends, and returns the result of the try.
func wait(ctx context.Context, conn io.Reader) string {
	_, _ = io.Copy(io.Discard, conn) // ctx tells how it ended
	if ctx.Err() != nil {
		return kept
	}
	return closed
}
