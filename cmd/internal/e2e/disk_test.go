package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/attest"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/kv/kvtest"
)

// A replica that starts while etcd is away serves its last known configuration, byte by byte. Later changes arrive once
// etcd is back.
func TestStartWhileEtcdIsAway(t *testing.T) {
	parallel(t)
	etcd := kvtest.Start(t)
	dir, state, store := folder(t), t.TempDir(), "--etcd-endpoints="+etcd.Endpoint()
	start(t, "--roles=ingest", "--config-dir", dir, store)
	first := start(t, "--roles=xds", "--state-dir", state, store)
	eventually(t, patience, serves(t, first, 1))
	before, err := everything(t.Context(), first.grpc, node("shop", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { _, err := os.Stat(filepath.Join(state, "snapshot")); return err })
	first.stop(t)

	etcd.Stop()
	second := start(t, "--roles=xds", "--state-dir", state, store)
	eventually(t, patience, serves(t, second, 1))
	after, err := everything(t.Context(), second.grpc, node("shop", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	same(t, before, after)
	second.hasProblem(t, "etcd", "does not answer; the last state that was read stays in effect")

	etcd.Restart(etcd.Dir())
	write(t, dir, "routes.yaml", routes(2))
	eventually(t, patience, serves(t, second, 2))
	eventually(t, patience, func() error {
		all, err := second.problems()
		if strings.Contains(fmt.Sprint(all), "does not answer; the last state") {
			return fmt.Errorf("%v", all)
		}
		return err
	})
}

// A replica that starts while etcd is away serves mTLS too: the sealed keyring on its disk provides its serving
// certificate, its callers' roots and the revocations. It renews certificates within its allowance, and issues no
// others until etcd is back.
// Promise: security-workloads.md#renewals-while-etcd-is-away
func TestTLSWhileEtcdIsAway(t *testing.T) {
	parallel(t)
	etcd, dir, state, data := kvtest.Start(t), folder(t), t.TempDir(), t.TempDir()
	issuer, err := attest.Local(data)
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(data, "keys.json")
	if err := os.WriteFile(keys, issuer.JWKS(), 0o600); err != nil {
		t.Fatal(err)
	}
	store, kek := "--etcd-endpoints="+etcd.Endpoint(), "--kek=file:"+filepath.Join(data, "kek")
	start(t, "--roles=ingest", "--config-dir", dir, store, kek)
	replica := func() *daemon {
		return start(t, "--roles=xds,ca", "--state-dir", state, store, kek, "--token-issuer", issuer.Name(), "--token-keys", keys)
	}
	first := replica()
	eventually(t, patience, serves(t, first, 1))
	roots, err := exec.Command(binary(t, "navarchctl"), "ca", "roots", store, kek).Output()
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "istiod.istio-system.svc"}
	conf.RootCAs.AppendCertsFromPEM(roots)
	certified := func(d *daemon, account string) *tls.Config {
		pair, _, err := signed(bearer(context.WithValue(t.Context(), lasting{}, time.Hour), token(t, data, "shop", account)), t, d.secure, conf)
		if err != nil {
			t.Fatal(err)
		}
		with := conf.Clone()
		with.Certificates = []tls.Certificate{pair}
		return with
	}
	good, bad := certified(first, "client"), certified(first, "other")
	if out, err := exec.Command(binary(t, "navarchctl"), "ca", "revoke", store, kek, "--identity", "spiffe://cluster.local/ns/shop/sa/other").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refused := func(d *daemon) func() error {
		return func() error {
			if _, err := clusters(t, d.secure, bad, node("shop", "other", "10.1.9.8")); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "revoked") {
				return fmt.Errorf("the revoked identity: %v", err)
			}
			return nil
		}
	}
	eventually(t, patience, refused(first))
	before, err := clusters(t, first.secure, good, node("shop", "client", "10.1.9.9"))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { _, err := os.Stat(filepath.Join(state, "snapshot")); return err })
	eventually(t, patience, func() error {
		page, err := get(first.monitoring, "/metrics")
		if err == nil && !strings.Contains(page, "navarch_keyring_allowance 10000") {
			err = errors.New("no allowance")
		}
		return err
	})
	first.stop(t)

	etcd.Stop()
	second := replica()
	var after map[string][]byte
	eventually(t, patience, func() (err error) {
		after, err = clusters(t, second.secure, good, node("shop", "client", "10.1.9.9"))
		return err
	})
	same(t, before, after)
	if err := refused(second)(); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a signature would need milliseconds
	if _, _, err := signed(bearer(short, token(t, data, "shop", "client")), t, second.secure, conf); err == nil {
		t.Error("a certificate is issued while etcd is away")
	}
	cancel()
	renewed, _, err := signed(t.Context(), t, second.secure, good)
	if err != nil {
		t.Fatalf("a renewal while etcd is away: %v", err)
	}
	if leaf, err := x509.ParseCertificate(renewed.Certificate[0]); err != nil || time.Until(leaf.NotAfter) > 4*time.Hour {
		t.Errorf("%v, until %v", err, leaf.NotAfter)
	}
	if _, _, err := signed(t.Context(), t, second.secure, bad); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the revoked identity: %v", err)
	}
	etcd.Restart(etcd.Dir())
	eventually(t, patience, func() error {
		_, _, err := signed(bearer(t.Context(), token(t, data, "shop", "client")), t, second.secure, conf)
		return err
	})
}

// clusters returns the clusters that a proxy is sent over TLS.
func clusters(t *testing.T, address string, conf *tls.Config, n *corev3.Node) (map[string][]byte, error) {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(t.Context())
	if err != nil {
		return nil, err
	}
	a := asking{stream: stream, node: n, got: map[string][]byte{}}
	if err := a.ask(xds.Cluster, nil); err != nil {
		return nil, err
	}
	_, err = a.receive(xds.Cluster, 1)
	return a.got, err
}
