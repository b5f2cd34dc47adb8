package main

import (
	"context"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/serving"
	"navarch.io/navarch/push/trust"
	"navarch.io/navarch/store/kv/kvtest"
)

// rooted is a fake keyring with one root.
type rooted struct{ root *issue.Authority }

func (r rooted) State() *keyring.State {
	return &keyring.State{Bundle: []*x509.Certificate{r.root.Certificate}}
}
func (rooted) Changed() <-chan struct{} { return nil }

// A replica without a certificate for its secure address is ready if proxies reach it without TLS. A replica that
// writes root-cert.pem for the agents of its machine is ready once the file exists.
func TestReadyOfCA(t *testing.T) {
	etcd := kvtest.Start(t)
	provider, err := seal.NewProvider("kms:"+t.TempDir()+"/nobody", nil)
	if err != nil {
		t.Fatal(err)
	}
	sealer, err := seal.New(provider)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := keyring.New(keyring.Config{Store: etcd.Store, Sealer: sealer, Mesh: kvtest.Mesh, TrustDomain: spiffeid.RequireTrustDomainFromString("cluster.local")})
	if err != nil {
		t.Fatal(err)
	}
	root, err := issue.SelfSigned(spiffeid.RequireTrustDomainFromString("cluster.local"), 1, time.Hour, time.Now(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config config
		wrote  bool
		want   string // of the error; empty: ready
	}{
		"nothing else":      {config{secureGRPCAddr: ":15012"}, false, "no serving certificate"},
		"plain text too":    {config{secureGRPCAddr: ":15012", grpcAddr: ":15010"}, false, ""},
		"no secure address": {config{}, false, ""},
		"roots not written": {config{dataDir: "data"}, false, "root-cert.pem"},
		"roots written":     {config{dataDir: "data"}, true, ""},
	} {
		c.config.roles = []string{string(roleCA)}
		s, err := serving.New(c.config.servingNames(), c.config.tlsCert, c.config.tlsKey)
		if err != nil {
			t.Fatal(err)
		}
		file := trust.New(t.TempDir())
		a := &authority{config: &c.config, ring: ring, serving: s, rooted: file.RootsWritten}
		if c.wrote {
			now, cancel := context.WithCancel(t.Context())
			cancel() // Run ends after its first round
			if err := file.Run(now, rooted{root}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := a.ready(); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
