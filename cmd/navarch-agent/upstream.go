package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	caagent "navarch.io/navarch/ca/agent"
)

const plaintextPort = "15010"

// upstream contains the address and credentials of connections to the control plane.
type upstream struct {
	target    string // host:port
	plaintext bool
	rootCert  string // path of the roots file
	san       string // name in the control plane's certificate; empty: the host of target
	token     string // path of the token file; sent over TLS only
	headers   map[string]string
	identity  *caagent.Agent // supplies the client certificate and the mesh's roots; nil with plaintext
}

// credentials returns the credentials of a new connection. The roots file is read each time, because it is rotated
// while the agent runs. If identity is set, its roots verify the control plane instead of those in the file. Even then,
// credentials returns an error if the file has no readable root certificate. It also returns an error if target is
// needed for the server's name but is not host:port. It never falls back to plaintext, because anyone could then pose
// as the control plane.
func (u *upstream) credentials() (credentials.TransportCredentials, error) {
	if u.plaintext {
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(u.rootCert)
	if err != nil {
		return nil, fmt.Errorf("root certificate of the control plane: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("root certificate of the control plane: %s holds no certificate", u.rootCert)
	}
	name := u.san
	if name == "" {
		if name, _, err = net.SplitHostPort(u.target); err != nil {
			return nil, fmt.Errorf("discovery address %q: %w", u.target, err)
		}
	}
	if u.identity != nil {
		return credentials.NewTLS(u.identity.TLS(name)), nil
	}
	return credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}), nil
}

// metadata returns the headers of a new stream: the configured headers, and over TLS the bearer token. If the token
// file is absent, there is no token. It returns an error if the token file cannot be read.
func (u *upstream) metadata() (metadata.MD, error) {
	md := metadata.MD{}
	for k, v := range u.headers {
		md.Set(k, v)
	}
	if u.plaintext {
		return md, nil
	}
	b, err := os.ReadFile(u.token)
	if errors.Is(err, fs.ErrNotExist) {
		return md, nil
	}
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	if token := strings.TrimSpace(string(b)); token != "" {
		md.Set("authorization", "Bearer "+token)
	}
	return md, nil
}
