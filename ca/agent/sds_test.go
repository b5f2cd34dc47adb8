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
	"navarch.io/navarch/loadtest/envoytest"
)

type sdsWorld struct {
	ca     *fakeCA
	agent  *Agent
	client secretv3.SecretDiscoveryServiceClient
	held   chan []string
	logged *envoytest.Output
}

func newSDS(t *testing.T) *sdsWorld {
	t.Helper()
	w := &sdsWorld{ca: &fakeCA{signer: authority(t, 1)}, held: make(chan []string, 100), logged: &envoytest.Output{}}
	socket := filepath.Join(t.TempDir(), "sds")
	w.agent = startFake(t, w.ca, func(c *Config) {
		c.Socket = socket
		c.Held = func(r []string) { w.held <- r }
		c.Log = slog.New(slog.NewTextHandler(w.logged, nil))
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

// TestDelta: subscribe, ACK, rotation, NACK, and the return of an Envoy that holds what is newest.
func TestDelta(t *testing.T) {
	w := newSDS(t)
	stream, err := w.client.DeltaSecrets(within(t))
	if err != nil {
		t.Fatal(err)
	}
	send := func(s grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse], r *discoveryv3.DeltaDiscoveryRequest) {
		t.Helper()
		if err := s.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	recv := func() *discoveryv3.DeltaDiscoveryResponse {
		t.Helper()
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	send(stream, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"default", "ROOTCA"}})
	r := recv()
	if len(r.Resources) != 2 {
		t.Fatalf("%d resources", len(r.Resources))
	}
	root, leaf := unpack(t, r.Resources[0]), unpack(t, r.Resources[1])
	if root.Name != "ROOTCA" || !bytes.Equal(root.GetValidationContext().GetTrustedCa().GetInlineBytes(), issue.EncodeCertificates(w.ca.signer.Roots...)) {
		t.Errorf("%v", root)
	}
	if leaf.Name != "default" || !bytes.Equal(leaf.GetTlsCertificate().GetCertificateChain().GetInlineBytes(), w.agent.Identity().Chain) || len(leaf.GetTlsCertificate().GetPrivateKey().GetInlineBytes()) == 0 {
		t.Error("default is not the certificate in use with a key")
	}
	select {
	case <-w.held:
		t.Error("held before the ACK")
	default:
	}

	// Two rotations while the ACK is outstanding are one response, with the newest.
	for range 2 {
		_, changed := w.agent.hub.get()
		w.agent.Renew()
		<-changed
	}
	send(stream, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce})
	if got := <-w.held; !slices.Equal(got, fingerprints(w.ca.signer.Roots)) {
		t.Errorf("held %v", got)
	}
	r = recv()
	if len(r.Resources) != 1 || r.Resources[0].Version != certificateSecret(w.agent.Identity().Chain, nil).version {
		t.Errorf("not the newest certificate alone: %d", len(r.Resources))
	}
	// A NACK: not sent again, not held; the next version goes out.
	send(stream, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce, ErrorDetail: &rpcstatus.Status{Code: 13, Message: "key does not match"}})
	two := authority(t, 2)
	lists := append(list(t, w.ca.signer, 1), list(t, two, 1)...)
	if err := w.agent.SetTrust(append(issue.EncodeCertificates(w.ca.signer.Roots...), issue.EncodeCertificates(two.Roots...)...), lists); err != nil {
		t.Fatal(err)
	}
	r = recv()
	v := unpack(t, r.Resources[0]).GetValidationContext()
	if len(r.Resources) != 1 || r.Resources[0].Name != "ROOTCA" || strings.Count(string(v.GetTrustedCa().GetInlineBytes()), "BEGIN") != 2 || !v.OnlyVerifyLeafCertCrl || !bytes.Equal(v.GetCrl().GetInlineBytes(), lists) {
		t.Errorf("after the push: %v", r.Resources[0].Name)
	}
	if !strings.Contains(w.logged.String(), "key does not match") {
		t.Error("the refusal is not in the log")
	}
	send(stream, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: r.Nonce})
	if got := <-w.held; len(got) != 2 {
		t.Errorf("held %v", got)
	}

	// An Envoy that comes back with what is newest gets nothing, and counts as a holder; an unknown name gets nothing.
	again, err := w.client.DeltaSecrets(within(t))
	if err != nil {
		t.Fatal(err)
	}
	send(again, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"ROOTCA", "kubernetes://x"}, InitialResourceVersions: map[string]string{"ROOTCA": r.Resources[0].Version}})
	if got := <-w.held; len(got) != 2 {
		t.Errorf("held %v", got)
	}
	send(again, &discoveryv3.DeltaDiscoveryRequest{ResourceNamesSubscribe: []string{"default"}})
	next, err := again.Recv()
	if err != nil || len(next.Resources) != 1 || next.Resources[0].Name != "default" {
		t.Errorf("%v %v", next.GetResources(), err)
	}
	send(again, &discoveryv3.DeltaDiscoveryRequest{ResponseNonce: next.Nonce, ResourceNamesUnsubscribe: []string{"default"}, ResourceNamesSubscribe: []string{"ROOTCA"}})
	if next, err = again.Recv(); err != nil || next.Resources[0].Name != "ROOTCA" {
		t.Errorf("subscribed again and unanswered: %v %v", next.GetResources(), err)
	}
}

func TestStateOfTheWorldAndFetch(t *testing.T) {
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

// TestReports are repeated until the CA has heard; each set is told once, and a CA that takes none is left in peace.
func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		var answer error
		a := startFake(t, &fakeCA{signer: authority(t, 1)}, func(c *Config) {
			c.report = func(_ context.Context, roots []string) error {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, strings.Join(roots, "+"))
				return answer
			}
		})
		say := func(with error, want string, roots ...string) {
			t.Helper()
			mu.Lock()
			answer, told = with, nil
			mu.Unlock()
			if roots != nil {
				a.acknowledged(roots)
			}
			time.Sleep(reportPause + time.Second)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if got := strings.Join(told, " "); got != want {
				t.Errorf("told %q, want %q", got, want)
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
