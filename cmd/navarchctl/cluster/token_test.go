package cluster

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The token is the kubeconfig's, whatever its source, without a request to the API server. Without one a token of the
// service account is requested from the API server, and a refusal names the account. A password is never a token.
func TestToken(t *testing.T) {
	asked := 0
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/istio-system/serviceaccounts/navarch-operator/token" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"reason": "Forbidden", "message": "you may not"}`)
			return
		}
		fmt.Fprint(w, `{"status": {"token": "of the account"}}`)
	}))
	defer server.Close()
	root := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from a file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "echo", InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		Args: []string{`{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "from a plugin"}}`}}
	for want, c := range map[string]struct {
		user    clientcmdapi.AuthInfo
		account string
		asked   int
	}{
		"its own":            {user: clientcmdapi.AuthInfo{Token: "its own"}},
		"from a file":        {user: clientcmdapi.AuthInfo{TokenFile: file}},
		"from a plugin":      {user: clientcmdapi.AuthInfo{Exec: run}},
		"of the account":     {account: "navarch-operator", asked: 1},
		"istio-system/other": {account: "other", asked: 1},
		" of the account":    {user: clientcmdapi.AuthInfo{Username: "u", Password: "secret"}, account: "navarch-operator", asked: 1},
	} {
		config := clientcmdapi.NewConfig()
		config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: root}
		config.AuthInfos["u"] = &c.user
		config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
		config.CurrentContext = "x"
		path := filepath.Join(t.TempDir(), "kubeconfig")
		if err := clientcmd.WriteToFile(*config, path); err != nil {
			t.Fatal(err)
		}
		asked = 0
		in, err := (&Flags{Kubeconfig: path, Namespace: "istio-system"}).Open()
		if err != nil {
			t.Fatal(err)
		}
		token, err := in.Token(t.Context(), c.account)
		if err != nil && strings.Contains(err.Error(), want) {
			token = want
		}
		if token != strings.TrimSpace(want) || asked != c.asked {
			t.Errorf("token %q, %v, after %d requests; want %q after %d", token, err, asked, want, c.asked)
		}
	}
}
