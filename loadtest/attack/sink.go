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

// Sink is a gRPC server on loopback that takes whatever is sent, answers each message with an empty one, and keeps nothing.
// Attackers that are aimed at it have the same to do as with a real one, and the real one has none of it. It stands in their
// process, so that what it costs is theirs: a limit on their processor time holds for both. pages is a server of HTTP of the same kind, and webhooks
// one over TLS. stop ends them. An error: there is no key or no port to be had; nothing serves then.
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

// servePages answers each request with nothing.
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
	conf := &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)), grpc.UnknownServiceHandler(swallow), grpc.ForceServerCodec(nothing{}),
		grpc.MaxRecvMsgSize(16<<20), grpc.ReadBufferSize(4<<10), grpc.WriteBufferSize(4<<10))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends with Stop
	}()
	return func() { server.Stop(); <-done }
}

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

// nothing is what all messages of the sink are.
type nothing struct{}

func (nothing) Name() string                { return "proto" }
func (nothing) Marshal(any) ([]byte, error) { return nil, nil }
func (nothing) Unmarshal([]byte, any) error { return nil }

// selfSigned is a certificate that nobody verifies.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
