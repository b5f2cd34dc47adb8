package plan

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/encoding/protojson"
	securityv1 "istio.io/api/security/v1beta1"

	"navarch.io/navarch/push/manifest"
	"navarch.io/navarch/push/walk"
	"navarch.io/navarch/push/xds"
	"navarch.io/navarch/store/model"
)

// holding returns a plan with the secrets of a folder, as Envoy's dump has both.
func holding(t *testing.T, set *manifest.Set, folder string) *walk.Messages {
	t.Helper()
	held := walkable(t, set)
	for _, name := range []string{xds.SDSDefault, xds.SDSRoot} {
		raw, err := os.ReadFile(filepath.Join(folder, name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Resources []map[string]any `json:"resources"`
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		delete(file.Resources[0], "@type")
		one, secret := file.Resources[0], &tlsv3.Secret{}
		if raw, err = json.Marshal(one); err == nil {
			err = protojson.Unmarshal(raw, secret)
		}
		if err != nil {
			t.Fatal(err)
		}
		held.Add(secret)
	}
	return held
}

// A walk with the certificates that two proxies hold says what their Envoys do: certificates that have ended or are of
// another authority, and a server with another name.
// Promise: why.md#certificates
func TestCertificatesBetweenProxies(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer app.Close()
	ca, other := newAuthority(t), newAuthority(t)
	const web, api = "spiffe://cluster.local/ns/a/sa/client", "spiffe://cluster.local/ns/b/sa/server"
	ended := time.Now().Add(-time.Minute)
	strict := []model.Record{security(t, model.KindPeerAuthentication, "b/p", "mtls: {mode: STRICT}", &securityv1.PeerAuthentication{})}
	for _, c := range []struct {
		name, server, client string
		status               int
		why                  string
	}{
		{"good", ca.secrets(api), ca.secrets(web), http.StatusOK, "reaches the server's application"},
		{"the server's has ended", ca.secretsUntil(api, ended), ca.secrets(web), 503, "the certificate of the server's proxy ended"},
		{"the client's has ended", ca.secrets(api), ca.secretsUntil(web, ended), 503, "the certificate of the client's proxy ended"},
		{"another authority", other.secrets(api), ca.secrets(web), 503, "no common root"},
		{"another server", ca.secrets(web), ca.secrets(web), 503, "the server's certificate is that of " + web},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out, served, calls := twoProxies(t, app.Listener.Addr().(*net.TCPAddr).Port, strict, c.server, c.client)
			call := callOf(walk.Peer{Held: holding(t, calls, c.client), Addresses: []string{"127.0.0.1"}, Identity: web},
				walk.Peer{Held: holding(t, served, c.server), Addresses: []string{"127.0.0.1"}}, out)
			if called(call) != c.status || !strings.Contains(call.Summary(), c.why) {
				t.Errorf("the walk says %d: %s\n%v", called(call), call.Summary(), call.TLS)
			}
			if got := asImpostor(out); !strings.HasPrefix(got, strconv.Itoa(c.status)) {
				t.Errorf("Envoy: %s", got)
			}
		})
	}
}
