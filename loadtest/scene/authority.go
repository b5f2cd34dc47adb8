package scene

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/structpb"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/loadtest/proxy"
)

// Authority is a CA from which proxies get their certificates as agents do, by a token of their service account.
type Authority struct {
	Addr  string `json:"addr"`  // of istio.v1.auth.IstioCertificateService
	Roots string `json:"roots"` // PEM file with the CA's initial roots
	Key   string `json:"key"`   // file of the key that signs tokens
	// EachPod provides each proxy with a token that is bound to its Pod, and a certificate of its own, as in Kubernetes.
	// Otherwise the proxies of an account share both.
	EachPod bool `json:"each_pod,omitempty"`
}

// The issuer of the harness's tokens, and its files.
const (
	tokenIssuer           = "https://load.harness.invalid"
	fileIssuer, fileKeys  = "issuer.pem", "issuer.jwks"
	tokenLife, answerTime = 12 * time.Hour, time.Minute
	// holdersMethod receives navarch-agent's reports about its Envoy's roots (navarch.ca.v1.Holders).
	holdersMethod = "/navarch.ca.v1.Holders/Report"
)

// makeIssuer writes a key for tokens, and its public half as a JWKS. The key has no use outside of the run.
func makeIssuer(dir string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(),
		KeyID: "load", Algorithm: string(jose.ES256), Use: "sig"}}})
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, fileKeys), set, 0o600),
		os.WriteFile(filepath.Join(dir, fileIssuer), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
}

// minter signs tokens in the form of Kubernetes' service-account tokens.
type minter struct{ signer jose.Signer }

func newMinter(file string) (*minter, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, fmt.Errorf("%s is no PEM file", filepath.Base(file))
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "load"}}, nil)
	return &minter{signer}, err
}

// token returns a token of an identity's service account; bound also binds it to the Pod.
func (m *minter) token(id proxy.Identity, bound bool) (string, error) {
	now := time.Now()
	type named struct {
		Name string `json:"name"`
		UID  string `json:"uid"`
	}
	kubernetes := map[string]any{"namespace": id.Namespace, "serviceaccount": named{id.ServiceAccount, "sa"}}
	if bound {
		kubernetes["pod"] = named{id.Name, "uid-" + id.Name}
	}
	return jwt.Signed(m.signer).Claims(jwt.Claims{Issuer: tokenIssuer,
		Subject:  "system:serviceaccount:" + id.Namespace + ":" + id.ServiceAccount,
		Audience: jwt.Audience{"istio-ca"}, IssuedAt: jwt.NewNumericDate(now), Expiry: jwt.NewNumericDate(now.Add(tokenLife))}).
		Claims(map[string]any{"kubernetes.io": kubernetes}).Serialize()
}

// rootsOf returns a pool with the certificates of a PEM text. The error uses the name `what`.
func rootsOf(raw []byte, what string) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s holds no PEM certificate", what)
	}
	return pool, nil
}

// certificate requests a leaf certificate for an identity, as its agent does. Errors name the SPIFFE ID.
func (c *certifier) certificate(id proxy.Identity) (*tls.Certificate, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, c.private)
	if err != nil {
		return nil, err
	}
	token, err := c.minter.token(id, c.authority.EachPod)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	conn, err := c.dial(nil)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	answer, err := securityv1.NewIstioCertificateServiceClient(conn).CreateCertificate(ctx,
		&securityv1.IstioCertificateRequest{Csr: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))})
	if err != nil {
		return nil, fmt.Errorf("certificate of %s: %w", id.SPIFFE(trustDomain), err)
	}
	chain := answer.GetCertChain()
	if len(chain) < 2 {
		return nil, fmt.Errorf("certificate of %s: a chain of %d", id.SPIFFE(trustDomain), len(chain))
	}
	leaf := &tls.Certificate{PrivateKey: c.private}
	for rest := []byte(strings.Join(chain[:len(chain)-1], "")); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return leaf, nil
		}
		leaf.Certificate = append(leaf.Certificate, block.Bytes)
	}
}

// report reports, with an identity's certificate, the roots that its proxies hold, as navarch-agent does after Envoy's
// ACK.
func (c *certifier) report(leaf *tls.Certificate, fingerprints []string) error {
	conn, err := c.dial(leaf)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	list := &structpb.ListValue{}
	for _, one := range fingerprints {
		list.Values = append(list.Values, structpb.NewStringValue(one))
	}
	return conn.Invoke(ctx, holdersMethod, list, &emptypb.Empty{})
}

// dial connects to the CA, with a client certificate unless leaf is nil.
func (c *certifier) dial(leaf *tls.Certificate) (*grpc.ClientConn, error) {
	c.mu.Lock()
	conf := &tls.Config{RootCAs: c.pool, ServerName: serverName, MinVersion: tls.VersionTLS12}
	c.mu.Unlock()
	if leaf != nil {
		conf.Certificates = []tls.Certificate{*leaf}
	}
	return grpc.NewClient("passthrough:///"+c.authority.Addr, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
}
