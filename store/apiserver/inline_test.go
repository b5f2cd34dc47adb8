package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// inline is a kubeconfig with these fields of its user and more of its cluster.
func inline(server, ca, user, more string) []byte {
	return fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
		"clusters": [{"name": "x", "cluster": {"server": %q, "certificate-authority-data": %q%s}}], "users": [{"name": "x", "user": {%s}}]}`, server, ca, more, user)
}

// Settings of a Secret's kubeconfig that refer to this process's own files or programs are refused by name. The server
// receives nothing: neither this process's token, nor that of another user in the kubeconfig.
// Promise: security-workloads.md#identity-and-private-keys
func TestInlineAlone(t *testing.T) {
	var asked, secret int
	api := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked++
		if strings.Contains(fmt.Sprint(r.Header), "our-secret") {
			secret++
		}
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("our-secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
	for name, c := range map[string]struct{ user, more, refused string }{
		"token":         {`"token": "theirs"`, "", ""},
		"basic":         {`"username": "a", "password": "b"`, "", ""},
		"oidc":          {`"auth-provider": {"name": "oidc", "config": {"id-token": "theirs"}}`, "", ""},
		"oidc, refresh": {`"auth-provider": {"name": "oidc", "config": {"idp-issuer-url": "https://x", "refresh-token": "r"}}`, "", "auth-provider"},
		"token file":    {fmt.Sprintf(`"tokenFile": %q`, file), "", "tokenFile"},
		"both":          {fmt.Sprintf(`"token": "theirs", "tokenFile": %q`, file), "", "tokenFile"},
		"key":           {fmt.Sprintf(`"token": "theirs", "client-key": %q`, file), "", "client-key"},
		"certificate":   {fmt.Sprintf(`"token": "theirs", "client-certificate": %q`, file), "", "client-certificate"},
		"exec":          {`"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true", "interactiveMode": "Never"}`, "", "exec"},
		"provider":      {`"auth-provider": {"name": "gcp"}`, "", "auth-provider"},
		"impersonation": {`"token": "theirs", "as": "admin"`, "", "as"},
		"groups":        {`"token": "theirs", "as-groups": ["system:masters"]`, "", "as"},
		"CA file":       {`"token": "theirs"`, fmt.Sprintf(`, "certificate-authority": %q`, file), "certificate-authority"},
		"unverified":    {`"token": "theirs"`, `, "insecure-skip-tls-verify": true`, "insecure-skip-tls-verify"},
		"proxy":         {`"token": "theirs"`, `, "proxy-url": "http://127.0.0.1:1"`, "proxy-url"},
	} {
		before := asked
		config, err := Inline(inline(api.URL, ca, c.user, c.more), nil)
		if err == nil {
			var client *Client
			if client, err = Of(config); err == nil {
				err = client.Do(t.Context(), http.MethodGet, "/version", nil, nil)
			}
		}
		switch {
		case c.refused == "" && (err != nil || asked != before+1):
			t.Errorf("%s: %v, asked %d times", name, err, asked-before)
		case c.refused != "" && (err == nil || !strings.HasSuffix(err.Error(), "not allowed are "+c.refused) || asked != before):
			t.Errorf("%s: %v, asked %d times; want %s refused", name, err, asked-before, c.refused)
		}
	}
	if secret != 0 {
		t.Errorf("our secret was sent %d times", secret)
	}
	config, err := Inline(inline(api.URL, ca, fmt.Sprintf(`"tokenFile": %q`, file), ""), []string{"tokenFile"})
	if err != nil || config.BearerTokenFile != file {
		t.Errorf("allowed: %v", err)
	}
}

// Errors quote no value of a kubeconfig. One without a bound, without a verified server or without a credential is
// refused.
func TestInlineBadInput(t *testing.T) {
	for name, text := range map[string][]byte{
		"empty": nil, "not YAML": []byte("token: [our-secret"), "large": append(inline("https://a", "", `"token": "our-secret"`, ""), bytes.Repeat([]byte(" "), maxInline)...), "no context": []byte(`{"users": [{"name": "our-secret"}]}`),
		"plain text": inline("http://our-secret", "", `"token": "our-secret"`, ""), "password in the URL": inline("https://a:our-secret@b", "", `"token": "our-secret"`, ""),
		"no credential": inline("https://a", "", ``, ""),
	} {
		if config, err := Inline(text, nil); err == nil || config != nil || strings.Contains(err.Error(), "our-secret") {
			t.Errorf("%s: %v, %v", name, config, err)
		}
	}
	if CheckOptions(Options) != nil || CheckOptions([]string{"exec"}) == nil {
		t.Error("names of options")
	}
}
