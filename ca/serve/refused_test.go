package serve_test

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	securityv1 "istio.io/api/security/v1alpha1"

	"navarch.io/navarch/ca/serve"
	"navarch.io/navarch/ca/serve/servetest"
	"navarch.io/navarch/push/envoytest"
)

// Refused requests are logged by cause, with caller and address, one line for many; neither a token nor a CSR is
// logged.
func TestRefusedRequestsAreSampled(t *testing.T) {
	log := &envoytest.Output{}
	ca := servetest.Start(t, serve.Config{Audit: slog.New(slog.NewJSONHandler(log, nil))})
	conn := dial(t, ca, nil)
	defer conn.Close()
	good, _ := request(t)
	ca.Revoke("spiffe://cluster.local/ns/shop/sa/gone")
	ask := func(token, csr string, want codes.Code) {
		t.Helper()
		if _, err := create(t.Context(), conn, token, &securityv1.IstioCertificateRequest{Csr: csr}); status.Code(err) != want {
			t.Fatalf("%v, want %v", err, want)
		}
	}
	for range 50 {
		ask("e30.hiddentoken", good, codes.Unauthenticated)
	}
	ask(ca.Token("shop", "gone"), good, codes.PermissionDenied)
	ask(ca.Token("shop", "cart"), "hiddencsr", codes.InvalidArgument)
	identities := map[string]string{}
	for text := range strings.Lines(log.String()) {
		var one struct{ Msg, Cause, Identity, Peer, Error string }
		if err := json.Unmarshal([]byte(text), &one); err != nil {
			t.Fatal(err)
		}
		if _, twice := identities[one.Cause]; twice || one.Msg != "certificate request refused" || !strings.HasPrefix(one.Peer, "127.") || one.Error == "" {
			t.Errorf("%s", text)
		}
		identities[one.Cause] = one.Identity
	}
	if len(identities) != 3 || identities["Unauthenticated"] != "" || identities["PermissionDenied"] != "spiffe://cluster.local/ns/shop/sa/gone" ||
		identities["InvalidArgument"] != "spiffe://cluster.local/ns/shop/sa/cart" {
		t.Errorf("%q", identities)
	}
	if strings.Contains(log.String(), "hidden") {
		t.Errorf("a credential or a CSR is shown: %s", log)
	}
}
