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

// clientHello is what a client says first in a TLS handshake.
func clientHello() ([]byte, error) {
	one, other := net.Pipe()
	defer one.Close()
	defer other.Close()
	go func() { _ = tls.Client(one, config(nil)).Handshake() }() // it ends with the pipe
	b := make([]byte, 16<<10)
	n, err := other.Read(b)
	if err != nil {
		return nil, fmt.Errorf("first message of TLS: %w", err)
	}
	return b[:n], nil
}

// config is that of a client who does not care who the server is.
func config(certificate *tls.Certificate) *tls.Config {
	c := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}}
	if certificate != nil {
		c.Certificates = []tls.Certificate{*certificate}
	}
	return c
}

// dial makes a TCP connection, which ends with the context.
func (w *attacker) dial(ctx context.Context) (net.Conn, error) { return w.dialTo(ctx, w.Addr) }

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

// client makes a gRPC connection, with the certificate or without. It is made at the first call, and its close ends it.
func (w *attacker) client(ctx context.Context, certificate *tls.Certificate) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+w.Addr, grpc.WithTransportCredentials(credentials.NewTLS(config(certificate))),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(codec{}), grpc.MaxCallRecvMsgSize(1<<30)),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return w.dial(ctx) }))
}

// wait reads and throws away what comes, until the server closes the connection or ctx ends.
func wait(ctx context.Context, conn io.Reader) string {
	_, _ = io.Copy(io.Discard, conn) // how it ended is in the context
	if ctx.Err() != nil {
		return kept
	}
	return closed
}
