package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
	"navarch.io/navarch/push/envoytest"
	"navarch.io/navarch/store/loopback"
)

// sds is the config source of a secret; tlsContext has the certificate and the validation context of both Envoys.
const (
	sds = `{"api_config_source":{"api_type":"DELTA_GRPC","transport_api_version":"V3","set_node_on_first_message_only":true,
		"grpc_services":[{"envoy_grpc":{"cluster_name":"sds"}}]},"resource_api_version":"V3"}`
	tlsContext = `"common_tls_context":{"tls_certificate_sds_secret_configs":[{"name":"default","sds_config":` + sds + `}],
		"combined_validation_context":{"default_validation_context":{"match_typed_subject_alt_names":[{"san_type":"URI","matcher":{"exact":"%s"}}]},
		"validation_context_sds_secret_config":{"name":"ROOTCA","sds_config":` + sds + `}}}`
	sdsCluster = `{"name":"sds","type":"STATIC","typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{
		"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","explicit_http_config":{"http2_protocol_options":{}}}},
		"load_assignment":{"cluster_name":"sds","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"pipe":{"path":"%s"}}}}]}]}}`
	listener = `{"name":"in","address":{"socket_address":{"address":"127.0.0.1","port_value":%d}},"filter_chains":[{%s"filters":[{"name":"hcm","typed_config":{
		"@type":"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager","stat_prefix":"in",
		"http_filters":[{"name":"router","typed_config":{"@type":"type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
		"route_config":{"virtual_hosts":[{"name":"all","domains":["*"],"routes":[{"match":{"prefix":"/"},%s}]}]}}}]}]}`
	// Each request opens a connection, so each is a handshake with the newest certificate.
	upstream = `,{"name":"up","type":"STATIC","typed_extension_protocol_options":{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{
		"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","common_http_protocol_options":{"max_requests_per_connection":1},
		"explicit_http_config":{"http_protocol_options":{}}}},
		"transport_socket":{"name":"tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",%s}},
		"load_assignment":{"cluster_name":"up","endpoints":[{"lb_endpoints":[{"endpoint":{"address":{"socket_address":{"address":"127.0.0.1","port_value":%d}}}}]}]}}`
)

const (
	clientID = "spiffe://cluster.local/ns/mesh/sa/client"
	serverID = "spiffe://cluster.local/ns/mesh/sa/server"
)

func startEnvoy(t *testing.T, name, listeners, clusters string) {
	t.Helper()
	envoytest.Start(t, envoytest.JSON(t, fmt.Appendf(nil,
		`{"node":{"id":%q,"cluster":%q},"static_resources":{"listeners":[%s],"clusters":[%s]}}`, name, name, listeners, clusters)))
}

// mesh is two Envoys, each with its agent, and steady load from one to the other.
type mesh struct {
	t              *testing.T
	renewAt        float64 // Config.RenewAt
	ca             *servetest.CA
	rootFile       string
	client, server *Agent
	entry, inbound int // ports

	done, failed atomic.Int64
	firstFailure atomic.Value
	leaves       map[string]uint64 // serials that the server presented, and their issuer's epoch
}

func (m *mesh) agent(sa, dir string) *Agent {
	m.t.Helper()
	token := filepath.Join(dir, sa+".token")
	if err := os.WriteFile(token, []byte(m.ca.Token("mesh", sa)+"\n"), 0o600); err != nil {
		m.t.Fatal(err)
	}
	a, err := New(Config{
		Address: m.ca.Address, ServerName: servetest.ServerName, RootFile: m.rootFile, RootPoll: 200 * time.Millisecond, TokenFile: token,
		Socket: filepath.Join(dir, sa+".sock"), RenewAt: m.renewAt, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
	return a
}

func startMesh(t *testing.T, renewAt float64) *mesh {
	dir := t.TempDir()
	m := &mesh{t: t, renewAt: renewAt, rootFile: filepath.Join(dir, "root.pem"), leaves: map[string]uint64{}}
	m.ca = servetest.Start(t, serve.Config{Audit: slog.New(slog.DiscardHandler), Policy: issue.Policy{Jitter: -1}})
	m.writeRoots()
	m.client, m.server = m.agent("client", dir), m.agent("server", dir)
	m.entry, m.inbound = loopback.PortFor(t), loopback.PortFor(t)
	startEnvoy(t, "server", fmt.Sprintf(listener, m.inbound,
		`"transport_socket":{"name":"tls","typed_config":{"@type":"type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",`+
			fmt.Sprintf(tlsContext, clientID)+`,"require_client_certificate":true}},`,
		`"direct_response":{"status":200}`), fmt.Sprintf(sdsCluster, filepath.Join(dir, "server.sock")))
	startEnvoy(t, "client", fmt.Sprintf(listener, m.entry, "", `"route":{"cluster":"up"}`),
		fmt.Sprintf(sdsCluster, filepath.Join(dir, "client.sock"))+fmt.Sprintf(upstream, fmt.Sprintf(tlsContext, serverID), m.inbound))
	m.until("traffic flows", func() bool { return m.get() == nil })
	return m
}

func (m *mesh) writeRoots() {
	m.t.Helper()
	next := m.rootFile + ".next"
	if err := errors.Join(os.WriteFile(next, m.ca.Roots(), 0o600), os.Rename(next, m.rootFile)); err != nil {
		m.t.Fatal(err)
	}
}

func (m *mesh) until(what string, ok func() bool) {
	m.t.Helper()
	for deadline := time.Now().Add(envoytest.Patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			m.t.Fatalf("%v, and not yet: %s", envoytest.Patience, what)
		}
	}
}

func (m *mesh) get() error {
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", m.entry))
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// load sends requests until stop is called, which checks that none failed.
func (m *mesh) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := m.get(); err != nil {
					m.failed.Add(1)
					m.firstFailure.CompareAndSwap(nil, fmt.Sprintf("%s: %v", time.Now().Format("05.000"), err))
				}
				m.done.Add(1)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return func() {
		cancel()
		wg.Wait()
		if n := m.failed.Load(); n > 0 {
			m.t.Errorf("%d of %d requests failed, the first at %v", n, m.done.Load(), m.firstFailure.Load())
		}
	}
}

// look is the leaf that the server's Envoy presents to a Go client with the client's certificate.
func (m *mesh) look() *x509.Certificate {
	m.t.Helper()
	conf := m.client.TLS("")
	conf.InsecureSkipVerify = true // no DNS name is in it; the chain is verified here
	conf.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: conf.RootCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		return err
	}
	conn, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.inbound), conf)
	if err != nil {
		m.t.Fatal(err)
	}
	defer conn.Close()
	leaf := conn.ConnectionState().PeerCertificates[0]
	m.leaves[serve.Serial(leaf)] = 0
	return leaf
}

// held reports whether the newest reports of both Envoys contain exactly these roots.
func (m *mesh) held(roots ...*issue.Authority) bool {
	var want []string
	for _, r := range roots {
		want = append(want, serve.Fingerprint(r.Certificate))
	}
	slices.Sort(want)
	newest := map[string][]string{}
	for _, r := range m.ca.Reports() {
		newest[r.Identity.String()] = r.Roots
	}
	return slices.Equal(newest[clientID], want) && slices.Equal(newest[serverID], want)
}

// New leaves every half second, the CA away and back, and a rotation of the root, each step after the Envoys'
// acknowledgement: no request fails, and each is a handshake.
func TestEnvoysRotateUnderLoad(t *testing.T) {
	m := startMesh(t, 0.5/(24*3600)) // every half second
	stop := m.load()
	current, _ := m.ca.Current()
	one := current.Authority

	m.until("five leaves were presented", func() bool { m.look(); return len(m.leaves) >= 5 })
	m.until("both Envoys hold the first root", func() bool { return m.held(one) })

	m.ca.Down()
	m.until("renewals fail", func() bool {
		_, err1 := m.client.LastFailure()
		_, err2 := m.server.LastFailure()
		return err1 != nil && err2 != nil
	})
	away, served := m.server.Identity().Serial, m.done.Load()
	m.until("100 requests without a CA", func() bool { return m.done.Load() > served+100 })
	if got := serve.Serial(m.look()); got != away {
		t.Errorf("the CA is away, and %s is presented instead of %s", got, away)
	}
	m.ca.Up()
	m.until("a new leaf after the return", func() bool { return serve.Serial(m.look()) != away })

	two := m.ca.NewAuthority(2)
	m.ca.Sign(one, two)
	m.writeRoots()
	m.until("both Envoys hold both roots", func() bool { return m.held(one, two) })
	m.ca.Sign(two, one)
	m.until("both are signed by the new root", func() bool {
		return m.look().CheckSignatureFrom(two.Certificate) == nil && m.client.Identity().cert.Leaf.CheckSignatureFrom(two.Certificate) == nil
	})
	m.until("the client's Envoy uses it too", func() bool { return m.lastBy(clientID) > one.Epoch })
	served = m.done.Load()
	m.until("100 requests under the new signer", func() bool { return m.done.Load() > served+100 })
	m.ca.Sign(two)
	m.writeRoots()
	m.until("the old root is gone from both", func() bool { return m.held(two) })
	served = m.done.Load()
	m.until("100 requests without the old root", func() bool { return m.done.Load() > served+100 })
	stop()
	by := map[string]int{}
	for _, e := range m.ca.Entries() {
		by[e.By]++
	}
	t.Logf("%d requests, %d failed; %d leaves seen; issued by token %d, by certificate %d", m.done.Load(), m.failed.Load(), len(m.leaves), by["token"], by["certificate"])
	if by["certificate"] < by["token"] {
		t.Errorf("renewals go by token: %v", by)
	}
}

// lastBy is the epoch of the newest certificate of an identity.
func (m *mesh) lastBy(id string) (epoch uint64) {
	for _, e := range m.ca.Entries() {
		if strings.HasSuffix(e.Identity.String(), id) {
			epoch = e.Epoch
		}
	}
	return epoch
}
