package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/push/xds"
)

const controlName = "istiod.istio-system.svc"

// operator is a serving certificate that does not come from the mesh's CA.
type operator struct {
	cert, key string // files
	tls       *tls.Config
}

func newOperator(t *testing.T, dir string) operator {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{controlName}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	o := operator{cert: filepath.Join(dir, "operator-cert.pem"), key: filepath.Join(dir, "operator-key.pem")}
	for path, block := range map[string]*pem.Block{o.cert: {Type: "CERTIFICATE", Bytes: der}, o.key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	o.tls = &tls.Config{RootCAs: pool, ServerName: controlName}
	return o
}

// as speaks to a replica with the client's token.
func (r *turning) as(ctx context.Context, address string, conf *tls.Config, do func(context.Context, *grpc.ClientConn) error) error {
	token, err := os.ReadFile(filepath.Join(r.places[r.front.pod].config, "token"))
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return do(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+string(trim(token))), conn)
}

func trim(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == '\n' {
		b = b[:len(b)-1]
	}
	return b
}

// certificate requests a certificate from a replica.
func (r *turning) certificate(ctx context.Context, address string, conf *tls.Config) error {
	return r.as(ctx, address, conf, func(ctx context.Context, conn *grpc.ClientConn) error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
		if err != nil {
			return err
		}
		_, err = securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx, &securityv1.IstioCertificateRequest{
			Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))})
		return err
	})
}

// signs returns an error unless a replica issues certificates, under a serving certificate of the mesh's CA.
func (r *turning) signs(ctx context.Context, one *replica) error {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(r.operate("roots")))
	return r.certificate(ctx, one.secure, &tls.Config{RootCAs: pool, ServerName: controlName})
}

// serves wants the client's clusters from a replica.
func (r *turning) serves(ctx context.Context, one *replica, conf *tls.Config) error {
	return r.as(ctx, one.secure, conf, func(ctx context.Context, conn *grpc.ClientConn) error {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err != nil {
			return err
		}
		node := &corev3.Node{Id: fmt.Sprintf("sidecar~%s~%s.%s~%s.svc.cluster.local", r.front.ip, r.front.pod, r.front.namespace, r.front.namespace)}
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: xds.Cluster.URL()}); err != nil {
			return err
		}
		res, err := stream.Recv()
		if err == nil && len(res.Resources) < 5 {
			err = fmt.Errorf("%d clusters", len(res.Resources))
		}
		return err
	})
}
