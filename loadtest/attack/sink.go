package attack

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// Sink starts a gRPC server on loopback that accepts all messages and answers each with an empty one. It is the target
// for measuring the attackers' own cost, since they do the same work as against a real server. It runs in their
// process, so a limit on their processor time includes it. pages is the address of such a server for HTTP, webhooks of
// one for HTTP over TLS. stop ends all three. The error reports that there is no key or port; no server runs then.
func Sink() (addr, pages, webhooks string, stop func(), err error) {
	pair, err := selfSigned()
	if err != nil {
		return "", "", "", nil, fmt.Errorf("sink: %w", err)
	}
	var all [3]net.Listener
	for i := range all {
		if all[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			for _, l := range all[:i] {
				l.Close()
			}
			return "", "", "", nil, fmt.Errorf("sink: %w", err)
		}
	}
	calls, plain := serve(all[0], pair), servePages(all[1])
	secure := servePages(tls.NewListener(all[2], &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}))
	return all[0].Addr().String(), all[1].Addr().String(), all[2].Addr().String(), func() { calls(); plain(); secure() }, nil
}

// servePages answers each request with an empty response.
func servePages(l net.Listener) (stop func()) {
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ErrorLog: log.New(io.Discard, "", 0)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Close
	}()
	return func() { _ = server.Close(); <-done }
}

func serve(l net.Listener, pair tls.Certificate) (stop func()) {
	conf := &tls.Config{Certificates: []tls.Certificate{pair},
		ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)), grpc.UnknownServiceHandler(swallow), grpc.ForceServerCodec(nothing{}),
		grpc.MaxRecvMsgSize(16<<20), grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Stop
	}()
	return func() { server.Stop(); <-done }
}

// swallow reads all messages of a stream and answers each with an empty one.
func swallow(_ any, s grpc.ServerStream) error {
	for {
		if err := s.RecvMsg(nil); errors.Is(err, io.EOF) || errors.Is(s.Context().Err(), context.Canceled) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.SendMsg(nil); err != nil {
			return err
		}
	}
}

// nothing is the codec of the sink: all messages are empty, and encoding never fails.
type nothing struct{}

func (nothing) Name() string { return "proto" }

// Marshal implements encoding.Codec.
func (nothing) Marshal(any) ([]byte, error) { return nil, nil }

// Unmarshal implements encoding.Codec.
func (nothing) Unmarshal([]byte, any) error { return nil }

// selfSigned returns a self-signed certificate.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
