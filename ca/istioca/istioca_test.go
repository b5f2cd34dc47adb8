package istioca

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"navarch.io/navarch/ca/keyring"
	"navarch.io/navarch/store/apiserver/apiservertest"
)

// secrets plays an API server with these Secrets, by name: the JSON, or an HTTP status code.
func secrets(t *testing.T, have map[string]any) *Secrets {
	t.Helper()
	return New(apiservertest.Play(t, func(w http.ResponseWriter, r *http.Request) {
		name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/istio-system/secrets/")
		if !ok || r.Method != http.MethodGet {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		switch s := have[name].(type) {
		case nil:
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"kind": "Status", "reason": "NotFound"}`)
		case int:
			w.WriteHeader(s)
		default:
			_ = json.NewEncoder(w).Encode(s)
		}
	}), "istio-system", slog.New(slog.DiscardHandler))
}

// object returns a Secret as an API server does: the value of each key is its own name; keys after an empty one have
// empty values.
func object(name, kind string, keys ...string) map[string]any {
	data := map[string]string{}
	for _, key := range keys {
		key, empty := strings.CutSuffix(key, "=")
		if data[key] = ""; !empty {
			data[key] = base64.StdEncoding.EncodeToString([]byte(key))
		}
	}
	return map[string]any{"metadata": map[string]string{"name": name}, "type": kind, "data": data}
}

// The Secret that is used, and the meaning of its keys, are as in istiod. Missing parts are named by Secret and key,
// and no other Secret is used then.
func TestWhichSecret(t *testing.T) {
	const opaque, tls = "Opaque", "kubernetes.io/tls"
	own := object("istio-ca-secret", istiodType, "ca-cert.pem", "ca-key.pem", "cert-chain.pem=", "key.pem=", "root-cert.pem=")
	for name, c := range map[string]struct {
		cacerts, istiod any
		want            string // certificate, key, chain, root, lists, and whether it is used initially only; or the text of the error
	}{
		"none":                       {nil, nil, "none"},
		"istiod's own":               {nil, own, "ca-cert.pem ca-key.pem  ca-cert.pem true"},
		"istiod's, two roots":        {nil, object("istio-ca-secret", istiodType, "ca-cert.pem", "ca-key.pem", "root-cert.pem"), "ca-cert.pem ca-key.pem  root-cert.pem true"},
		"the user's":                 {object("cacerts", opaque, "ca-cert.pem", "ca-key.pem", "cert-chain.pem", "root-cert.pem", "ca-crl.pem"), own, "ca-cert.pem ca-key.pem cert-chain.pem root-cert.pem ca-crl.pemfalse"},
		"without a chain":            {object("cacerts", opaque, "ca-cert.pem", "ca-key.pem", "root-cert.pem"), nil, "ca-cert.pem ca-key.pem  root-cert.pem false"},
		"cert-manager's":             {object("cacerts", tls, "tls.crt", "tls.key", "ca.crt"), own, "tls.crt tls.key  ca.crt false"},
		"istiod's in cacerts":        {object("cacerts", istiodType, "ca-cert.pem", "ca-key.pem", "root-cert.pem="), nil, "ca-cert.pem ca-key.pem  ca-cert.pem true"},
		"the user's, no key":         {object("cacerts", opaque, "ca-cert.pem", "ca-key.pem=", "root-cert.pem"), own, "Secret istio-system/cacerts: key ca-key.pem is missing or empty"},
		"cert-manager's, no CA":      {object("cacerts", tls, "tls.crt", "tls.key"), own, "Secret istio-system/cacerts: key ca.crt is missing"},
		"nothing in it":              {object("cacerts", opaque), own, "Secret istio-system/cacerts: key ca-cert.pem is missing"},
		"it may not be read":         {http.StatusForbidden, own, "Secret istio-system/cacerts: the API server answered 403"},
		"istiod's may not":           {nil, http.StatusForbidden, "Secret istio-system/istio-ca-secret: the API server answered 403"},
		"another one":                {object("other", opaque, "ca-cert.pem"), own, "another object"},
		"an API server that is away": {http.StatusServiceUnavailable, own, "503"},
	} {
		u, err := secrets(t, map[string]any{"cacerts": c.cacerts, "istio-ca-secret": c.istiod}).readSecrets(t.Context())
		got := fmt.Sprintf("%s %s %s %s %s%t", u.Cert, u.Key, u.Chain, u.Root, u.Lists, u.FirstOnly)
		switch {
		case u.None:
			got = "none"
		case err != nil:
			got = err.Error()
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Before the Secrets were read once, no result is reported. The last result stays while the API server is away or
// refuses the read. Missing parts of a Secret are reported then, and so is its removal.
// Promise: security-ca.md#your-own-ca
func TestLastAnswerStands(t *testing.T) {
	have := map[string]any{}
	s := secrets(t, have)
	if _, err := s.Read(); !errors.Is(err, keyring.ErrNotRead) {
		t.Errorf("before it was looked at: %v", err)
	}
	whole, half := object("cacerts", "Opaque", "ca-cert.pem", "ca-key.pem", "root-cert.pem"), object("cacerts", "Opaque", "ca-cert.pem")
	for i, step := range []struct {
		cacerts any
		want    string
	}{
		{http.StatusForbidden, " false Secret istio-system/cacerts: the API server answered 403"},
		{whole, "ca-cert.pem false <nil>"},
		{http.StatusForbidden, "ca-cert.pem false <nil>"},
		{half, " false Secret istio-system/cacerts: key ca-key.pem is missing"},
		{http.StatusServiceUnavailable, " false Secret istio-system/cacerts: key ca-key.pem is missing"},
		{whole, "ca-cert.pem false <nil>"},
		{nil, " true <nil>"},
	} {
		have["cacerts"] = step.cacerts
		s.refresh(t.Context())
		u, err := s.Read()
		if got := fmt.Sprintf("%s %t %v", u.Cert, u.None, err); !strings.HasPrefix(got, step.want) {
			t.Errorf("step %d: %s, want %s", i, got, step.want)
		}
	}
}
