package agent

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	secretv3 "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"navarch.io/navarch/ca/issue"
	"navarch.io/navarch/push/envoytest"
)

type sdsWorld struct {
	ca     *fakeCA
	agent  *Agent
	client secretv3.SecretDiscoveryServiceClient
	held   chan []string
	logged *envoytest.Output
}

func newSDS(t *testing.T, edit ...func(*Config)) *sdsWorld {
	t.Helper()
	w := &sdsWorld{ca: &fakeCA{signer: authority(t, 1)}, held: make(chan []string, 100), logged: &envoytest.Output{}}
	socket := filepath.Join(t.TempDir(), "sds")
	w.agent = startFake(t, w.ca, func(c *Config) {
		c.Socket = socket
		c.held = func(r []string) { w.held <- r }
		c.Log = slog.New(slog.NewTextHandler(w.logged, nil))
		for _, e := range edit {
			e(c)
		}
	})
	<-w.agent.Ready()
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket: %v, %v", info, err)
	}
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	w.client = secretv3.NewSecretDiscoveryServiceClient(conn)
	return w
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func unpack(t *testing.T, r *discoveryv3.Resource) *tlsv3.Secret {
	t.Helper()
	s := &tlsv3.Secret{}
	if err := r.Resource.UnmarshalTo(s); err != nil {
		t.Fatal(err)
	}
	return s
}

// deltaStream is one of Envoy's streams.
type deltaStream struct {
	*testing.T
	*sdsWorld
	grpc grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
}

func (w *sdsWorld) delta(t *testing.T) *deltaStream {
	t.Helper()
	stream, err := w.client.DeltaSecrets(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return &deltaStream{t, w, stream}
}

func (s *deltaStream) send(r *discoveryv3.DeltaDiscoveryRequest) {
	s.Helper()
	if err := s.grpc.Send(r); err != nil {
		s.Fatal(err)
	}
}

func (s *deltaStream) recv() *discoveryv3.DeltaDiscoveryResponse {
	s.Helper()
	r, err := s.grpc.Recv()
	if err != nil {
		s.Fatal(err)
	}
	return r
}

// Delta: subscription, ACK, rotation, NACK, and a reconnecting Envoy that has the newest secrets.
func TestDelta(t *testing.T) {
	w := newSDS(t)
	stream := w.delta(t)
	first := stream.first()
	newest := stream.rotated(first)
	trust := stream.refused(newest)
	w.delta(t).again(trust)
}

// first subscribes to both secrets: they arrive together, and none counts as held before the ACK.
func (s *deltaStream) first() *discoveryv3.DeltaDiscoveryResponse {
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"default", "ROOTCA"}})
	r := s.recv()
	if len(r.Resources) != 2 {
		s.Fatalf("%d resources", len(r.Resources))
	}
	root, leaf := unpack(s.T, r.Resources[0]), unpack(s.T, r.Resources[1])
	if root.Name != "ROOTCA" || !bytes.Equal(root.GetValidationContext().GetTrustedCa().GetInlineBytes(), issue.EncodeCertificates(s.ca.signer.Roots...)) {
		s.Errorf("%v", root)
	}
	if leaf.Name != "default" || !bytes.Equal(leaf.GetTlsCertificate().GetCertificateChain().GetInlineBytes(), s.agent.Identity().Chain) || len(leaf.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) == 0 {
		s.Error("default is not the certificate in use with a key")
	}
	select {
	case <-s.held:
		s.Error("held before the ACK")
	default:
	}
	return r
}

// rotated: two rotations while the ACK is outstanding are one response, with the newest.
func (s *deltaStream) rotated(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryResponse {
	for range 2 {
		_, changed := s.agent.hub.get()
		s.agent.Renew()
		<-changed
	}
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce})
	if got := <-s.held; !slices.Equal(got, fingerprints(s.ca.signer.Roots)) {
		s.Errorf("held %v", got)
	}
	r = s.recv()
	if len(r.Resources) != 1 || r.Resources[0].Version != certificateSecret(certificateName, s.agent.Identity().Chain, nil).version {
		s.Errorf("not the newest certificate alone: %d", len(r.Resources))
	}
	return r
}

// refused: after a NACK it is not sent again, and not held; the next version goes out.
func (s *deltaStream) refused(r *discoveryv3.DeltaDiscoveryResponse) *discoveryv3.DeltaDiscoveryResponse {
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce, ErrorDetail: &rpcstatus.Status{Code: 13, Message: "key does not match"}})
	two := authority(s.T, 2)
	lists := append(list(s.T, s.ca.signer, 1), list(s.T, two, 1)...)
	if err := s.agent.SetTrust(append(issue.EncodeCertificates(s.ca.signer.Roots...), issue.EncodeCertificates(two.Roots...)...), lists); err != nil {
		s.Fatal(err)
	}
	r = s.recv()
	v := unpack(s.T, r.Resources[0]).GetValidationContext()
	if len(r.Resources) != 1 || r.Resources[0].Name != "ROOTCA" || strings.Count(string(v.GetTrustedCa().GetInlineBytes()), "BEGIN") != 2 || !v.OnlyVerifyLeafCertCrl || !bytes.Equal(v.GetCrl().GetInlineBytes(), lists) {
		s.Errorf("after the push: %v", r.Resources[0].Name)
	}
	if !strings.Contains(s.logged.String(), "key does not match") {
		s.Error("the refusal is not in the log")
	}
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce})
	if got := <-s.held; len(got) != 2 {
		s.Errorf("held %v", got)
	}
	return r
}

// again reconnects an Envoy that has the newest secrets: it receives nothing, and counts as a holder; an unknown name
// receives nothing.
func (s *deltaStream) again(r *discoveryv3.DeltaDiscoveryResponse) {
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"ROOTCA", "kubernetes://x"}, InitialResourceVersions: map[string]string{"ROOTCA": r.Resources[0].Version}})
	if got := <-s.held; len(got) != 2 {
		s.Errorf("held %v", got)
	}
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"default"}})
	next := s.recv()
	if len(next.Resources) != 1 || next.Resources[0].Name != "default" {
		s.Errorf("%v", next.GetResources())
	}
	s.send(&discoveryv3.DeltaDiscoveryRequest{ResponseNonce: next.Nonce, ResourceNamesUnsubscribe: []string{"default"}, ResourceNamesSubscribe: []string{"ROOTCA"}})
	if next = s.recv(); next.Resources[0].Name != "ROOTCA" {
		s.Errorf("subscribed again and unanswered: %v", next.GetResources())
	}
}

func TestSotWAndFetch(t *testing.T) {
	w := newSDS(t)
	stream, err := w.client.StreamSecrets(within(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *discoveryv3.DiscoveryRequest) *discoveryv3.DiscoveryResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		resp, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	one := ask(&discoveryv3.DiscoveryRequest{ResourceNames: []string{"default"}})
	both := ask(&discoveryv3.DiscoveryRequest{ResourceNames: []string{"default", "ROOTCA"}, ResponseNonce: one.Nonce, VersionInfo: one.VersionInfo})
	if len(one.Resources) != 1 || len(both.Resources) != 2 || one.VersionInfo == both.VersionInfo {
		t.Errorf("%d, then %d resources", len(one.Resources), len(both.Resources))
	}
	if err := stream.Send(&discoveryv3.DiscoveryRequest{ResourceNames: []string{"default", "ROOTCA"}, ResponseNonce: both.Nonce, VersionInfo: both.VersionInfo}); err != nil {
		t.Fatal(err)
	}
	if got := <-w.held; len(got) != 1 {
		t.Errorf("held %v", got)
	}
	w.agent.Renew()
	rotated, err := stream.Recv()
	if err != nil || len(rotated.Resources) != 2 || rotated.VersionInfo == both.VersionInfo {
		t.Errorf("after a renewal: %v %v", len(rotated.GetResources()), err)
	}

	got, err := w.client.FetchSecrets(within(t), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"ROOTCA"}})
	if err != nil || len(got.Resources) != 1 {
		t.Errorf("%v %v", got, err)
	}
	if _, err := w.client.FetchSecrets(within(t), &discoveryv3.DiscoveryRequest{ResourceNames: []string{"no"}}); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
}

// Reports are repeated until the CA has accepted them. Each set is reported once, and a CA without support is not
// called again.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var reported []string
		var answer error
		a := startFake(t, &fakeCA{signer: authority(t, 1)}, func(c *Config) {
			c.report = func(_ context.Context, roots []string) error {
				mu.Lock()
				defer mu.Unlock()
				reported = append(reported, strings.Join(roots, "+"))
				return answer
			}
		})
		say := func(with error, want string, roots ...string) {
			t.Helper()
			mu.Lock()
			answer, reported = with, nil
			mu.Unlock()
			if roots != nil {
				a.acknowledged(roots)
			}
			time.Sleep(reportPause + time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(reported, " "); got != want {
				t.Errorf("reported %q, want %q", got, want)
			}
		}
		say(nil, "a", "a")
		say(nil, "", "a")
		say(status.Error(codes.Unavailable, "away"), "a+b a+b", "a", "b")
		say(nil, "a+b")
		say(status.Error(codes.Unimplemented, "another CA"), "c", "c")
		say(nil, "")
	})
}
