package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"
)

// askTimeout bounds one request to the CA. By default, the CA may queue a request for up to 20 s.
const askTimeout = 25 * time.Second

// maxToken bounds a token, in bytes.
const maxToken = 64 << 10

// holdersMethod is the CA's gRPC method for reports of acknowledged roots. It equals ca/serve.HoldersMethod.
const holdersMethod = "/navarch.ca.v1.Holders/Report"

// TLS returns a client configuration for one connection to the control plane. The server's certificate must name
// serverName and chain to one of the roots that the method Roots returns now. If serverName is empty, the transport
// must set the configuration's ServerName, as gRPC does. The client certificate is the certificate in use; before the
// first certificate there is no client certificate. Later roots and certificates do not change the configuration, so
// each connection needs its own call of TLS. The caller owns the result, but must not modify the client certificate.
func (a *Agent) TLS(serverName string) *tls.Config {
	conf := a.verifying(serverName)
	if id := a.current.Load(); id != nil {
		conf.Certificates = []tls.Certificate{id.cert}
	}
	return conf
}

func (a *Agent) verifying(serverName string) *tls.Config {
	pool := x509.NewCertPool()
	for _, r := range a.Roots() {
		pool.AddCert(r)
	}
	return &tls.Config{RootCAs: pool, ServerName: serverName, MinVersion: tls.VersionTLS12}
}

// dial returns a connection to the CA for one request. The CA's certificate must chain to the current roots. With
// byCertificate, the connection presents the certificate in use.
func (a *Agent) dial(with credential) (*grpc.ClientConn, error) {
	conf := a.verifying(a.cfg.ServerName)
	if with == byCertificate {
		id := a.current.Load()
		if id == nil {
			return nil, errors.New("no token file is configured, and no certificate is in use")
		}
		conf.Certificates = []tls.Certificate{id.cert}
	}
	return grpc.NewClient(a.cfg.Address, grpc.WithTransportCredentials(credentials.NewTLS(conf)), grpc.WithDisableServiceConfig())
}

// create requests a certificate from the CA.
func (a *Agent) create(ctx context.Context, csr []byte, with credential) ([]string, error) {
	pairs := []string{}
	for k, v := range a.cfg.Metadata {
		pairs = append(pairs, k, v)
	}
	if with == byToken {
		token, err := a.token()
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, "authorization", "Bearer "+token)
	}
	conn, err := a.dial(with)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, pairs...), askTimeout)
	defer cancel()
	r := &securityv1.IstioCertificateRequest{Csr: string(csr), ValidityDuration: int64(a.cfg.TTL / time.Second)}
	resp, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("request a certificate from %s: %w", a.cfg.Address, err)
	}
	return resp.GetCertChain(), nil
}

// token reads the token file at each call, since the kubelet replaces the file. Errors contain no part of the token.
func (a *Agent) token() (string, error) {
	text, err := os.ReadFile(a.cfg.TokenFile)
	if err != nil {
		return "", fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	switch {
	case token == "":
		return "", fmt.Errorf("token: %s is empty", a.cfg.TokenFile)
	case len(token) > maxToken:
		return "", fmt.Errorf("token: %s has %d bytes, at most %d are sent", a.cfg.TokenFile, len(token), maxToken)
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("token: %s contains a space, a control character or a non-ASCII character", a.cfg.TokenFile)
	}
	return token, nil
}

// acknowledged passes the fingerprints of the roots that Envoy acknowledged to sendReports. If sendReports has not
// received an earlier set yet, the new set replaces it.
func (a *Agent) acknowledged(roots []string) {
	if a.cfg.held != nil {
		a.cfg.held(roots)
	}
	for { // several streams may acknowledge at once
		select {
		case a.held <- roots:
			return
		default:
		}
		select {
		case <-a.held:
		default:
		}
	}
}

// reportPause is the pause between attempts to report acknowledged roots to the CA.
const reportPause = 5 * time.Second

// sendReports reports acknowledged root fingerprints to the CA until ctx ends, and then returns nil. A set equal to the
// last accepted one is not sent. A failed report is repeated until it succeeds or a newer set replaces it. If the CA
// does not know the method (Unimplemented), the set counts as accepted.
func (a *Agent) sendReports(ctx context.Context) error {
	var reported, pending []string
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case pending = <-a.held:
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if len(pending) == 0 || slices.Equal(pending, reported) {
			continue
		}
		switch err := a.cfg.report(ctx, pending); {
		case err == nil, status.Code(err) == codes.Unimplemented: // a CA that is not Navarch's
			reported = pending
		default:
			if ctx.Err() == nil {
				a.cfg.Log.Warn("report of acknowledged roots failed and will be repeated", "error", err)
			}
			timer.Reset(reportPause)
		}
	}
}

func (a *Agent) report(ctx context.Context, roots []string) error {
	conn, err := a.dial(byCertificate)
	if err != nil {
		return err
	}
	defer conn.Close()
	list := &structpb.ListValue{}
	for _, r := range roots {
		list.Values = append(list.Values, structpb.NewStringValue(r))
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return conn.Invoke(ctx, holdersMethod, list, &emptypb.Empty{})
}
